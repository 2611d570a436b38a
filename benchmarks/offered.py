"""What there is to buy, for both sides of a comparison: our catalogue as our provider shows it, the same for Karpenter's kwok."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from kubewright.api import aws_labels, crds, labels, quantity
from kubewright.api.karpenter import NodePool
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.settings import Settings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.ec2 import FakeEc2, Faults
from tests.plane import karpenter, kubewright

KWOK_OVERHEAD = {"cpu": quantity.parse("100m"), "memory": quantity.parse("10Mi")}
"""What Karpenter's kwok provider takes from every machine before pods get any; added, so that both sides can use the same."""
MOST_CPUS = quantity.parse("48")
BINARY = ("memory", "ephemeral-storage")


def instance_types() -> tuple[InstanceType, ...]:
    """Every type of the embedded catalogue in the fake EC2's region, sized and priced as for a plain AL2023 NodeClass."""
    return asyncio.run(_instance_types())


async def _instance_types() -> tuple[InstanceType, ...]:
    clock = Clock(datetime.now(UTC))
    store = Store(clock, crds=list(crds.CRDS.values()))
    store.create(kubewright.nodeclass("default"))
    store.create(kubewright.nodepool("default"))
    client = DirectClient(store)
    ec2 = FakeEc2(clock, faults=Faults(call_s=0), cluster=kubewright.CLUSTER)
    provider = AwsProvider(ec2, client, clock, Settings(cluster_name=kubewright.CLUSTER), ec2.settings)
    await provider.reconcile_node_class("default")
    found = await provider.instance_types(await client.get(NodePool, "default"))
    ec2.stop()
    return tuple(found)


def is_general(one: InstanceType) -> bool:
    """Whether it is of the current general-purpose families up to 48 cpus, which is what people let such an operator buy."""
    (arch,) = one.requirements[labels.ARCH].values
    if arch != "amd64" or one.requirements[aws_labels.INSTANCE_CATEGORY].values.isdisjoint(("c", "m", "r")):
        return False
    (generation,) = one.requirements[aws_labels.INSTANCE_GENERATION].values
    return int(generation) > 5 and one.capacity["cpu"] <= MOST_CPUS


def prices(types: tuple[InstanceType, ...]) -> Mapping[tuple[str, str, str], float]:
    """(type, zone, capacity type) → USD per hour."""
    return {(t.name, o.zone, o.capacity_type): o.price for t in types for o in t.offerings if o.available}


def for_karpenter(types: tuple[InstanceType, ...]) -> list[karpenter.InstanceType]:
    """The same machines for Karpenter's kwok provider: allocatable, offerings and prices are equal."""
    found = []
    for one in types:
        room = one.allocatable()
        resources = {
            name: quantity.show(amount + KWOK_OVERHEAD.get(name, 0), binary=name in BINARY)
            for name, amount in sorted(room.items())
            if amount > 0
        }
        offerings = [karpenter.Offering(o.capacity_type, o.zone, o.price) for o in one.offerings if o.available]
        if offerings:
            (arch,) = one.requirements[labels.ARCH].values
            found.append(karpenter.InstanceType(one.name, arch, resources, offerings))
    return found
