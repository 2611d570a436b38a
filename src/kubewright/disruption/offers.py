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
from kubewright.scheduling.requirements import Requirements
from kubewright.solver.problem import PlannedClaim, Pool, SolverSettings

SPOT_FLEXIBILITY = 15
"""Cheaper types that one spot machine needs before it gives way to another: so that prices alone do not ratchet it down."""
_ROUNDING = 1e-12
ORDER = (names.RESERVED, names.SPOT, names.ON_DEMAND)


class Going:
    """What matters of nodes that go to what is bought for them."""

    def __init__(self, going: Sequence[Candidate]) -> None:
        self.first = going[0]
        self.count = len(going)
        self.places: dict[str, set[tuple[str, str]]] = {}
        """Capacity type → (instance type, zone)."""
        for one in going:
            self.places.setdefault(one.capacity_type, set()).add((one.instance_type, one.zone))
        self.all_spot = self.places.keys() == {names.SPOT}


class Goods(NamedTuple):
    """One type of one capacity type, with the zones it is sold in."""

    least_usd: float
    name: str
    most_usd: float
    zones: tuple[tuple[str, float], ...]


class Shop:
    """What pools sell in a snapshot. Claims that ask alike share the answer."""

    def __init__(self, pools: Sequence[Pool], settings: SolverSettings) -> None:
        self._settings = settings
        self._pools = {p.node_pool.name: p for p in pools}
        self._known: dict[tuple[object, ...], dict[str, list[Goods]]] = {}
        self._kinds: dict[str, dict[str, InstanceType]] = {}

    def narrowed(self, claim: PlannedClaim, most_usd: float, going: Going) -> PlannedClaim | Stay:
        """The claim with those types only that cost at most `most_usd` (per hour) wherever launched, or why none is left."""
        most_usd += _ROUNDING
        listed = frozenset(claim.instance_types)
        shelves = {kind: [g for g in goods if g.name in listed] for kind, goods in self._goods(claim).items()}
        sold = {kind: goods[0].least_usd for kind, goods in shelves.items() if goods}
        if not sold:
            return Stay(Because.NOT_CHEAPER, "Can't replace with a cheaper node: nothing that suits its pods is for sale")
        cheapest = min(sold, key=lambda kind: (sold[kind], kind))
        capacity_type = cheapest if cheapest != names.ON_DEMAND else next(c for c in ORDER if c in sold)
        spot_to_spot = capacity_type == names.SPOT and going.all_spot
        if spot_to_spot and not self._settings.feature_gates.spot_to_spot_consolidation:
            return SPOT_TO_SPOT
        goods = shelves[capacity_type]
        there: Collection[tuple[str, str]] = going.places.get(capacity_type, ())
        kept, zone = _cheap(goods, most_usd, there), ""
        if not kept:
            kept, zone = _cheap_somewhere(goods, most_usd, there)
        if not kept:
            return dearer(going.first, goods[0].least_usd)
        if spot_to_spot and going.count == 1:
            if len(kept) < SPOT_FLEXIBILITY:
                return inflexible(len(kept))
            kept = self._flexible(kept, claim)
        unmet = self._unmet(claim, kept)
        if unmet:
            text = f"Can't replace with a cheaper node: minValues of {unmet} would not be met"
            return Stay(Because.MIN_VALUES, text, {"key": unmet})
        chosen = tuple(name for _, name in kept)
        requirements = {
            **claim.requirements,
            names.INSTANCE_TYPE: _with_min(claim, names.INSTANCE_TYPE, frozenset(chosen)),
            names.CAPACITY_TYPE: _with_min(claim, names.CAPACITY_TYPE, frozenset((capacity_type,))),
        }
        if zone:
            requirements[names.ZONE] = _with_min(claim, names.ZONE, frozenset((zone,)))
        ordered = {key: requirements[key] for key in sorted(requirements)}
        return replace(claim, requirements=ordered, instance_types=chosen, usd_per_hour=kept[0][0])

    def _goods(self, claim: PlannedClaim) -> dict[str, list[Goods]]:
        """By capacity type, cheapest first: all that suits what the claim asks beside its own list of types."""
        asked = {key: one for key, one in claim.requirements.items() if key != names.INSTANCE_TYPE}
        identity = (claim.node_pool, *(asked[key].identity for key in sorted(asked)))
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = self._sold(self._pools[claim.node_pool], asked)
        return found

    def _sold(self, pool: Pool, asked: Requirements) -> dict[str, list[Goods]]:
        columns = table(pool.instance_types, names.WELL_KNOWN | self._settings.well_known_labels)
        prices: dict[tuple[str, str], dict[str, float]] = {}
        for index in columns.open_kinds(asked):
            kind = columns.kinds[index]
            zone, capacity_type = kind.requirements[names.ZONE].any(), kind.requirements[names.CAPACITY_TYPE].any()
            for row, usd in kind.prices.items():
                zones = prices.setdefault((capacity_type, columns.rows[row].type.name), {})
                zones[zone] = max(usd, zones.get(zone, usd))
        found: dict[str, list[Goods]] = {}
        for (capacity_type, name), zones in prices.items():
            goods = Goods(min(zones.values()), name, max(zones.values()), tuple(sorted(zones.items())))
            found.setdefault(capacity_type, []).append(goods)
        return {capacity_type: sorted(goods) for capacity_type, goods in found.items()}

    def _flexible(self, kept: list[tuple[float, str]], claim: PlannedClaim) -> list[tuple[float, str]]:
        """The cheapest 15, or as many as minValues need."""
        count = SPOT_FLEXIBILITY
        while count < len(kept) and self._unmet(claim, kept[:count]):
            count += 1
        return kept[:count]

    def _unmet(self, claim: PlannedClaim, kept: Sequence[tuple[float, str]]) -> str:
        """A key whose minValues these types do not offer, "" if there is none; relaxing them is not for consolidation."""
        wanted = {key: one for key, one in sorted(claim.requirements.items()) if one.min_values is not None}
        if not wanted:
            return ""
        pool = self._pools[claim.node_pool]
        known = self._kinds.setdefault(claim.node_pool, {t.name: t for t in pool.instance_types})
        for key, one in wanted.items():
            if key == names.INSTANCE_TYPE:
                values = {name for _, name in kept}
            else:
                own = (known[name].requirements.get(key) for _, name in kept)
                values = {v for r in own if r is not None for v in r.values if one.has(v)}
            if len(values) < (one.min_values or 0):
                return key
        return ""


