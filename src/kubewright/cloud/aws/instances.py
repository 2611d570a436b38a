"""Machines as EC2 reports them, in NodeClaim terms. Source: spec/aws 7.7, 7.8."""

import re
from collections.abc import Mapping

from kubewright.api import aws_labels, labels, quantity
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws import api, tags
from kubewright.cloud.provider import Instance
from kubewright.errors import CloudError
from kubewright.scheduling.requirement import Requirement

LIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
GOING = frozenset({"shutting-down", "terminated"})

_PROVIDER_ID = re.compile(r"aws:///(?P<zone>[^/]*)/(?P<id>i-[0-9a-zA-Z]+)")
_NOT_ON_CLAIMS = frozenset(
    {
        aws_labels.CAPACITY_RESERVATION_ID,
        aws_labels.CAPACITY_RESERVATION_TYPE,
        aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
        aws_labels.PLACEMENT_GROUP_PARTITION,
    }
)


def provider_id(zone: str, instance_id: str) -> str:
    return f"aws:///{zone}/{instance_id}"


def instance_id(of_provider: str) -> str:
    """Raises CloudError: not an id of this provider."""
    found = _PROVIDER_ID.fullmatch(of_provider)
    if found is None:
        raise CloudError(f"provider id {of_provider!r} does not match aws:///<zone>/<instance id>")
    return found["id"]


def capacity_type(instance: api.Ec2Instance) -> str:
    if instance.spot_instance_request_id or instance.instance_lifecycle == "spot":
        return labels.SPOT
    chosen = instance.capacity_reservation_specification
    is_reserved = (
        instance.capacity_reservation_id
        and chosen is not None
        and chosen.capacity_reservation_preference == "capacity-reservations-only"
    )
    return labels.RESERVED if is_reserved else labels.ON_DEMAND


def owned_filters(cluster: str) -> tuple[api.Filter, ...]:
    """Only machines with all three of our tags are ever ours."""
    return (
        api.Filter(name="tag-key", values=(tags.NODE_POOL,)),
        api.Filter(name="tag-key", values=(tags.NODE_CLASS,)),
        api.Filter(name=f"tag:{tags.CLUSTER}", values=(cluster,)),
        api.Filter(name="instance-state-name", values=LIVE),
    )


def describe(instance: api.Ec2Instance, shape: InstanceType | None, zone_id: str = "", *, wants_efa: bool = False) -> Instance:
    """`shape` is the instance's type if it is known; without it there is no capacity to show."""
    found = api.tags_of(instance.tags)
    zone, kind = instance.placement.availability_zone, capacity_type(instance)
    named = labels_of(shape.requirements) if shape else {labels.INSTANCE_TYPE: instance.instance_type}
    named |= {labels.ZONE: zone, labels.CAPACITY_TYPE: kind, aws_labels.INSTANCE_TENANCY: instance.placement.tenancy}
    if zone_id:
        named[aws_labels.ZONE_ID] = zone_id
    if found.get(tags.NODE_POOL):
        named[labels.NODEPOOL] = found[tags.NODE_POOL]
    if kind == labels.RESERVED:
        named[aws_labels.CAPACITY_RESERVATION_ID] = instance.capacity_reservation_id
    if instance.placement.group_id:
        named[aws_labels.PLACEMENT_GROUP_ID] = instance.placement.group_id
    if instance.placement.partition_number:
        named[aws_labels.PLACEMENT_GROUP_PARTITION] = str(instance.placement.partition_number)
    has_efa = wants_efa or any(i.interface_type.startswith("efa") for i in instance.network_interfaces)
    return Instance(
        provider_id=provider_id(zone, instance.instance_id),
        labels=dict(sorted(named.items())),
        capacity=amounts(shape.capacity, efa=has_efa) if shape else {},
        allocatable=amounts(shape.allocatable(), efa=has_efa) if shape else {},
        image_id=instance.image_id,
        node_claim=found.get(tags.NODE_CLAIM, ""),
        terminating=instance.state.name in GOING,
    )


def labels_of(requirements: Mapping[str, Requirement]) -> dict[str, str]:
    """Every label with exactly one possible value."""
    return {
        key: next(iter(r.values))
        for key, r in requirements.items()
        if not r.complement and len(r.values) == 1 and key not in _NOT_ON_CLAIMS
    }


def amounts(found: Mapping[str, int], *, efa: bool = False) -> dict[str, str]:
    """As NodeClaim status shows them: without zeros; EFA only where the machine really has it."""
    return {
        name: quantity.show(amount, binary=name in ("memory", "ephemeral-storage"))
        for name, amount in sorted(found.items())
        if amount and (efa or name != aws_labels.EFA)
    }
