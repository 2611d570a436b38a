"""The page of AWS calls: every call that kubewright makes, why, and the fields it uses. A fake has to offer exactly this.

Structs carry AWS's own field names (PascalCase on the wire), so the boto3 adapter converts and decides nothing. Every call is one
request and one answer; `retry.pages` walks the calls that page. Every call raises `errors.AwsError`, and nothing of a library's.

Left to others: retries (`retry`), caching and meaning (one module per noun).
"""

from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import field


class Aws(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="pascal", omit_defaults=True):
    """Base of everything on this page: AWS's names, unknown fields dropped, defaults left out of requests."""


class Page(Aws, frozen=True, kw_only=True):
    """An answer that may go on: ask again with `next_token`."""

    next_token: str = ""


class PagedRequest(Aws, frozen=True, kw_only=True):
    next_token: str = ""
    max_results: int = 0


class Filter(Aws, frozen=True, kw_only=True):
    """Values are ORed, filters are ANDed; `*` is a wildcard inside values."""

    name: str
    values: tuple[str, ...]


class Tag(Aws, frozen=True, kw_only=True):
    key: str
    value: str = ""


def tags_of(tags: tuple[Tag, ...]) -> dict[str, str]:
    return {t.key: t.value for t in tags}


# --- instance types ------------------------------------------------------------------------------------------------


class VCpuInfo(Aws, frozen=True, kw_only=True):
    default_vcpus: int = field(name="DefaultVCpus")


class SizeInfo(Aws, frozen=True, kw_only=True):
    size_in_mib: int = field(default=0, name="SizeInMiB")


class ProcessorInfo(Aws, frozen=True, kw_only=True):
    supported_architectures: tuple[str, ...] = ()
    manufacturer: str = ""
    sustained_clock_speed_in_ghz: float = field(default=0.0, name="SustainedClockSpeedInGhz")
    supported_features: tuple[str, ...] = ()


class NetworkCard(Aws, frozen=True, kw_only=True):
    network_card_index: int = 0
    maximum_network_interfaces: int = 0
    baseline_bandwidth_in_gbps: float = 0.0


class EfaInfo(Aws, frozen=True, kw_only=True):
    maximum_efa_interfaces: int = 0


class NetworkInfo(Aws, frozen=True, kw_only=True):
    network_performance: str = ""
    maximum_network_interfaces: int = 0
    ipv4_addresses_per_interface: int = field(default=0, name="Ipv4AddressesPerInterface")
    default_network_card_index: int = 0
    network_cards: tuple[NetworkCard, ...] = ()
    ena_support: str = ""
    efa_supported: bool = False
    efa_info: EfaInfo = EfaInfo()
    encryption_in_transit_supported: bool = False


class EbsOptimizedInfo(Aws, frozen=True, kw_only=True):
    maximum_bandwidth_in_mbps: int = 0


class EbsInfo(Aws, frozen=True, kw_only=True):
    ebs_optimized_support: str = ""
    ebs_optimized_info: EbsOptimizedInfo = EbsOptimizedInfo()
    maximum_ebs_attachments: int = 0
    attachment_limit_type: str = ""


class StorageInfo(Aws, frozen=True, kw_only=True):
    total_size_in_gb: int = field(default=0, name="TotalSizeInGB")
    nvme_support: str = ""


class Device(Aws, frozen=True, kw_only=True):
    """A GPU or an inference accelerator kind."""

    name: str = ""
    manufacturer: str = ""
    count: int = 0
    memory_info: SizeInfo = SizeInfo()


class GpuInfo(Aws, frozen=True, kw_only=True):
    gpus: tuple[Device, ...] = ()


class InferenceInfo(Aws, frozen=True, kw_only=True):
    accelerators: tuple[Device, ...] = ()


class NeuronCores(Aws, frozen=True, kw_only=True):
    count: int = 0


class NeuronDevice(Aws, frozen=True, kw_only=True):
    name: str = ""
    count: int = 0
    core_info: NeuronCores = NeuronCores()


class NeuronInfo(Aws, frozen=True, kw_only=True):
    neuron_devices: tuple[NeuronDevice, ...] = ()


class PlacementGroupInfo(Aws, frozen=True, kw_only=True):
    supported_strategies: tuple[str, ...] = ()


