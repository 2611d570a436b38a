"""What only `kubewright aws doctor` asks: it needs more permissions than the operator, and goes on without them."""

from msgspec import field

from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class Route(Aws, frozen=True, kw_only=True):
    destination_cidr_block: str = ""
    destination_ipv6_cidr_block: str = field(default="", name="DestinationIpv6CidrBlock")
    gateway_id: str = ""
    nat_gateway_id: str = ""
    transit_gateway_id: str = ""
    network_interface_id: str = ""
    state: str = ""


class RouteAssociation(Aws, frozen=True, kw_only=True):
    main: bool = False
    subnet_id: str = ""


class RouteTable(Aws, frozen=True, kw_only=True):
    route_table_id: str
    vpc_id: str = ""
    associations: tuple[RouteAssociation, ...] = ()
    routes: tuple[Route, ...] = ()
    tags: tuple[Tag, ...] = ()


class DescribeRouteTables(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class RouteTablesPage(Page, frozen=True, kw_only=True):
    route_tables: tuple[RouteTable, ...] = ()


class VpcEndpoint(Aws, frozen=True, kw_only=True):
    vpc_endpoint_id: str
    vpc_endpoint_type: str = ""
    vpc_id: str = ""
    service_name: str = ""
    state: str = ""
    policy_document: str = ""
    route_table_ids: tuple[str, ...] = ()
    subnet_ids: tuple[str, ...] = ()


class DescribeVpcEndpoints(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class VpcEndpointsPage(Page, frozen=True, kw_only=True):
    vpc_endpoints: tuple[VpcEndpoint, ...] = ()


class ServiceQuota(Aws, frozen=True, kw_only=True):
    quota_code: str = ""
    quota_name: str = ""
    value: float = 0.0


class GetServiceQuota(Aws, frozen=True, kw_only=True):
    service_code: str
    quota_code: str


class ServiceQuotaAnswer(Aws, frozen=True, kw_only=True):
    quota: ServiceQuota = ServiceQuota()


class GetRole(Aws, frozen=True, kw_only=True):
    role_name: str


class RoleInfo(Aws, frozen=True, kw_only=True):
    role_name: str
    arn: str = ""


class RoleAnswer(Aws, frozen=True, kw_only=True):
    role: RoleInfo


class ListAttachedRolePolicies(Aws, frozen=True, kw_only=True):
    role_name: str


class AttachedPolicy(Aws, frozen=True, kw_only=True):
    policy_name: str = ""
    policy_arn: str = ""


class AttachedPoliciesAnswer(Aws, frozen=True, kw_only=True):
    attached_policies: tuple[AttachedPolicy, ...] = ()


class GetCallerIdentity(Aws, frozen=True, kw_only=True):
    pass


class CallerIdentity(Aws, frozen=True, kw_only=True):
    account: str = ""
    arn: str = ""
