"""What can be bought and for how much, as metrics. Source: spec/aws 11."""

from collections.abc import Iterable

from kubewright.api import labels
from kubewright.api.quantity import ONE
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws.measures import Measures

_OFFERING = "karpenter_cloudprovider_instance_type_offering"
_NAMES = ("instance_type", "capacity_type", "zone")


class Gauges:
    """Series of types and offerings; those that are offered no more go."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._shown: set[tuple[str, str, str]] = set()

    def tell(self, types: Iterable[InstanceType]) -> None:
        """`types` of all NodeClasses; what one of them can buy is available."""
        offered: dict[tuple[str, str, str], tuple[bool, float]] = {}
        for t in types:
            cores, memory = t.capacity["cpu"] / ONE, t.capacity["memory"] / ONE
            self._measures.set("karpenter_cloudprovider_instance_type_cpu_cores", cores, instance_type=t.name)
            self._measures.set("karpenter_cloudprovider_instance_type_memory_bytes", memory, instance_type=t.name)
            for o in t.offerings:
                key = (t.name, o.capacity_type, o.zone)
                was, price = offered.get(key, (False, o.price))
                offered[key] = (was or o.available, min(price, o.price))
        reserved = {z for _, c, z in offered if c == labels.RESERVED}
        if reserved:
            # Where some type has reserved capacity, the others show that they have none.
            for name, capacity_type, zone in sorted(offered):
                if zone in reserved and capacity_type != labels.RESERVED:
                    offered.setdefault((name, labels.RESERVED, zone), (False, 0.0))
        for key in sorted(self._shown - set(offered)):
            for name in ("available", "price_estimate"):
                self._measures.remove(f"{_OFFERING}_{name}", **dict(zip(_NAMES, key, strict=True)))
        for key, (available, price) in sorted(offered.items()):
            named = dict(zip(_NAMES, key, strict=True))
            self._measures.set(f"{_OFFERING}_available", float(available), **named)
            self._measures.set(f"{_OFFERING}_price_estimate", price, **named)
        self._shown = set(offered)