class InstanceTypeInfo(Aws, frozen=True, kw_only=True):
    """One type as DescribeInstanceTypes tells it, and as the embedded catalogue holds it."""

    instance_type: str
    v_cpu_info: VCpuInfo
    memory_info: SizeInfo
    processor_info: ProcessorInfo = ProcessorInfo()
    network_info: NetworkInfo = NetworkInfo()
    ebs_info: EbsInfo = EbsInfo()
    instance_storage_info: StorageInfo | None = None
    gpu_info: GpuInfo | None = None
    inference_accelerator_info: InferenceInfo | None = None
    neuron_info: NeuronInfo | None = None
    placement_group_info: PlacementGroupInfo = PlacementGroupInfo()
    supported_usage_classes: tuple[str, ...] = ()
    hypervisor: str = ""
    """ "nitro" or "xen"; "" for bare metal."""
    bare_metal: bool = False
    burstable_performance_supported: bool = False
    current_generation: bool = False
    nitro_enclaves_support: str = ""

    @property
    def vcpus(self) -> int:
        return self.v_cpu_info.default_vcpus

    @property
    def memory_mib(self) -> int:
        return self.memory_info.size_in_mib


class DescribeInstanceTypes(PagedRequest, frozen=True, kw_only=True):
    instance_types: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class InstanceTypesPage(Page, frozen=True, kw_only=True):
    instance_types: tuple[InstanceTypeInfo, ...] = ()


class TypeOffering(Aws, frozen=True, kw_only=True):
    instance_type: str
    location: str


class DescribeInstanceTypeOfferings(PagedRequest, frozen=True, kw_only=True):
    location_type: str = "region"
    filters: tuple[Filter, ...] = ()


class TypeOfferingsPage(Page, frozen=True, kw_only=True):
    instance_type_offerings: tuple[TypeOffering, ...] = ()


# --- network, images -----------------------------------------------------------------------------------------------


class Subnet(Aws, frozen=True, kw_only=True):
    subnet_id: str
    availability_zone: str
    availability_zone_id: str = ""
    available_ip_address_count: int = 0
    vpc_id: str = ""
    tags: tuple[Tag, ...] = ()


