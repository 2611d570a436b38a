"""What can be bought and for how much, as metrics. Source: spec/aws 11."""

from collections.abc import Iterable

from kubewright.api import labels
from kubewright.api.quantity import ONE
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.aws.measures import Measures

_OFFERING = "karpenter_cloudprovider_instance_type_offering"


class Gauges:
    """Series of types and offerings; those that are offered no more go."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures

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
        self._measures.replace(f"{_OFFERING}_available", {key: float(is_sold) for key, (is_sold, _) in sorted(offered.items())})
        self._measures.replace(f"{_OFFERING}_price_estimate", {key: price for key, (_, price) in sorted(offered.items())})
