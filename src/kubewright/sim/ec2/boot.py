"""What a machine does when it boots: reads its user data, sizes itself, and is ready to join."""

import base64
import tomllib
from collections.abc import Mapping
from fractions import Fraction

import yaml

from kubewright.api import quantity
from kubewright.api.aws import EC2NodeClass, EC2NodeClassSpec
from kubewright.api.core import Taint
from kubewright.api.quantity import ONE
from kubewright.cloud.aws import api, capacity, instances
from kubewright.cloud.aws.capacity import Sizing
from kubewright.cloud.aws.shapes import ARCHITECTURES
from kubewright.cloud.aws.userdata import al2023, mime
from kubewright.sim import joiner
from kubewright.sim.ec2.machines import Machine

EBS_LIMIT_SHARED = 28
"""Attachments, network interfaces included, that older types share."""


def kubelet_arguments(user_data: str) -> tuple[dict[str, str], tuple[Taint, ...]]:
    """(labels, taints) that the kubelet registers its node with; `user_data` is base64, as in the launch template."""
    found = _settings(user_data)
    return found[0], found[1]


def max_pods(user_data: str) -> int | None:
    """What the kubelet was told, None if nothing."""
    return _settings(user_data)[2]


def _settings(user_data: str) -> tuple[dict[str, str], tuple[Taint, ...], int | None]:
    text = base64.b64decode(user_data).decode()
    if mime.is_mime(text):
        return _nodeadm(text)
    try:
        settings = tomllib.loads(text).get("settings", {}).get("kubernetes", {})
    except tomllib.TOMLDecodeError:
        settings = {}
    taints = tuple(
        Taint(key=key, value=one.rpartition(":")[0], effect=one.rpartition(":")[2])
        for key, values in settings.get("node-taints", {}).items()
        for one in values
    )
    return dict(settings.get("node-labels", {})), taints, settings.get("max-pods")


def _nodeadm(text: str) -> tuple[dict[str, str], tuple[Taint, ...], int | None]:
    """Of several documents, which nodeadm merges in order, the last one has our flags and taints."""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    pods: int | None = None
    for part in mime.read(text):
        if part.content_type != al2023.NODE_CONFIG:
            continue
        kubelet = (yaml.safe_load(part.body) or {}).get("spec", {}).get("kubelet", {})
        for flag in kubelet.get("flags", ()):
            if flag.startswith("--node-labels="):
                pairs = flag.partition("=")[2].strip('"').split(",")
                labels |= dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        config = kubelet.get("config", {})
        if "registerWithTaints" in config:
            taints = tuple(
                Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"]) for t in config["registerWithTaints"]
            )
        pods = config.get("maxPods", pods)
    return labels, taints, pods


def machine(bought: Machine, types: Mapping[str, api.InstanceTypeInfo], region: str, branch: Mapping[str, int]) -> joiner.Machine:
    """The machine as it is about to register: sized by the production formulas, told what its user data says."""
    seen, info = bought.seen, types[bought.seen.instance_type]
    sizing = Sizing(Fraction(75, 1000), 0, branch)
    plain = EC2NodeClass(spec=EC2NodeClassSpec(ami_family="AL2023"))
    whole = capacity.capacity(info, plain, sizing)
    told = max_pods(bought.user_data)
    if told is not None:
        whole["pods"] = told * ONE
    kept = capacity.overhead(info, plain, sizing)
    labels, taints = kubelet_arguments(bought.user_data)
    left = {name: amount - kept.get(name, 0) for name, amount in whole.items()}
    return joiner.Machine(
        provider_id=instances.provider_id(seen.placement.availability_zone, seen.instance_id),
        node_name=seen.private_dns_name,
        instance_type=seen.instance_type,
        zone=seen.placement.availability_zone,
        region=region,
        address=seen.private_ip_address,
        arch=ARCHITECTURES[seen.architecture],
        capacity=_amounts(whole),
        allocatable=_amounts(left),
        labels=labels,
        taints=taints,
        volume_limit=_volumes(info),
    )


def _volumes(info: api.InstanceTypeInfo) -> int:
    """EBS volumes besides the root disk. Source: the attachment limits that DescribeInstanceTypes tells."""
    most = info.ebs_info.maximum_ebs_attachments or EBS_LIMIT_SHARED
    return max(1, most - 1)


def _amounts(found: Mapping[str, int]) -> dict[str, str]:
    return {
        name: quantity.show(amount, binary=name in ("memory", "ephemeral-storage"))
        for name, amount in sorted(found.items())
        if amount
    }
