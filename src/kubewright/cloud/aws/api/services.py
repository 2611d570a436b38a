"""EKS, SQS, IAM and ARC zonal shift."""

from datetime import datetime

from msgspec import field

from kubewright.cloud.aws.api.wire import Aws, Tag


class CertificateAuthority(Aws, frozen=True, kw_only=True, rename="camel"):
    data: str = ""


class KubernetesNetworkConfig(Aws, frozen=True, kw_only=True, rename="camel"):
    service_ipv4_cidr: str = field(default="", name="serviceIpv4Cidr")
    service_ipv6_cidr: str = field(default="", name="serviceIpv6Cidr")


class EksCluster(Aws, frozen=True, kw_only=True, rename="camel"):
    name: str
    arn: str = ""
    endpoint: str = ""
    version: str = ""
    certificate_authority: CertificateAuthority = CertificateAuthority()
    kubernetes_network_config: KubernetesNetworkConfig = KubernetesNetworkConfig()


class DescribeCluster(Aws, frozen=True, kw_only=True, rename="camel"):
    name: str


class ClusterAnswer(Aws, frozen=True, kw_only=True, rename="camel"):
    cluster: EksCluster


class GetQueueUrl(Aws, frozen=True, kw_only=True):
    queue_name: str


class QueueUrlAnswer(Aws, frozen=True, kw_only=True):
    queue_url: str


class ReceiveMessage(Aws, frozen=True, kw_only=True):
    queue_url: str
    max_number_of_messages: int = field(default=1)
    visibility_timeout: int | None = None
    """0 is said, so that what was only looked at is there for others at once."""
    wait_time_seconds: int = 0


class QueueMessage(Aws, frozen=True, kw_only=True):
    message_id: str = ""
    receipt_handle: str = ""
    body: str = ""


class MessagesAnswer(Aws, frozen=True, kw_only=True):
    messages: tuple[QueueMessage, ...] = ()


class DeleteMessage(Aws, frozen=True, kw_only=True):
    queue_url: str
    receipt_handle: str


class Role(Aws, frozen=True, kw_only=True):
    role_name: str


class InstanceProfileInfo(Aws, frozen=True, kw_only=True):
    instance_profile_name: str
    path: str = "/"
    roles: tuple[Role, ...] = ()
    create_date: datetime | None = None
    tags: tuple[Tag, ...] = ()


class GetInstanceProfile(Aws, frozen=True, kw_only=True):
    instance_profile_name: str


class InstanceProfileAnswer(Aws, frozen=True, kw_only=True):
    instance_profile: InstanceProfileInfo


class CreateInstanceProfile(Aws, frozen=True, kw_only=True):
    instance_profile_name: str
    path: str = "/"
    tags: tuple[Tag, ...] = ()


class ProfileRole(Aws, frozen=True, kw_only=True):
    instance_profile_name: str
    role_name: str


class DeleteInstanceProfile(Aws, frozen=True, kw_only=True):
    instance_profile_name: str


class ListInstanceProfiles(Aws, frozen=True, kw_only=True):
    path_prefix: str = ""
    marker: str = ""


class InstanceProfilesPage(Aws, frozen=True, kw_only=True):
    instance_profiles: tuple[InstanceProfileInfo, ...] = ()
    is_truncated: bool = False
    marker: str = ""


class GetManagedResource(Aws, frozen=True, kw_only=True, rename="camel"):
    resource_identifier: str
    """The cluster's ARN."""


class ZonalShift(Aws, frozen=True, kw_only=True, rename="camel"):
    applied_status: str
    away_from: str
    """A zone id, such as usw2-az1."""
    expiry_time: datetime | None = None
    shift_type: str = ""
    comment: str = ""


class Autoshift(Aws, frozen=True, kw_only=True, rename="camel"):
    """AWS's own shift; it has no end until AWS ends it."""

    applied_status: str
    away_from: str


class ManagedResourceAnswer(Aws, frozen=True, kw_only=True, rename="camel"):
    arn: str = ""
    zonal_shifts: tuple[ZonalShift, ...] = ()
    autoshifts: tuple[Autoshift, ...] = ()
