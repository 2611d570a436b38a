"""What to ask CreateFleet for: pure choices over types and offerings. Source: spec/aws 7.2, 7.3."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api import aws_labels, labels, quantity
from kubewright.api.karpenter import NodeClaim
from kubewright.api.quantity import Resources
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.cloud.aws.reservations import CAPACITY_BLOCK
from kubewright.errors import InsufficientCapacity
from kubewright.scheduling import requirements, resources
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN, Requirement
from kubewright.settings import MinValuesPolicy

MOST_TYPES = 60
"""CreateFleet's request may not grow without end. Source: spec/aws 7.2."""

_NEGATIVE = (NOT_IN, DOES_NOT_EXIST)


class Buyable(msgspec.Struct, frozen=True):
    """A type with the offerings of it that the claim allows and that are available, cheapest first."""

    type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        return self.offerings[0].price


class Choice(msgspec.Struct, frozen=True):
    """What may be bought: all of one capacity type, cheapest type first, at most `MOST_TYPES`."""

    capacity_type: str
    types: tuple[Buyable, ...]
    reservation_type: str = ""
    """Of reserved capacity: all of one kind."""
    interruptible: bool = False
    tenancy: str = "default"
    partition: int = 0
    """Of a placement group; 0 leaves it to EC2."""


def choose(claim: NodeClaim, types: Sequence[InstanceType], min_values: MinValuesPolicy = MinValuesPolicy.STRICT) -> Choice:
    """Raises InsufficientCapacity: nothing the claim allows is available; says which step left nothing."""
    wanted = requirements.of_expressions(claim.spec.requirements, aws_labels.ALIASES)
    requests = quantity.parse_map(claim.spec.resources.requests)
    asks_for_many = any(r.min_values is not None for r in wanted.values())
    everything = buyable(wanted, requests, types)
    if not everything:
        raise InsufficientCapacity("all requested instance types were unavailable during launch")
    reserved = reserved_first(everything)
    found = _only(everything, lambda o: o.capacity_type != labels.RESERVED)
    if not asks_for_many:
        reserved, found = without_exotic(reserved), without_dear_spot(without_exotic(found))
    sold = {o.capacity_type for b in found for o in b.offerings}
    choices = [_reserved(reserved)] if reserved else []
    choices += [_cheapest(found, market) for market in (labels.SPOT, labels.ON_DEMAND) if market in sold]
    if not choices:
        raise InsufficientCapacity("all requested reserved capacity is taken")
    choices = [replace(c, tenancy=_tenancy(wanted), partition=_partition(wanted)) for c in choices]
    shorts = [too_few_values(wanted, choice.types) for choice in choices]
    if min_values is not MinValuesPolicy.STRICT:
        return choices[0]
    # The next market where the best one is too short of values, or the same claim would be planned and refused for ever.
    for choice, short in zip(choices, shorts, strict=True):
        if not short:
            return choice
    raise InsufficientCapacity(f"minValues cannot be kept by what is available: {shorts[0]}")


def _cheapest(found: Iterable[Buyable], capacity_type: str) -> Choice:
    kept = _only(found, lambda o: o.capacity_type == capacity_type)
    kept.sort(key=lambda b: (b.price, b.type.name))
    return Choice(capacity_type, tuple(kept[:MOST_TYPES]))


def _reserved(reserved: Sequence[Buyable]) -> Choice:
    first = reserved[0].offerings[0]
    choice = _cheapest(reserved, labels.RESERVED)
    return replace(choice, reservation_type=_reservation_type(first), interruptible=_is_interruptible(first))


def reserved_first(found: Sequence[Buyable]) -> list[Buyable]:
    """Reserved capacity that one request can ask for, with one reservation for each type and zone; empty if there is none.

    Of the kinds (default, capacity block, interruptible) the one with the cheapest offering, in that order where they cost the
    same; of capacity blocks a single one. Of several reservations the one with most room. Source: spec/aws 7.2.
    """
    offered = [
        (o.price, _is_interruptible(o), _reservation_type(o) != "default", b.type.name, o.zone, o)
        for b in found
        for o in b.offerings
        if o.capacity_type == labels.RESERVED
    ]
    if not offered:
        return []
    best = min(offered, key=lambda row: row[:5])
    is_block = _reservation_type(best[5]) == CAPACITY_BLOCK
    kept = []
    for b in found:
        if is_block and b.type.name != best[3]:
            continue
        by_zone: dict[str, Offering] = {}
        for o in b.offerings:
            if o.capacity_type != labels.RESERVED or (_is_interruptible(o), _reservation_type(o) != "default") != best[1:3]:
                continue
            before = by_zone.get(o.zone)
            if before is None or _rank(o) < _rank(before):
                by_zone[o.zone] = o
        chosen = sorted(by_zone.values(), key=_rank)[: 1 if is_block else None]
        if chosen:
            kept.append(Buyable(b.type, tuple(sorted(chosen, key=lambda o: (o.price, o.zone)))))
    return kept


