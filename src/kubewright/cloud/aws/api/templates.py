"""Launch templates."""

from datetime import datetime

from msgspec import field

from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class Ebs(Aws, frozen=True, kw_only=True):
    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int = 0
    kms_key_id: str = ""
    snapshot_id: str = ""
    throughput: int = 0
    volume_initialization_rate: int = 0
    volume_size: int = 0
    """GiB, rounded up."""
    volume_type: str = ""


class BlockDevice(Aws, frozen=True, kw_only=True):
    device_name: str
    ebs: Ebs | None = None


class MetadataOptions(Aws, frozen=True, kw_only=True):
    http_endpoint: str = ""
    http_protocol_ipv6: str = field(default="", name="HttpProtocolIpv6")
    http_put_response_hop_limit: int = 0
    http_tokens: str = ""
    instance_metadata_tags: str = ""


class ConnectionTracking(Aws, frozen=True, kw_only=True):
    """Idle timeouts in seconds; 0 leaves EC2's own."""

    tcp_established_timeout: int = 0
    udp_stream_timeout: int = 0
    udp_timeout: int = 0


class NetworkInterface(Aws, frozen=True, kw_only=True):
    device_index: int | None = None
    network_card_index: int | None = None
    interface_type: str = ""
    associate_public_ip_address: bool | None = None
    groups: tuple[str, ...] = ()
    ipv4_prefix_count: int = field(default=0, name="Ipv4PrefixCount")
    ipv6_prefix_count: int = field(default=0, name="Ipv6PrefixCount")
    ipv6_address_count: int = field(default=0, name="Ipv6AddressCount")
    primary_ipv6: bool | None = field(default=None, name="PrimaryIpv6")
    connection_tracking_specification: ConnectionTracking | None = None


class InstanceProfile(Aws, frozen=True, kw_only=True):
    name: str


class Monitoring(Aws, frozen=True, kw_only=True):
    enabled: bool | None = None


class CpuOptions(Aws, frozen=True, kw_only=True):
    nested_virtualization: str = ""


class ReservationTarget(Aws, frozen=True, kw_only=True):
    capacity_reservation_id: str


class ReservationSpecification(Aws, frozen=True, kw_only=True):
    capacity_reservation_preference: str
    """"none" keeps out of open reservations, "capacity-reservations-only" never pays for anything else."""
    capacity_reservation_target: ReservationTarget | None = None


class MarketOptions(Aws, frozen=True, kw_only=True):
    market_type: str


class TemplatePlacement(Aws, frozen=True, kw_only=True):
    tenancy: str = ""
    group_id: str = ""
    partition_number: int = 0


class TagSpecification(Aws, frozen=True, kw_only=True):
    resource_type: str
    tags: tuple[Tag, ...]


class LaunchTemplateData(Aws, frozen=True, kw_only=True):
    image_id: str = ""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    iam_instance_profile: InstanceProfile | None = None
    metadata_options: MetadataOptions | None = None
    monitoring: Monitoring | None = None
    network_interfaces: tuple[NetworkInterface, ...] = ()
    tag_specifications: tuple[TagSpecification, ...] = ()
    cpu_options: CpuOptions | None = None
    capacity_reservation_specification: ReservationSpecification | None = None
    instance_market_options: MarketOptions | None = None
    placement: TemplatePlacement | None = None
    user_data: str = ""
    """Base64; EC2 allows 16,384 bytes when decoded."""


class CreateLaunchTemplate(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    launch_template_data: LaunchTemplateData
    client_token: str = ""
    tag_specifications: tuple[TagSpecification, ...] = ()
    dry_run: bool = False


class LaunchTemplate(Aws, frozen=True, kw_only=True):
    launch_template_id: str
    launch_template_name: str
    create_time: datetime | None = None
    tags: tuple[Tag, ...] = ()


class LaunchTemplateAnswer(Aws, frozen=True, kw_only=True):
    launch_template: LaunchTemplate


class DescribeLaunchTemplates(PagedRequest, frozen=True, kw_only=True):
    launch_template_names: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class LaunchTemplatesPage(Page, frozen=True, kw_only=True):
    launch_templates: tuple[LaunchTemplate, ...] = ()


class DeleteLaunchTemplate(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    dry_run: bool = False