def inflexible(count: int) -> Stay:
    text = (
        f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the current candidate to"
        f" consolidate, got {count}"
    )
    return Stay(Because.FLEXIBILITY, text, {"types": str(count), "needed": str(SPOT_FLEXIBILITY)})


def _cheap(goods: Sequence[Goods], most_usd: float, there: Collection[tuple[str, str]]) -> list[tuple[float, str]]:
    """(USD per hour of the cheapest offering, type) of the types that are cheap in every zone, and in none of them `there`."""
    return [
        (g.least_usd, g.name)
        for g in goods
        if g.most_usd < most_usd and not (there and any((g.name, zone) in there for zone, _ in g.zones))
    ]


def _cheap_somewhere(
    goods: Sequence[Goods], most_usd: float, there: Collection[tuple[str, str]]
) -> tuple[list[tuple[float, str]], str]:
    """The same in the one zone that has the cheapest of them, and which that is."""
    by_zone: dict[str, list[tuple[float, str]]] = {}
    for one in goods:
        for zone, usd in one.zones:
            if usd < most_usd and (one.name, zone) not in there:
                by_zone.setdefault(zone, []).append((usd, one.name))
    if not by_zone:
        return [], ""
    best = min(by_zone, key=lambda zone: (min(by_zone[zone]), zone))
    return sorted(by_zone[best]), best


def _with_min(claim: PlannedClaim, key: str, values: frozenset[str]) -> Requirement:
    before = claim.requirements.get(key)
    return Requirement(key, values, min_values=None if before is None else before.min_values)
