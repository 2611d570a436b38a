"""Which of a planned machine's types may be bought in place of others: only what is cheaper wherever it is launched.

Source: spec/disruption 3.6 to 3.9. Differs on purpose: one dear zone narrows the zones instead of ruling the type out; and
nothing is replaced by the same type in the same zone and of the same capacity type.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.catalogue.columns import table
from kubewright.catalogue.types import InstanceType
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.search import SPOT_TO_SPOT, dearer
from kubewright.disruption.stays import Because, Stay
from kubewright.scheduling.requirement import Requirement
from kubewright.solver.problem import PlannedClaim, Pool, SolverSettings

SPOT_FLEXIBILITY = 15
"""Cheaper types that one spot machine needs before it gives way to another: so that prices alone do not ratchet it down."""
_ROUNDING = 1e-12
ORDER = (names.RESERVED, names.SPOT, names.ON_DEMAND)


def narrowed(
    claim: PlannedClaim, pool: Pool, most_usd: float, going: Sequence[Candidate], settings: SolverSettings
) -> PlannedClaim | Stay:
    """The claim with those types only that cost at most `most_usd` (per hour) wherever launched, or why none is left."""
    offers, kinds = _offers(claim, pool, settings)
    most_usd += _ROUNDING
    best = min(((o.price, o.capacity_type) for some in offers.values() for o in some), default=None)
    if best is None:
        return Stay(Because.NOT_CHEAPER, "Can't replace with a cheaper node: nothing that suits its pods is for sale")
    sold = {o.capacity_type for some in offers.values() for o in some}
    capacity_type = best[1] if best[1] != names.ON_DEMAND else next(c for c in ORDER if c in sold)
    all_spot = all(one.capacity_type == names.SPOT for one in going)
    spot_to_spot = all_spot and capacity_type == names.SPOT
    if spot_to_spot and not settings.feature_gates.spot_to_spot_consolidation:
        return SPOT_TO_SPOT
    offers = {name: [o for o in some if o.capacity_type == capacity_type] for name, some in offers.items()}
    zones: frozenset[str] | None = None
    there = {(c.instance_type, c.zone, c.capacity_type) for c in going}
    kept = _cheaper(offers, most_usd, there, zones)
    if not kept:
        cheap = {o.zone for some in offers.values() for o in some if o.price < most_usd}
        for zone in sorted(cheap, key=lambda z: (min(o.price for some in offers.values() for o in some if o.zone == z), z)):
            kept = _cheaper(offers, most_usd, there, frozenset((zone,)))
            if kept:
                zones = frozenset((zone,))
                break
    if not kept:
        return dearer(going[0], min((o.price for some in offers.values() for o in some), default=None))
    kept.sort()
    if spot_to_spot and len(going) == 1:
        if len(kept) < SPOT_FLEXIBILITY:
            text = (
                f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the current candidate to"
                f" consolidate, got {len(kept)}"
            )
            return Stay(Because.FLEXIBILITY, text, {"types": str(len(kept)), "needed": str(SPOT_FLEXIBILITY)})
        kept = _flexible(kept, claim, kinds)
    unmet = _unmet(claim, [kinds[name] for _, name in kept])
    if unmet:
        return Stay(
            Because.MIN_VALUES, f"Can't replace with a cheaper node: minValues of {unmet} would not be met", {"key": unmet}
        )
    chosen = tuple(name for _, name in kept)
    requirements = {
        **claim.requirements,
        names.INSTANCE_TYPE: _with_min(claim, names.INSTANCE_TYPE, frozenset(chosen)),
        names.CAPACITY_TYPE: _with_min(claim, names.CAPACITY_TYPE, frozenset((capacity_type,))),
    }
    if zones is not None:
        requirements[names.ZONE] = _with_min(claim, names.ZONE, zones)
    ordered = {key: requirements[key] for key in sorted(requirements)}
    return replace(claim, requirements=ordered, instance_types=chosen, usd_per_hour=kept[0][0])


Place = tuple[str, str, str]
"""Instance type, zone, capacity type."""


class Offer(NamedTuple):
    price: float
    zone: str
    capacity_type: str


def _offers(claim: PlannedClaim, pool: Pool, settings: SolverSettings) -> tuple[dict[str, list[Offer]], dict[str, InstanceType]]:
    """What is for sale of each of the claim's types, and the types."""
    columns = table(pool.instance_types, names.WELL_KNOWN | settings.well_known_labels)
    listed = frozenset(claim.instance_types)
    offers: dict[str, list[Offer]] = {}
    kinds: dict[str, InstanceType] = {}
    # The claim's own list of types has been applied; whether an offering suits is asked of zone, capacity type and reservation.
    asked = {key: one for key, one in claim.requirements.items() if key != names.INSTANCE_TYPE}
    sold = [columns.kinds[index] for index in columns.open_kinds(asked)]
    places = [(k, k.requirements[names.ZONE].any(), k.requirements[names.CAPACITY_TYPE].any()) for k in sold]
    for at, row in enumerate(columns.rows):
        name = row.type.name
        if name in listed:
            kinds[name] = row.type
            mine = offers.setdefault(name, [])
            mine += [Offer(k.prices[at], zone, kind) for k, zone, kind in places if at in k.prices]
    return offers, kinds


def _cheaper(
    offers: dict[str, list[Offer]], most_usd: float, there: Collection[Place], zones: frozenset[str] | None
) -> list[tuple[float, str]]:
    """(USD per hour of the cheapest offering, type) of the types all of whose offerings in `zones` are cheap, and not `there`."""
    found = []
    for name, some in offers.items():
        mine = [o for o in some if zones is None or o.zone in zones]
        if mine and all(o.price < most_usd and (name, o.zone, o.capacity_type) not in there for o in mine):
            found.append((min(o.price for o in mine), name))
    return found


def _flexible(kept: list[tuple[float, str]], claim: PlannedClaim, kinds: dict[str, InstanceType]) -> list[tuple[float, str]]:
    """The cheapest 15, or as many as minValues need."""
    count = SPOT_FLEXIBILITY
    while count < len(kept) and _unmet(claim, [kinds[name] for _, name in kept[:count]]):
        count += 1
    return kept[:count]


def _unmet(claim: PlannedClaim, kinds: Sequence[InstanceType]) -> str:
    """A key whose minValues these types do not offer; relaxing them is not for consolidation."""
    for key, wanted in sorted(claim.requirements.items()):
        if wanted.min_values is None:
            continue
        values = {v for t in kinds if (own := t.requirements.get(key)) is not None for v in own.values if wanted.has(v)}
        if key == names.INSTANCE_TYPE:
            values = {t.name for t in kinds}
        if len(values) < wanted.min_values:
            return key
    return ""


def _with_min(claim: PlannedClaim, key: str, values: frozenset[str]) -> Requirement:
    before = claim.requirements.get(key)
    return Requirement(key, values, min_values=None if before is None else before.min_values)
