"""How much of a machine there is, and how much of that kubelet, system and eviction threshold keep.

Source: spec/aws 5.3, 5.4. All amounts are billionths (`api.quantity`).
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

import msgspec

from kubewright.api import aws_labels, quantity
from kubewright.api.aws import EC2NodeClass, Kubelet
from kubewright.api.quantity import ONE
from kubewright.cloud.aws.api import InstanceTypeInfo
from kubewright.cloud.aws.families import FAMILIES, Family

MIB = 2**20 * ONE
GIB = 2**30 * ONE
GB = 10**9 * ONE
MILLI = 10**6
DEFAULT_DISK = 20 * GIB
DEFAULT_PODS = 110
ARM_FIRMWARE_MIB = 64
"""What arm64 machines never show of their memory."""
EVICTION_MEMORY = 100 * MIB
EVICTION_DISK_SHARE = Fraction(1, 10)


class Sizing(msgspec.Struct, frozen=True):
    """What of the world, besides the type and the NodeClass, decides a machine's sizes."""

    vm_memory_overhead: Fraction = Fraction(75, 1000)
    reserved_enis: int = 0
    branch_interfaces: Mapping[str, int] = {}


def capacity(info: InstanceTypeInfo, node_class: EC2NodeClass, sizing: Sizing) -> dict[str, int]:
    """Everything the node would report as capacity; kinds it has none of stand there with 0."""
    gpus = info.gpu_info.gpus if info.gpu_info else ()
    neuron = info.neuron_info.neuron_devices if info.neuron_info else ()
    made_by = {maker: sum(g.count for g in gpus if g.manufacturer.upper() == maker) for maker in ("NVIDIA", "AMD", "HABANA")}
    return {
        "cpu": info.vcpus * ONE,
        "memory": memory(info, sizing.vm_memory_overhead),
        "ephemeral-storage": ephemeral_storage(info, node_class),
        "pods": pods(info, node_class, sizing) * ONE,
        aws_labels.POD_ENI: sizing.branch_interfaces.get(info.instance_type, 0) * ONE,
        aws_labels.NVIDIA_GPU: made_by["NVIDIA"] * ONE,
        aws_labels.AMD_GPU: made_by["AMD"] * ONE,
        aws_labels.HABANA_GAUDI: made_by["HABANA"] * ONE,
        aws_labels.NEURON: sum(d.count for d in neuron) * ONE,
        aws_labels.NEURON_CORE: (neuron[0].count * neuron[0].core_info.count if neuron else 0) * ONE,
        aws_labels.EFA: _efa(info, node_class) * ONE,
        aws_labels.PRIVATE_IPV4: max(0, info.network_info.ipv4_addresses_per_interface - 1) * ONE
        if family_of(node_class).windows_build
        else 0,
    }


def memory(info: InstanceTypeInfo, overhead: Fraction) -> int:
    """What is left after the hypervisor's share, which is guessed until a node has told.

    Formula: mib = size - (64 if arm64); mib - ceil(mib * overhead).
    """
    mib = info.memory_mib - (ARM_FIRMWARE_MIB if info.processor_info.supported_architectures[:1] == ("arm64",) else 0)
    return (mib - ceil(mib * overhead)) * MIB


def ephemeral_storage(info: InstanceTypeInfo, node_class: EC2NodeClass) -> int:
    """The disk that pods' files go to: the local disks as RAID 0, the root volume, or the family's device."""
    spec, family = node_class.spec, family_of(node_class)
    if spec.instance_store_policy == "RAID0" and info.instance_storage_info and info.instance_storage_info.total_size_in_gb:
        return info.instance_storage_info.total_size_in_gb * GB
    mappings = spec.block_device_mappings or ()
    sized = [m for m in mappings if m.ebs is not None and m.ebs.volume_size]
    chosen = next((m for m in sized if m.root_volume), None)
    if chosen is None and family.ephemeral_device:
        chosen = next((m for m in sized if m.device_name == family.ephemeral_device), None)
    elif chosen is None and sized:
        chosen = sized[-1]
    if chosen is None and not mappings:
        chosen = next((m for m in family.block_devices if m.device_name == family.ephemeral_device), None)
    return quantity.parse(chosen.ebs.volume_size) if chosen and chosen.ebs and chosen.ebs.volume_size else DEFAULT_DISK


