"""How large a machine turns out to be. Written apart from the provider's formulas, so that a promise it cannot keep shows.

Sources: what kubelets report on EKS nodes of the sizes named below; the EKS images' own scripts for what they reserve.
"""

from collections.abc import Mapping
from fractions import Fraction

from kubewright.api import quantity
from kubewright.cloud.aws.api import InstanceTypeInfo
from kubewright.sim.ec2.startup import Startup

EFA = "vpc.amazonaws.com/efa"
_MIB = 1 << 20
_GIB = 1 << 30
_POINTS = (
    (512, 473),
    (1024, 950),
    (2048, 1934),
    (4096, 3876),
    (8192, 7748),
    (16384, 15688),
    (32768, 31568),
    (65536, 63330),
    (131072, 126852),
    (262144, 253900),
    (393216, 380948),
    (786432, 762090),
    (1048576, 1015885),
    (2097152, 2031800),
    (25165824, 24383000),
)
"""Size of the type in MiB → memory that the node's kernel sees; in between in proportion."""
_ARM_FIRMWARE_MIB = 64
_CORES_MILLI = {1: 60, 2: 70, 3: 75, 4: 80}
"""Reserved millicores of small machines; every further core adds two and a half."""


def sizes(
    info: InstanceTypeInfo, told: Startup, disks: Mapping[str, int], branch: int, memory_kept: float = 0.0
) -> tuple[dict[str, int], dict[str, int]]:
    """(capacity, allocatable): millicores, bytes, counts."""
    pods = _pods(info, told)
    whole = {
        "cpu": info.vcpus * 1000,
        "memory": _memory(info, memory_kept),
        "ephemeral-storage": _disk(info, told, disks),
        "pods": pods,
        "vpc.amazonaws.com/pod-eni": branch,
        **_devices(info),
    }
    if told.is_windows:
        whole["vpc.amazonaws.com/PrivateIPv4Address"] = info.network_info.ipv4_addresses_per_interface - 1
    kept = {
        "cpu": _CORES_MILLI.get(info.vcpus, 80 + (info.vcpus - 4) * 5 // 2),
        "memory": (255 + 11 * _reserving_pods(info, told, pods)) * _MIB,
        "ephemeral-storage": _GIB,
    }
    kept.update(told.kube_reserved)
    for name, amount in told.system_reserved.items():
        kept[name] = kept.get(name, 0) + amount
    kept["memory"] += _threshold(told.eviction_memory, whole["memory"], 100 * _MIB)
    kept["ephemeral-storage"] += _threshold(told.eviction_disk, whole["ephemeral-storage"], -(-whole["ephemeral-storage"] // 10))
    return whole, {name: amount - kept.get(name, 0) for name, amount in whole.items()}


def _memory(info: InstanceTypeInfo, kept: float) -> int:
    size = info.memory_info.size_in_mib
    if kept:
        return int(size * (1 - kept)) * _MIB
    if info.processor_info.supported_architectures[:1] == ("arm64",):
        size -= _ARM_FIRMWARE_MIB
    low = (0, 0)
    for high in _POINTS:
        if size <= high[0]:
            share = Fraction(size - low[0], high[0] - low[0])
            return int(low[1] + share * (high[1] - low[1])) * _MIB
        low = high
    return size * low[1] // low[0] * _MIB


def _addresses(info: InstanceTypeInfo) -> int:
    """Pods that the VPC CNI has addresses for: one address of each interface is the interface's own; two pods need none."""
    net = info.network_info
    cards = {c.network_card_index: c.maximum_network_interfaces for c in net.network_cards}
    interfaces = cards.get(net.default_network_card_index, net.maximum_network_interfaces)
    return interfaces * net.ipv4_addresses_per_interface - interfaces + 2


def _pods(info: InstanceTypeInfo, told: Startup) -> int:
    most = told.max_pods if told.max_pods is not None else (110 if told.is_windows else _addresses(info))
    return min(most, told.pods_per_core * info.vcpus) if told.pods_per_core else most


def _reserving_pods(info: InstanceTypeInfo, told: Startup, pods: int) -> int:
    """Amazon Linux counts addresses, whatever it was told; Bottlerocket and Windows count the pods they may run."""
    return pods if told.is_windows or told.is_bottlerocket else _addresses(info)


def _disk(info: InstanceTypeInfo, told: Startup, disks: Mapping[str, int]) -> int:
    local = info.instance_storage_info
    if told.uses_local_disks and local is not None and local.total_size_in_gb:
        return local.total_size_in_gb * 10**9
    names = ("/dev/xvdb", "/dev/xvda") if told.is_bottlerocket else ("/dev/xvda", "/dev/sda1")
    return next((disks[n] for n in names if disks.get(n)), max(disks.values(), default=20)) * _GIB


def _devices(info: InstanceTypeInfo) -> dict[str, int]:
    """What device plugins would find."""
    found: dict[str, int] = {}
    makers = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "HABANA": "habana.ai/gaudi"}
    for gpu in info.gpu_info.gpus if info.gpu_info else ():
        name = makers.get(gpu.manufacturer.upper())
        if name:
            found[name] = found.get(name, 0) + gpu.count
    for device in info.neuron_info.neuron_devices if info.neuron_info else ():
        found["aws.amazon.com/neuron"] = found.get("aws.amazon.com/neuron", 0) + device.count
        found.setdefault("aws.amazon.com/neuroncore", device.count * device.core_info.count)
    return found


def _threshold(text: str, whole: int, default: int) -> int:
    if not text:
        return default
    if text.endswith("%"):
        share = Fraction(text[:-1])
        return 0 if share == 100 else -(-whole * share.numerator // (share.denominator * 100))
    return -(-quantity.parse(text) // quantity.ONE)
