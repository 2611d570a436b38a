"""Subnets, security groups, images, and the parameters that name images."""

from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class Subnet(Aws, frozen=True, kw_only=True):
    subnet_id: str
    availability_zone: str
    availability_zone_id: str = ""
    available_ip_address_count: int = 0
    vpc_id: str = ""
    map_public_ip_on_launch: bool = False
    tags: tuple[Tag, ...] = ()


class DescribeSubnets(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class SubnetsPage(Page, frozen=True, kw_only=True):
    subnets: tuple[Subnet, ...] = ()


class IpRange(Aws, frozen=True, kw_only=True):
    cidr_ip: str = ""


class GroupPair(Aws, frozen=True, kw_only=True):
    group_id: str = ""


class IpPermission(Aws, frozen=True, kw_only=True):
    """Only `aws doctor` reads these. Without ports it stands for all."""

    ip_protocol: str = ""
    from_port: int | None = None
    to_port: int | None = None
    ip_ranges: tuple[IpRange, ...] = ()
    user_id_group_pairs: tuple[GroupPair, ...] = ()


class SecurityGroup(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""
    vpc_id: str = ""
    ip_permissions: tuple[IpPermission, ...] = ()
    ip_permissions_egress: tuple[IpPermission, ...] = ()
    tags: tuple[Tag, ...] = ()


class DescribeSecurityGroups(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class SecurityGroupsPage(Page, frozen=True, kw_only=True):
    security_groups: tuple[SecurityGroup, ...] = ()


class Image(Aws, frozen=True, kw_only=True):
    image_id: str
    name: str = ""
    architecture: str = ""
    creation_date: str = ""
    """ISO 8601, compared as text like AWS's console does."""
    deprecation_time: str = ""
    state: str = ""
    owner_id: str = ""
    tags: tuple[Tag, ...] = ()


class DescribeImages(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()
    owners: tuple[str, ...] = ()
    include_deprecated: bool = False


class ImagesPage(Page, frozen=True, kw_only=True):
    images: tuple[Image, ...] = ()


class GetParameter(Aws, frozen=True, kw_only=True):
    name: str


class Parameter(Aws, frozen=True, kw_only=True):
    value: str


class ParameterAnswer(Aws, frozen=True, kw_only=True):
    parameter: Parameter
