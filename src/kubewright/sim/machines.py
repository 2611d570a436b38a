"""What a machine turns out to be once it runs: the capacity that its kubelet finds, and what it keeps for itself.

Worked out from the raw instance type, apart from the provider's own estimate: a provider that promises more than the machine has
is found out here, as it would be on AWS.
"""

import re
from collections.abc import Mapping

import msgspec

from kubewright.api.core import Taint
from kubewright.cloud.aws.api import Ec2Instance, InstanceTypeInfo
from kubewright.sim.joiner import Machine

_GPU_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
_MIB = 1024


class Hardware(msgspec.Struct, frozen=True):
    """What the type does not say."""

    hidden_memory_percent: float = 5.0
    """Memory that firmware, hypervisor and kernel keep. The provider's estimate is 7.5; set more to have it fall short."""
    storage_gib: int = 20
    """The root volume."""
    max_pods: int | None = None
    """From the user data; None: as many as the network interfaces have addresses for."""


def machine_of(
    instance: Ec2Instance,
    info: InstanceTypeInfo,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    hardware: Hardware | None = None,
) -> Machine:
    """The running `instance` as a machine whose kubelet was told `labels` and `taints`."""
    hardware = hardware or Hardware()
    zone = instance.placement.availability_zone
    eni_pods = _addresses(info)
    pods = eni_pods if hardware.max_pods is None else hardware.max_pods
    memory_kib = int(info.memory_mib * _MIB * (1 - hardware.hidden_memory_percent / 100))
    storage_kib = hardware.storage_gib * _MIB * _MIB
    devices = _devices(info)
    capacity = {
        "cpu": str(info.vcpus),
        "memory": f"{memory_kib}Ki",
        "ephemeral-storage": f"{storage_kib}Ki",
        "pods": str(pods),
        **devices,
    }
    # Source: spec/aws 5.4; nodeadm reserves by the addresses that the type has, not by max-pods.
    kept_kib = (11 * eni_pods + 255 + 100) * _MIB
    allocatable = {
        "cpu": f"{info.vcpus * 1000 - _reserved_cpu_milli(info.vcpus)}m",
        "memory": f"{memory_kib - kept_kib}Ki",
        "ephemeral-storage": f"{storage_kib - _MIB * _MIB - -(-storage_kib // 10)}Ki",
        "pods": str(pods),
        **devices,
    }
    return Machine(
        provider_id=f"aws:///{zone}/{instance.instance_id}",
        node_name=instance.private_dns_name,
        instance_type=instance.instance_type,
        zone=zone,
        region=re.sub(r"[a-z]$", "", zone),
        address=instance.private_ip_address,
        arch="arm64" if instance.architecture == "arm64" else "amd64",
        capacity=capacity,
        allocatable=allocatable,
        labels=dict(labels),
        taints=taints,
        volume_limit=_volume_limit(info),
    )


def _addresses(info: InstanceTypeInfo) -> int:
    """Pods that the interfaces of the default network card have addresses for, and two on the host's network."""
    network = info.network_info
    cards = {card.network_card_index: card.maximum_network_interfaces for card in network.network_cards}
    interfaces = cards.get(network.default_network_card_index, network.maximum_network_interfaces)
    return interfaces * (network.ipv4_addresses_per_interface - 1) + 2


def _reserved_cpu_milli(cores: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest; each part cut to thousandths."""
    return 60 + (10 if cores > 1 else 0) + 5 * min(2, max(0, cores - 2)) + int(2.5 * max(0, cores - 4))


def _devices(info: InstanceTypeInfo) -> dict[str, str]:
    counts: dict[str, int] = {}
    for gpu in info.gpu_info.gpus if info.gpu_info else ():
        if name := _GPU_RESOURCES.get(gpu.manufacturer):
            counts[name] = counts.get(name, 0) + gpu.count
    if info.neuron_info is not None and info.neuron_info.neuron_devices:
        devices = info.neuron_info.neuron_devices
        counts["aws.amazon.com/neuron"] = sum(d.count for d in devices)
        counts["aws.amazon.com/neuroncore"] = devices[0].count * devices[0].core_info.count
    if efa := info.network_info.efa_info.maximum_efa_interfaces:
        counts["vpc.amazonaws.com/efa"] = efa
    return {name: str(count) for name, count in sorted(counts.items()) if count}


def _volume_limit(info: InstanceTypeInfo) -> int | None:
    """EBS volumes besides the root; where the limit is shared, the first network interface takes a place, too."""
    most = info.ebs_info.maximum_ebs_attachments
    if not most:
        return None
    return most - (2 if info.ebs_info.attachment_limit_type == "shared" else 1)