def _rank(o: Offering) -> tuple[int, float, str, str]:
    return -o.reservation_capacity, o.price, o.zone, _value(o, aws_labels.CAPACITY_RESERVATION_ID)


def _reservation_type(o: Offering) -> str:
    return _value(o, aws_labels.CAPACITY_RESERVATION_TYPE) or "default"


def _is_interruptible(o: Offering) -> bool:
    return _value(o, aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE) == "true"


def _value(o: Offering, key: str) -> str:
    found = o.requirements.get(key)
    return min(found.values, default="") if found is not None and not found.complement else ""


def _tenancy(wanted: Mapping[str, Requirement]) -> str:
    asked = wanted.get(aws_labels.INSTANCE_TENANCY)
    return "default" if asked is None or asked.has("default") else "dedicated"


def _partition(wanted: Mapping[str, Requirement]) -> int:
    """The least partition that the claim names, 0 if it names none."""
    asked = wanted.get(aws_labels.PLACEMENT_GROUP_PARTITION)
    named = sorted(int(v) for v in asked.values if v.isdigit()) if asked is not None and not asked.complement else []
    return named[0] if named else 0


def buyable(wanted: Mapping[str, Requirement], requests: Resources, types: Sequence[InstanceType]) -> list[Buyable]:
    """What the claim allows, has room for, and can be had now.

    Cost: a few microseconds a type; it runs for every launch, so equal checks of offerings are made once.
    """
    found = []
    allowed: dict[int, bool] = {}
    for t in types:
        if not allows(wanted, t.requirements):
            continue
        offerings = []
        fits = None
        for o in t.offerings:
            if not o.available:
                continue
            place = id(o.requirements)  # shared by all offerings of a place, and alive as long as `types`
            if place not in allowed:
                allowed[place] = allows(wanted, o.requirements)
            if not allowed[place]:
                continue
            if o.capacity_override or o.overhead_override:
                has_room = resources.fits(requests, t.allocatable(o))
            else:
                fits = resources.fits(requests, t.allocatable()) if fits is None else fits
                has_room = fits
            if has_room:
                offerings.append(o)
        if offerings:
            found.append(Buyable(t, tuple(sorted(offerings, key=lambda o: (o.price, o.zone)))))
    return found


def allows(wanted: Mapping[str, Requirement], offered: Mapping[str, Requirement]) -> bool:
    """`requirements.conflict(wanted, offered) is None`, quick where the offered side lists few values and the wanted one many."""
    for key, want in wanted.items():
        has = offered.get(key)
        if has is None:
            continue
        if has.complement:
            if not requirements.agree(want, has):
                return False
        elif not has.values:
            if want.operator not in _NEGATIVE:
                return False
        elif not want.complement:
            if has.values.isdisjoint(want.values):
                return False
        elif not any(want.has(v) for v in has.values):
            return False
    return True


def without_exotic(found: list[Buyable]) -> list[Buyable]:
    """Metal machines and machines with accelerators only if nothing else is left."""
    return [b for b in found if not b.type.exotic] or found


def without_dear_spot(found: list[Buyable]) -> list[Buyable]:
    """No spot that costs more than the cheapest on-demand machine would, when both are allowed."""
    on_demand = [o.price for b in found for o in b.offerings if o.capacity_type == labels.ON_DEMAND]
    if not on_demand or not any(o.capacity_type == labels.SPOT for b in found for o in b.offerings):
        return found
    return _only(found, lambda o: o.capacity_type != labels.SPOT or o.price <= min(on_demand))


def _only(found: Iterable[Buyable], keep: Callable[[Offering], bool]) -> list[Buyable]:
    kept = (Buyable(b.type, tuple(o for o in b.offerings if keep(o))) for b in found)
    return [b for b in kept if b.offerings]


def too_few_values(wanted: Mapping[str, Requirement], kept: Sequence[Buyable]) -> str:
    """The first key whose minValues the types do not keep open, as text; "" if all are kept."""
    for key in sorted(wanted):
        least = wanted[key].min_values
        if least is None:
            continue
        values: set[str] = set()
        for b in kept:
            has = b.type.requirements.get(key)
            values |= {v for v in has.values if wanted[key].has(v)} if has is not None else set()
        if len(values) < least:
            return f"{key} needs {least} values, found {len(values)}"
    return ""
