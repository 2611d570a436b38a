"""Instance types and offerings as a provider describes them.

Source: spec/scheduling 0.7, 0.8.
"""

from collections.abc import Mapping

import msgspec

from kubewright.api.quantity import Resources
from kubewright.scheduling.requirement import Requirement


class Offering(msgspec.Struct, frozen=True):
    """One way to buy an instance type: a capacity type in a zone.

    `requirements` must hold zone and capacity type, and for reserved offerings the reservation id label.
    """

    requirements: Mapping[str, Requirement]
    price: float
    """USD per hour."""
    available: bool = True
    reservation_capacity: int = 0
    capacity_override: Resources | None = None
    overhead_override: Resources | None = None
    unavailable_because: str = ""
    """Why it is not available, for explanations: an exhausted pool until 12:03, a shifted zone, a drained subnet."""
    price_overlaid: bool = False
    """Whether the price is somebody's correction, not the cloud's own: the cloud must then be told in which order to buy."""

    @property
    def zone(self) -> str:
        return _single(self.requirements, "topology.kubernetes.io/zone")

    @property
    def capacity_type(self) -> str:
        return _single(self.requirements, "karpenter.sh/capacity-type")


class InstanceType(msgspec.Struct, frozen=True):
    """A machine that can be bought.

    `requirements` has an entry for every label that a node of this type would carry; `overhead` is what kubelet, system and
    eviction threshold take from `capacity` together.
    """

    name: str
    requirements: Mapping[str, Requirement]
    offerings: tuple[Offering, ...]
    capacity: Resources
    overhead: Resources = {}
    exotic: bool = False
    """Bought only for what nothing else suits: bare metal, accelerators. The provider says which, and launches so too."""
    attach_limits: Mapping[str, int] = {}
    """CSI driver → volumes that a node can have attached besides what it boots with; drivers it lacks are not limited."""
    capacity_overlaid: bool = False
    """Whether a NodeOverlay added to `capacity`."""

    def allocatable(self, offering: Offering | None = None) -> dict[str, int]:
        """What pods can use, in billionths; an offering's overrides win.

        Hugepages are taken from memory. Source: spec/scheduling 0.8.
        """
        capacity = {**self.capacity, **(offering.capacity_override or {})} if offering else dict(self.capacity)
        overhead = {**self.overhead, **(offering.overhead_override or {})} if offering else self.overhead
        left = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
        for name, amount in capacity.items():
            if name.startswith("hugepages-") and "memory" in left:
                left["memory"] = max(0, left["memory"] - amount)
        return left


def _single(requirements: Mapping[str, Requirement], key: str) -> str:
    found = requirements.get(key)
    return min(found.values, default="") if found else ""
