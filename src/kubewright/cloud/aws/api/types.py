"""EC2 instance types, and which zone sells which."""

from msgspec import field

from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest


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
