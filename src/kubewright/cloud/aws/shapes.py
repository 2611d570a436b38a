"""The labels that a node of an instance type would carry. Source: spec/aws 5.2."""

import re
from collections.abc import Iterable, Mapping

from kubewright.api import aws_labels, labels
from kubewright.cloud.aws.api import InstanceTypeInfo
from kubewright.scheduling.requirement import Requirement

ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_NAME = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")
_OPTIONAL = (
    labels.WINDOWS_BUILD,
    aws_labels.CAPACITY_RESERVATION_ID,
    aws_labels.CAPACITY_RESERVATION_TYPE,
    aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
    aws_labels.INSTANCE_LOCAL_NVME,
    aws_labels.INSTANCE_EBS_BANDWIDTH,
    aws_labels.INSTANCE_NETWORK_BANDWIDTH,
    aws_labels.INSTANCE_GPU_NAME,
    aws_labels.INSTANCE_GPU_MANUFACTURER,
    aws_labels.INSTANCE_GPU_COUNT,
    aws_labels.INSTANCE_GPU_MEMORY,
    aws_labels.INSTANCE_ACCELERATOR_NAME,
    aws_labels.INSTANCE_ACCELERATOR_MANUFACTURER,
    aws_labels.INSTANCE_ACCELERATOR_COUNT,
    aws_labels.INSTANCE_CATEGORY,
    aws_labels.INSTANCE_GENERATION,
)
"""A type without one of these answers DoesNotExist, which is what lets it match images for plain machines."""


def architecture(info: InstanceTypeInfo) -> str:
    """The Kubernetes name of the first architecture that can be a node; "" if there is none."""
    return next((ARCHITECTURES[a] for a in info.processor_info.supported_architectures if a in ARCHITECTURES), "")


def capacity_types(info: InstanceTypeInfo) -> tuple[str, ...]:
    return tuple(c for c in (labels.ON_DEMAND, labels.SPOT) if c in info.supported_usage_classes)


def type_labels(info: InstanceTypeInfo, region: str, network_mbps: Mapping[str, int], windows_build: str = "") -> dict[str, str]:
    """Every label with its one value, without zones and capacity types; `windows_build` "" for Linux."""
    name = info.instance_type
    family, _, size = name.partition(".")
    processor = info.processor_info
    found = {
        labels.INSTANCE_TYPE: name,
        labels.ARCH: architecture(info),
        labels.OS: "windows" if windows_build else "linux",
        labels.REGION: region,
        aws_labels.INSTANCE_CPU: str(info.vcpus),
        aws_labels.INSTANCE_CPU_MANUFACTURER: kebab(processor.manufacturer),
        aws_labels.INSTANCE_CPU_CLOCK_MHZ: str(round(processor.sustained_clock_speed_in_ghz * 1000)),
        aws_labels.INSTANCE_MEMORY: str(info.memory_mib),
        aws_labels.INSTANCE_HYPERVISOR: info.hypervisor,
        aws_labels.INSTANCE_ENCRYPTION: str(info.network_info.encryption_in_transit_supported).lower(),
        aws_labels.INSTANCE_CAPABILITY_FLEX: str("-flex" in family).lower(),
        aws_labels.INSTANCE_FAMILY: family,
        aws_labels.INSTANCE_SIZE: size,
    }
    if windows_build:
        found[labels.WINDOWS_BUILD] = windows_build
    parts = _NAME.match(name)
    if parts is not None:
        found[aws_labels.INSTANCE_CATEGORY], found[aws_labels.INSTANCE_GENERATION] = parts[1], parts[3]
    disks = info.instance_storage_info
    if disks is not None and disks.nvme_support not in ("", "unsupported"):
        found[aws_labels.INSTANCE_LOCAL_NVME] = str(disks.total_size_in_gb)
    if info.ebs_info.ebs_optimized_support == "default":
        found[aws_labels.INSTANCE_EBS_BANDWIDTH] = str(info.ebs_info.ebs_optimized_info.maximum_bandwidth_in_mbps)
    mbps = bandwidth(info, network_mbps)
    if mbps:
        found[aws_labels.INSTANCE_NETWORK_BANDWIDTH] = str(mbps)
    return found | _gpu(info) | _accelerator(info)


def bandwidth(info: InstanceTypeInfo, exceptions: Mapping[str, int]) -> int:
    """Mbps, 0 if AWS only says "High" or "Moderate". Source: spec/aws C.4."""
    if info.instance_type in exceptions:
        return exceptions[info.instance_type]
    net = info.network_info
    if not any(c.isdigit() for c in net.network_performance):
        return 0
    return round(sum(c.baseline_bandwidth_in_gbps for c in net.network_cards) * 1000)


def requirements(
    found: Mapping[str, str], zones: Iterable[str], zone_ids: Iterable[str], capacity_types: Iterable[str]
) -> dict[str, Requirement]:
    """The type's labels, with the zones and capacity types it comes in."""
    result = {key: Requirement(key, frozenset((value,))) for key, value in found.items()}
    for key, values in (
        (labels.ZONE, zones),
        (aws_labels.ZONE_ID, zone_ids),
        (labels.CAPACITY_TYPE, capacity_types),
        (aws_labels.INSTANCE_TENANCY, ("default", "dedicated")),
    ):
        result[key] = Requirement(key, frozenset(v for v in values if v))
    for key in _OPTIONAL:
        result.setdefault(key, Requirement(key))
    return result


def kebab(text: str) -> str:
    """As Karpenter writes names into labels: "RTX PRO 4500" is rtx-pro-4500."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _gpu(info: InstanceTypeInfo) -> dict[str, str]:
    """Only machines with one kind of GPU get these."""
    gpus = info.gpu_info.gpus if info.gpu_info else ()
    if len(gpus) != 1:
        return {}
    return {
        aws_labels.INSTANCE_GPU_NAME: kebab(gpus[0].name),
        aws_labels.INSTANCE_GPU_MANUFACTURER: kebab(gpus[0].manufacturer),
        aws_labels.INSTANCE_GPU_COUNT: str(gpus[0].count),
        aws_labels.INSTANCE_GPU_MEMORY: str(gpus[0].memory_info.size_in_mib),
    }


def _accelerator(info: InstanceTypeInfo) -> dict[str, str]:
    """AWS's own devices first; an inference accelerator of another maker if it is the only kind."""
    neuron = info.neuron_info.neuron_devices if info.neuron_info else ()
    if neuron:
        name, maker, count = neuron[0].name, "aws", neuron[0].count
    else:
        other = info.inference_accelerator_info.accelerators if info.inference_accelerator_info else ()
        if len(other) != 1:
            return {}
        name, maker, count = other[0].name, other[0].manufacturer, other[0].count
    return {
        aws_labels.INSTANCE_ACCELERATOR_NAME: kebab(name),
        aws_labels.INSTANCE_ACCELERATOR_MANUFACTURER: kebab(maker),
        aws_labels.INSTANCE_ACCELERATOR_COUNT: str(count),
    }
