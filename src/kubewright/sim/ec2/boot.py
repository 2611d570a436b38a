"""What a machine does when it boots: reads its user data, sizes itself as its image would, and is ready to join."""

import base64
from collections.abc import Mapping

from kubewright.api import quantity
from kubewright.cloud.aws import api
from kubewright.sim import joiner
from kubewright.sim.ec2 import hardware, startup
from kubewright.sim.ec2.instances import Machine
from kubewright.sim.ec2.startup import Startup

EBS_LIMIT_SHARED = 28
"""Attachments, network interfaces included, that older types share."""
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


def machine(
    bought: Machine,
    types: Mapping[str, api.InstanceTypeInfo],
    region: str,
    branch: Mapping[str, int],
    memory_kept: float = 0.0,
) -> joiner.Machine:
    """The machine as it is about to register. Its sizes are `hardware`'s, not what the provider expected of it."""
    seen, info = bought.seen, types[bought.seen.instance_type]
    told = startup.read(base64.b64decode(bought.user_data).decode())
    whole, left = hardware.sizes(info, told, bought.disks, branch.get(info.instance_type, 0), memory_kept)
    if any(i.interface_type.startswith("efa") for i in seen.network_interfaces):
        whole[hardware.EFA] = left[hardware.EFA] = sum(1 for i in seen.network_interfaces if i.interface_type.startswith("efa"))
    return joiner.Machine(
        provider_id=f"aws:///{seen.placement.availability_zone}/{seen.instance_id}",
        node_name=seen.private_dns_name,
        instance_type=seen.instance_type,
        zone=seen.placement.availability_zone,
        region=region,
        address=seen.private_ip_address,
        arch=_ARCHITECTURES[seen.architecture],
        os="windows" if told.is_windows else "linux",
        capacity=_amounts(whole),
        allocatable=_amounts(left),
        labels=told.labels,
        taints=told.taints,
        volume_limit=_volumes(info),
    )


def told(user_data: str) -> Startup:
    """What the user data says; base64, as in the launch template."""
    return startup.read(base64.b64decode(user_data).decode())


def _volumes(info: api.InstanceTypeInfo) -> int:
    """EBS volumes besides the root disk. Source: the attachment limits that DescribeInstanceTypes tells."""
    most = info.ebs_info.maximum_ebs_attachments or EBS_LIMIT_SHARED
    return max(1, most - 1)


def _amounts(found: Mapping[str, int]) -> dict[str, str]:
    """Whole bytes, millicores and counts, as a kubelet writes them."""
    shown = {}
    for name, amount in sorted(found.items()):
        if amount <= 0:
            continue
        if name == "cpu":
            shown[name] = f"{amount}m" if amount % 1000 else str(amount // 1000)
        elif name == "memory":
            shown[name] = f"{amount // 1024}Ki"
        elif name == "ephemeral-storage":
            shown[name] = quantity.show(amount * quantity.ONE, binary=True)
        else:
            shown[name] = str(amount)
    return shown
