"""EC2NodeClass (`karpenter.k8s.aws/v1`), all of it, as released in 1.14.1.

Optional fields are None when left out, because an empty string or a false that was written counts in the hash.
Source: spec/aws 1.1 to 1.3.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import field

from kubewright.api.conditions import ConditionSet
from kubewright.api.karpenter import NodeSelectorRequirement
from kubewright.api.meta import Condition, Object, Resource, Wire
from kubewright.api.rules.aws import FAMILIES

CONDITIONS = ConditionSet(
    ("AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady", "ValidationSucceeded", "PlacementGroupReady")
)
CONDITIONS_WITH_RESERVATIONS = ConditionSet((*CONDITIONS.dependents, "CapacityReservationsReady"))
"""While the gate ReservedCapacity is on."""


class SubnetSelectorTerm(Wire, frozen=True, kw_only=True):
    tags: dict[str, str] = field(default_factory=dict)
    id: str = ""


class SecurityGroupSelectorTerm(Wire, frozen=True, kw_only=True):
    tags: dict[str, str] = field(default_factory=dict)
    id: str = ""
    name: str = ""


class CapacityReservationSelectorTerm(Wire, frozen=True, kw_only=True):
    tags: dict[str, str] = field(default_factory=dict)
    id: str = ""
    owner_id: str = field(default="", name="ownerID")
    instance_match_criteria: str = ""


class PlacementGroupSelector(Wire, frozen=True, kw_only=True):
    name: str | None = None
    id: str | None = None


class AmiSelectorTerm(Wire, frozen=True, kw_only=True):
    alias: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


class Kubelet(Wire, frozen=True, kw_only=True):
    cluster_dns: tuple[str, ...] | None = field(default=None, name="clusterDNS")
    max_pods: int | None = None
    pods_per_core: int | None = None
    system_reserved: dict[str, str] | None = None
    kube_reserved: dict[str, str] | None = None
    eviction_hard: dict[str, str] | None = None
    eviction_soft: dict[str, str] | None = None
    eviction_soft_grace_period: dict[str, str] | None = None
    eviction_max_pod_grace_period: int | None = None
    image_gc_high_threshold_percent: int | None = field(default=None, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: int | None = field(default=None, name="imageGCLowThresholdPercent")
    cpu_cfs_quota: bool | None = field(default=None, name="cpuCFSQuota")


class BlockDevice(Wire, frozen=True, kw_only=True):
    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int | None = None
    kms_key_id: str | None = field(default=None, name="kmsKeyID")
    snapshot_id: str | None = field(default=None, name="snapshotID")
    throughput: int | None = None
    """MiB per second."""
    volume_initialization_rate: int | None = None
    """MiB per second."""
    volume_size: str | None = None
    volume_type: str | None = None


class BlockDeviceMapping(Wire, frozen=True, kw_only=True):
    device_name: str | None = None
    ebs: BlockDevice | None = None
    root_volume: bool = False


class NetworkInterface(Wire, frozen=True, kw_only=True):
    network_card_index: int = 0
    device_index: int = 0
    interface_type: str = "interface"


class MetadataOptions(Wire, frozen=True, kw_only=True):
    """The CRD writes all four defaults, so None is seen only in objects that never met it."""

    http_endpoint: str | None = None
    http_protocol_ipv6: str | None = field(default=None, name="httpProtocolIPv6")
    http_put_response_hop_limit: int | None = None
    http_tokens: str | None = None


class ConnectionTracking(Wire, frozen=True, kw_only=True):
    """Timeouts in seconds."""

    tcp_established_timeout: int | None = None
    udp_stream_timeout: int | None = None
    udp_timeout: int | None = None


class CpuOptions(Wire, frozen=True, kw_only=True):
    nested_virtualization: str | None = None


class EC2NodeClassSpec(Wire, frozen=True, kw_only=True):
    subnet_selector_terms: tuple[SubnetSelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupSelectorTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    associate_public_ip_address: bool | None = field(default=None, name="associatePublicIPAddress")
    ip_prefix_count: int | None = None
    ami_selector_terms: tuple[AmiSelectorTerm, ...] = ()
    ami_family: str | None = None
    user_data: str | None = None
    role: str = ""
    instance_profile: str | None = None
    tags: dict[str, str] | None = None
    kubelet: Kubelet | None = None
    block_device_mappings: tuple[BlockDeviceMapping, ...] | None = None
    instance_store_policy: str | None = None
    network_interfaces: tuple[NetworkInterface, ...] | None = None
    detailed_monitoring: bool | None = None
    metadata_options: MetadataOptions | None = None
    connection_tracking: ConnectionTracking | None = None
    context: str | None = None
    cpu_options: CpuOptions | None = None


class Subnet(Wire, frozen=True, kw_only=True):
    id: str
    zone: str
    zone_id: str = field(default="", name="zoneID")


class SecurityGroup(Wire, frozen=True, kw_only=True):
    id: str
    name: str = ""


class Ami(Wire, frozen=True, kw_only=True):
    id: str
    name: str = ""
    deprecated: bool = False
    # always written: the CRD requires the field
    requirements: tuple[NodeSelectorRequirement, ...] = field(default=())


class CapacityReservation(Wire, frozen=True, kw_only=True):
    availability_zone: str
    id: str
    instance_match_criteria: str
    instance_type: str
    owner_id: str = field(name="ownerID")
    end_time: datetime | None = None
    reservation_type: str = "default"
    interruptible: bool = False
    state: str = "active"


class EC2NodeClassStatus(Wire, frozen=True, kw_only=True):
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[Ami, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    instance_profile: str = ""
    conditions: tuple[Condition, ...] = ()


class EC2NodeClass(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses")
    spec: EC2NodeClassSpec = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()

    @property
    def ami_family(self) -> str:
        """The family that counts: what is written, else the alias's, else Custom. Source: spec/aws 1.2."""
        if self.spec.ami_family:
            return self.spec.ami_family
        alias = next((t.alias for t in self.spec.ami_selector_terms if t.alias), "")
        return FAMILIES.get(alias.partition("@")[0].lower(), "Custom")
