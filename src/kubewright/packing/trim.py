"""What a claim for spot names: many types, so that there is one to be had, but none that would undo what the plan saves.

Spot is bought where price and depth of a pool are best together, so any pool that a claim leaves open may be the one. On-demand
is bought at the lowest price and needs no trimming. A claim that replaces spot by spot is none of a plan's and is never trimmed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.catalogue.types import InstanceType
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import Requirements, conflict
from kubewright.solver.problem import Plan, PlannedClaim, Problem

_WHILE = " until "
"""In what a provider says of an offering that is out for a while only; other reasons are no lack of capacity."""


class _Pools(NamedTuple):
    """What a claim could buy as spot, of one type."""

    name: str
    prices: tuple[float, ...]
    """By zone, of what is for sale."""
    is_out: bool
    """Whether a zone was lately found without capacity."""


def trimmed(plan: Plan, problem: Problem, share: float, least: int) -> Plan:
    """`plan` whose spot claims name no type that costs more than `share` above the planned price in any of their zones.

    Unless fewer than `least` pools (a type in a zone) would be left: then the cheapest types that have so many. Where one of the
    pools was lately out of capacity the whole list stays, and where minValues ask for many types.
    """
    pools = {p.node_pool.name: p for p in problem.pools}
    known: dict[int, _Shop] = {}
    claims: list[PlannedClaim] = []
    for claim in plan.claims:
        types = pools[claim.node_pool].instance_types
        if id(types) not in known:
            known[id(types)] = _Shop(types)
        claims.append(_of_claim(claim, known[id(types)], share, least))
    return replace(plan, claims=tuple(claims))


class _Shop:
    """What one list of types sells; claims of a plan are much alike, so answers are kept."""

    def __init__(self, types: Sequence[InstanceType]) -> None:
        self._types = {t.name: t for t in types}
        self._keys = sorted({key for t in types for o in t.offerings for key in o.requirements})
        """All that offerings can differ by: other requirements of a claim make no difference to what it could buy."""
        self._pools: dict[tuple[object, ...], dict[str, _Pools]] = {}
        self._kept: dict[tuple[object, ...], tuple[str, ...]] = {}

    def kept(self, claim: PlannedClaim, share: float, least: int) -> tuple[str, ...]:
        """Names of the types that the claim should go on naming; all of a Shop's claims are asked with the same two figures."""
        about = tuple(claim.requirements[key].identity for key in self._keys if key in claim.requirements)
        asked = (about, claim.instance_types, claim.usd_per_hour)
        found = self._kept.get(asked)
        if found is None:
            pools = self._pools.setdefault(about, {})
            for name in claim.instance_types:
                if name not in pools:
                    pools[name] = _pools_of(self._types[name], claim.requirements)
            found = self._kept[asked] = _kept(claim, [pools[name] for name in claim.instance_types], share, least)
        return found


def _of_claim(claim: PlannedClaim, shop: _Shop, share: float, least: int) -> PlannedClaim:
    if any(r.min_values is not None for r in claim.requirements.values()):
        return claim
    left = shop.kept(claim, share, least)
    if len(left) == len(claim.instance_types):
        return claim
    requirements = {**claim.requirements, names.INSTANCE_TYPE: Requirement(names.INSTANCE_TYPE, frozenset(left))}
    return replace(claim, instance_types=left, requirements=requirements)


def _kept(claim: PlannedClaim, found: Sequence[_Pools], share: float, least: int) -> tuple[str, ...]:
    sold = [p for p in found if p.prices]
    if not sold or any(p.is_out for p in found) or min(min(p.prices) for p in sold) > claim.usd_per_hour + 1e-12:
        # Nothing of it is spot, or it is not what the plan counts on, or capacity is short.
        return claim.instance_types
    most = claim.usd_per_hour * (1 + share) + 1e-12
    order = sorted(sold, key=lambda p: (max(p.prices), p.name))
    kept: set[str] = set()
    count = 0
    for one in order:
        if max(one.prices) > most and count >= least:
            break
        kept.add(one.name)
        count += len(one.prices)
    # The machine that was planned is never left out, in whatever zone it is dear.
    kept.add(claim.instance_types[0])
    return tuple(name for name in claim.instance_types if name in kept)


def _pools_of(one: InstanceType, wanted: Requirements) -> _Pools:
    spot = [o for o in one.offerings if o.capacity_type == names.SPOT and conflict(wanted, o.requirements) is None]
    return _Pools(
        one.name,
        tuple(o.price for o in spot if o.available),
        any(_WHILE in o.unavailable_because for o in spot if not o.available),
    )


def pools_named(claim: PlannedClaim, types: Sequence[InstanceType]) -> int:
    """How many spot pools the claim leaves open."""
    named = set(claim.instance_types)
    return sum(len(_pools_of(t, claim.requirements).prices) for t in types if t.name in named)