class DescribeSubnets(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class SubnetsPage(Page, frozen=True, kw_only=True):
    subnets: tuple[Subnet, ...] = ()


class SecurityGroup(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""
    vpc_id: str = ""
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


# --- launch templates ----------------------------------------------------------------------------------------------


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


class NetworkInterface(Aws, frozen=True, kw_only=True):
    device_index: int | None = None
    network_card_index: int | None = None
    interface_type: str = ""
    associate_public_ip_address: bool | None = None
    groups: tuple[str, ...] = ()
    ipv4_prefix_count: int = field(default=0, name="Ipv4PrefixCount")


class InstanceProfile(Aws, frozen=True, kw_only=True):
    name: str


class Monitoring(Aws, frozen=True, kw_only=True):
    enabled: bool | None = None


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
    user_data: str = ""
    """Base64; EC2 allows 16,384 bytes when decoded."""


class CreateLaunchTemplate(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    launch_template_data: LaunchTemplateData
    client_token: str = ""
    tag_specifications: tuple[TagSpecification, ...] = ()


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


# --- fleets and instances ------------------------------------------------------------------------------------------


class TemplateSpecification(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    version: str = "$Latest"


class Override(Aws, frozen=True, kw_only=True):
    """One thing the fleet may buy: a type in a subnet."""

    instance_type: str
    subnet_id: str
    availability_zone: str = ""
    image_id: str = ""
    priority: float | None = None


class TemplateConfig(Aws, frozen=True, kw_only=True):
    launch_template_specification: TemplateSpecification
    overrides: tuple[Override, ...] = ()


class SpotOptions(Aws, frozen=True, kw_only=True):
    allocation_strategy: str


class OnDemandOptions(Aws, frozen=True, kw_only=True):
    allocation_strategy: str


class TargetCapacity(Aws, frozen=True, kw_only=True):
    total_target_capacity: int
    default_target_capacity_type: str


class CreateFleet(Aws, frozen=True, kw_only=True):
    type: str
    launch_template_configs: tuple[TemplateConfig, ...]
    target_capacity_specification: TargetCapacity
    spot_options: SpotOptions | None = None
    on_demand_options: OnDemandOptions | None = None
    tag_specifications: tuple[TagSpecification, ...] = ()
    client_token: str = ""
    context: str = ""


class FleetTemplateAndOverrides(Aws, frozen=True, kw_only=True):
    overrides: Override | None = None


class FleetError(Aws, frozen=True, kw_only=True):
    error_code: str
    error_message: str = ""
    lifecycle: str = ""
    launch_template_and_overrides: FleetTemplateAndOverrides = FleetTemplateAndOverrides()


class FleetInstance(Aws, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]
    instance_type: str = ""
    lifecycle: str = ""
    launch_template_and_overrides: FleetTemplateAndOverrides = FleetTemplateAndOverrides()


class FleetAnswer(Aws, frozen=True, kw_only=True):
    fleet_id: str = ""
    instances: tuple[FleetInstance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class InstanceState(Aws, frozen=True, kw_only=True):
    name: str


class Placement(Aws, frozen=True, kw_only=True):
    availability_zone: str = ""
    tenancy: str = "default"


class GroupIdentifier(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""


class Ec2Instance(Aws, frozen=True, kw_only=True):
    instance_id: str
    instance_type: str
    image_id: str = ""
    state: InstanceState
    launch_time: datetime | None = None
    placement: Placement = Placement()
    subnet_id: str = ""
    private_dns_name: str = ""
    private_ip_address: str = ""
    architecture: str = ""
    instance_lifecycle: str = ""
    """ "spot", or "" for on-demand."""
    spot_instance_request_id: str = ""
    security_groups: tuple[GroupIdentifier, ...] = ()
    tags: tuple[Tag, ...] = ()


class DescribeInstances(PagedRequest, frozen=True, kw_only=True):
    """Ids and `max_results` exclude each other, as in EC2."""

    instance_ids: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class Reservation(Aws, frozen=True, kw_only=True):
    instances: tuple[Ec2Instance, ...] = ()


class InstancesPage(Page, frozen=True, kw_only=True):
    reservations: tuple[Reservation, ...] = ()

    @property
    def instances(self) -> tuple[Ec2Instance, ...]:
        return tuple(i for r in self.reservations for i in r.instances)


class TerminateInstances(Aws, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]


class StateChange(Aws, frozen=True, kw_only=True):
    instance_id: str
    current_state: InstanceState
    previous_state: InstanceState


class TerminateAnswer(Aws, frozen=True, kw_only=True):
    terminating_instances: tuple[StateChange, ...] = ()


class CreateTags(Aws, frozen=True, kw_only=True):
    resources: tuple[str, ...]
    tags: tuple[Tag, ...]


class Done(Aws, frozen=True, kw_only=True):
    """An answer that says only that it worked."""


# --- prices --------------------------------------------------------------------------------------------------------


class DescribeSpotPriceHistory(PagedRequest, frozen=True, kw_only=True):
    start_time: datetime
    product_descriptions: tuple[str, ...] = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
    instance_types: tuple[str, ...] = ()


class SpotPrice(Aws, frozen=True, kw_only=True):
    instance_type: str
    availability_zone: str
    spot_price: str
    """USD per hour, as text."""
    timestamp: datetime | None = None


class SpotPricesPage(Page, frozen=True, kw_only=True):
    spot_price_history: tuple[SpotPrice, ...] = ()


class ProductFilter(Aws, frozen=True, kw_only=True):
    field: str
    value: str
    type: str = "TERM_MATCH"


class GetProducts(PagedRequest, frozen=True, kw_only=True, omit_defaults=False):
    filters: tuple[ProductFilter, ...]
    service_code: str = "AmazonEC2"


class ProductsPage(Page, frozen=True, kw_only=True):
    price_list: tuple[str, ...] = ()
    """Each a JSON document of its own; `prices.read_product` reads it."""


# --- cluster, queue, identity --------------------------------------------------------------------------------------


class CertificateAuthority(Aws, frozen=True, kw_only=True, rename="camel"):
    data: str = ""


class KubernetesNetworkConfig(Aws, frozen=True, kw_only=True, rename="camel"):
    service_ipv4_cidr: str = field(default="", name="serviceIpv4Cidr")
    service_ipv6_cidr: str = field(default="", name="serviceIpv6Cidr")


class EksCluster(Aws, frozen=True, kw_only=True, rename="camel"):
    name: str
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
    visibility_timeout: int = 0
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


# --- the calls -----------------------------------------------------------------------------------------------------


class ComputeApi(Protocol):
    """EC2."""

    async def describe_instance_types(self, request: DescribeInstanceTypes) -> InstanceTypesPage:
        """Shapes of what can be bought; every 12 h and for `catalogue refresh`."""
        ...

    async def describe_instance_type_offerings(self, request: DescribeInstanceTypeOfferings) -> TypeOfferingsPage:
        """Which zone sells which type."""
        ...

    async def describe_subnets(self, request: DescribeSubnets) -> SubnetsPage:
        """Where nodes may stand, and how many addresses are left there."""
        ...

    async def describe_security_groups(self, request: DescribeSecurityGroups) -> SecurityGroupsPage:
        """What nodes' network interfaces are put in."""
        ...

    async def describe_images(self, request: DescribeImages) -> ImagesPage:
        """Architecture, age and deprecation of the AMIs that a NodeClass selects."""
        ...

    async def create_launch_template(self, request: CreateLaunchTemplate) -> LaunchTemplateAnswer:
        """CreateFleet launches from templates only; it holds user data, security groups, disks and profile."""
        ...

    async def describe_launch_templates(self, request: DescribeLaunchTemplates) -> LaunchTemplatesPage:
        """Find templates of an earlier run, by name before creating and by tag for clean-up."""
        ...

    async def delete_launch_template(self, request: DeleteLaunchTemplate) -> Done:
        """An account holds 5,000 templates at most; ours go soon after their last use and with their NodeClass."""
        ...

    async def create_fleet(self, request: CreateFleet) -> FleetAnswer:
        """Buys the machine: an instant fleet picks among types and subnets by EC2's own knowledge of its pools."""
        ...

    async def describe_instances(self, request: DescribeInstances) -> InstancesPage:
        """What we own and in which state; also how a launch is found again after a crash."""
        ...

    async def terminate_instances(self, request: TerminateInstances) -> TerminateAnswer:
        """Ends machines; one unknown id fails the whole call."""
        ...

    async def create_tags(self, request: CreateTags) -> Done:
        """Puts the node's name on its machine once it is known."""
        ...

    async def describe_spot_price_history(self, request: DescribeSpotPriceHistory) -> SpotPricesPage:
        """Spot prices per type and zone now."""
        ...


class ParameterApi(Protocol):
    """Systems Manager."""

    async def get_parameter(self, request: GetParameter) -> ParameterAnswer:
        """AWS publishes the ids of its EKS images as parameters."""
        ...


class PriceApi(Protocol):
    """The price list."""

    async def get_products(self, request: GetProducts) -> ProductsPage:
        """On-demand list prices; for `catalogue refresh` and the 12 h update."""
        ...


class ClusterApi(Protocol):
    """EKS."""

    async def describe_cluster(self, request: DescribeCluster) -> ClusterAnswer:
        """Endpoint, CA, version and service CIDR, which nodes need to join."""
        ...


class QueueApi(Protocol):
    """SQS."""

    async def get_queue_url(self, request: GetQueueUrl) -> QueueUrlAnswer:
        """The interruption queue is configured by name."""
        ...

    async def receive_message(self, request: ReceiveMessage) -> MessagesAnswer:
        """Interruption notices, by long poll."""
        ...

    async def delete_message(self, request: DeleteMessage) -> Done:
        """A handled notice must not come again."""
        ...


class IdentityApi(Protocol):
    """IAM instance profiles, for NodeClasses that name a role instead of a profile."""

    async def get_instance_profile(self, request: GetInstanceProfile) -> InstanceProfileAnswer:
        """Whether ours is there and which role it holds."""
        ...

    async def create_instance_profile(self, request: CreateInstanceProfile) -> InstanceProfileAnswer:
        """EC2 takes a profile, users name a role."""
        ...

    async def add_role_to_instance_profile(self, request: ProfileRole) -> Done:
        """A profile holds one role."""
        ...

    async def remove_role_from_instance_profile(self, request: ProfileRole) -> Done:
        """A profile with a role cannot be deleted."""
        ...

    async def delete_instance_profile(self, request: DeleteInstanceProfile) -> Done:
        """Goes with its NodeClass."""
        ...


class Ec2Api(ComputeApi, ParameterApi, PriceApi, ClusterApi, QueueApi, IdentityApi, Protocol):
    """The whole page."""

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