def pods(info: InstanceTypeInfo, node_class: EC2NodeClass, sizing: Sizing) -> int:
    """The maxPods that the kubelet is told."""
    kubelet, family = node_class.spec.kubelet or Kubelet(), family_of(node_class)
    if kubelet.max_pods is not None:
        count = kubelet.max_pods
    elif family.eni_limited_pods:
        count = eni_limited_pods(info, node_class, sizing.reserved_enis)
    else:
        count = DEFAULT_PODS
    if kubelet.pods_per_core and family.honours_pods_per_core:
        count = min(count, kubelet.pods_per_core * info.vcpus)
    return count


def eni_limited_pods(info: InstanceTypeInfo, node_class: EC2NodeClass, reserved_enis: int) -> int:
    """How many pods the VPC CNI can give addresses to.

    Formula: usable interfaces of the default card * (IPv4 addresses per interface - 1) + 2.
    """
    net = info.network_info
    card = next((c for c in net.network_cards if c.network_card_index == net.default_network_card_index), None)
    efa_only = sum(
        1 for i in node_class.spec.network_interfaces or () if i.network_card_index == 0 and i.interface_type == "efa-only"
    )
    most = card.maximum_network_interfaces if card else net.maximum_network_interfaces
    usable = max(0, most - reserved_enis - efa_only)
    return usable * (net.ipv4_addresses_per_interface - 1) + 2 if usable else 0


def overhead(info: InstanceTypeInfo, node_class: EC2NodeClass, sizing: Sizing) -> dict[str, int]:
    """kube-reserved, system-reserved and eviction threshold together."""
    kubelet = node_class.spec.kubelet or Kubelet()
    total: dict[str, int] = {}
    system = quantity.parse_map(kubelet.system_reserved or {})
    for part in (kube_reserved(info, node_class, sizing), system, _eviction(info, node_class, sizing, kubelet)):
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def kube_reserved(info: InstanceTypeInfo, node_class: EC2NodeClass, sizing: Sizing) -> dict[str, int]:
    """What the EKS images keep for kubelet and container runtime; what the NodeClass sets wins key by key.

    Formulas: memory = (11 * pods + 255) Mi; cpu = 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of
    the rest, each band cut to whole millicores; 1 Gi of disk.
    """
    if family_of(node_class).reserves_for_eni_pods:
        count = eni_limited_pods(info, node_class, 0)
    else:
        count = pods(info, node_class, sizing)
    milli = info.vcpus * 1000
    cpu, low = 0, 0
    for high, share in ((1000, 600), (2000, 100), (4000, 50), (milli, 25)):
        band = max(0, min(milli, high) - low)
        cpu += band * share // 10_000
        low = max(low, high)
    computed = {"cpu": cpu * MILLI, "memory": (11 * count + 255) * MIB, "ephemeral-storage": GIB}
    return {**computed, **quantity.parse_map((node_class.spec.kubelet or Kubelet()).kube_reserved or {})}


def _eviction(info: InstanceTypeInfo, node_class: EC2NodeClass, sizing: Sizing, kubelet: Kubelet) -> dict[str, int]:
    """Hard thresholds only; soft ones are the kubelet's business."""
    disk = ephemeral_storage(info, node_class)
    found = {"memory": EVICTION_MEMORY, "ephemeral-storage": _whole(disk * EVICTION_DISK_SHARE)}
    hard = kubelet.eviction_hard or {}
    for signal, name, whole in (
        ("memory.available", "memory", memory(info, sizing.vm_memory_overhead)),
        ("nodefs.available", "ephemeral-storage", disk),
    ):
        if signal in hard:
            found[name] = _threshold(hard[signal], whole)
    return found


def _threshold(text: str, whole: int) -> int:
    """A quantity, or a share of `whole`; 100 % switches the signal off."""
    if not text.endswith("%"):
        return quantity.parse(text)
    share = Fraction(text[:-1])
    return 0 if share == 100 else ceil(whole * share / 100 / ONE) * ONE


def _whole(amount: Fraction) -> int:
    return ceil(amount / ONE) * ONE


def _efa(info: InstanceTypeInfo, node_class: EC2NodeClass) -> int:
    if node_class.spec.network_interfaces:
        return sum(1 for i in node_class.spec.network_interfaces if i.interface_type == "efa-only")
    return info.network_info.efa_info.maximum_efa_interfaces


def family_of(node_class: EC2NodeClass) -> Family:
    return FAMILIES[node_class.ami_family]
