"""How Karpenter 1.14 consolidates, as a model to compare with: step by step as docs/spec/disruption.md tells it (1.5 to 1.7, 3).

Only what the trace has is modelled: one capacity type at a time, no static pools, no Balanced policy. Placing is done by our
first fit, which differs from the reference's scheduler only as docs/differences.md lists; how long the reference would
have computed is told by `seconds`, from figures measured with the reference itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.disruption import budgets, cost
from kubewright.disruption.candidates import Candidate, candidates
from kubewright.disruption.reasons import Class, Reason
from kubewright.lifecycle import claims, state
from kubewright.solver.problem import Plan, PlannedClaim, Problem, Snapshot, StateNode

MOST_AT_ONCE = 100
MULTI_TIMEOUT_S, SINGLE_TIMEOUT_S = 60.0, 180.0
SPOT_FLEXIBILITY = 15
ORDER = ("reserved", "spot", "on-demand")

Solve = Callable[[Problem], Plan]
Ask = Callable[[Snapshot], Problem]


class Cost(NamedTuple):
    """Seconds that one simulation takes the reference: measured, see docs/benchmarks/trace.md."""

    base: float = 0.0
    per_node: float = 0.0
    per_pod: float = 0.0
    per_pod_squared: float = 0.0

    def of(self, nodes: int, moving: int) -> float:
        return self.base + self.per_node * nodes + self.per_pod * moving + self.per_pod_squared * moving * moving


class Move(NamedTuple):
    """What was found: nodes that go, and what comes in their place."""

    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedClaim, ...]
    destinations: Mapping[str, tuple[str, ...]] = {}
    """Nodes that are there → pods that are to go to them."""


class Answer(NamedTuple):
    move: Move | None
    seconds: float
    """That the reference would have computed."""
    constrained: bool = False
    """A budget kept nodes back, so that nothing found does not mean that there is nothing."""


class Model:
    """The two consolidation methods over one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        ask: Ask,
        solve: Solve,
        seconds: Cost,
        queued: frozenset[str] = frozenset(),
        *,
        spot_to_spot: bool = False,
    ) -> None:
        """`queued` are providerIDs of nodes that commands have in hand: marked, and no candidates."""
        marked = tuple(replace(n, marked_for_deletion=True) if state.provider_id(n) in queued else n for n in snapshot.nodes)
        self._snapshot = snapshot = replace(snapshot, nodes=marked)
        self._ask = ask
        self._solve = solve
        self._cost = seconds
        self._spot_to_spot = spot_to_spot
        self._types = {p.node_pool.name: {t.name: t for t in p.instance_types} for p in snapshot.pools}
        found = [c for c in candidates(snapshot, Class.GRACEFUL).found if self.may_consolidate(c)]
        self.candidates = tuple(sorted(found, key=lambda c: (-ratio(c), c.name)))
        used = budgets.usage(snapshot.nodes)
        pools = (p.node_pool for p in snapshot.pools)
        self.left = dict(budgets.remaining(pools, used, Reason.UNDERUTILIZED, snapshot.now).left)

    def may_consolidate(self, one: Candidate) -> bool:
        """3.6: what a consolidation method looks at; empty nodes belong to another."""
        rules = one.pool.spec.disruption
        return (
            rules.consolidation_policy == "WhenEmptyOrUnderutilized"
            and rules.consolidate_after not in (None, "Never")
            and not one.is_empty
            and self._type_of(one) is not None
            and claims.is_set(one.claim, claims.CONSOLIDATABLE)
        )

    def multi(self) -> Answer:
        """3.9: a binary search over prefixes of one order."""
        room = dict(self.left)
        admitted: list[Candidate] = []
        for one in self.candidates:
            if room.get(one.pool.name, 0) > 0:
                room[one.pool.name] -= 1
                admitted.append(one)
        constrained = len(admitted) < len(self.candidates)
        if len(admitted) < 2:
            return Answer(None, 0.0, constrained)
        low, high, spent, best = 1, min(MOST_AT_ONCE, len(admitted) - 1), 0.0, None
        while low <= high:
            middle = (low + high) // 2
            asked = tuple(admitted[: middle + 1])
            spent += self._seconds(asked)
            if spent > MULTI_TIMEOUT_S:
                return Answer(best, MULTI_TIMEOUT_S, constrained)
            move = self.consolidate(asked)
            if move is not None and move.replacements:
                move = self._of_another_type(move)
            if move is None:
                high = middle - 1
            else:
                best, low = move, middle + 1
        return Answer(best, spent, constrained)

    def single(self) -> Answer:
        """3.8: one node after another, pools taking turns."""
        spent, constrained = 0.0, False
        for one in interleaved(self.candidates):
            if spent > SINGLE_TIMEOUT_S:
                return Answer(None, SINGLE_TIMEOUT_S, constrained=True)
            if self.left.get(one.pool.name, 0) <= 0:
                constrained = True
                continue
            spent += self._seconds((one,))
            move = self.consolidate((one,))
            if move is not None:
                return Answer(move, spent, constrained)
        return Answer(None, spent, constrained)

    def is_still_valid(self, move: Move) -> bool:
        """3.10, after the wait and on a fresh snapshot: all may still go, budgets allow it, and the same comes out."""
        names = {c.name for c in move.candidates}
        now = tuple(c for c in self.candidates if c.name in names)
        if len(now) < len(names):
            return False
        room = dict(self.left)
        for one in now:
            room[one.pool.name] = room.get(one.pool.name, 0) - 1
            if room[one.pool.name] < 0:
                return False
        plan = self._simulate(now)
        if plan is None or len(plan.claims) != len(move.replacements):
            return False
        return not plan.claims or set(move.replacements[0].instance_types) <= set(plan.claims[0].instance_types)

    def consolidate(self, asked: tuple[Candidate, ...]) -> Move | None:
        """3.6: what would happen without them, if it is cheaper."""
        plan = self._simulate(asked)
        if plan is None or len(plan.claims) > 1:
            return None
        if not plan.claims:
            return Move(asked, (), plan.existing)
        (claim,) = plan.claims
        price = sum(c.usd_per_hour for c in asked)
        capacity = claim.requirements.get(labels.CAPACITY_TYPE)
        admits_spot = capacity is None or capacity.has("spot")
        if admits_spot and all(c.capacity_type == "spot" for c in asked):
            return self._spot(asked, claim, price, plan.existing)
        kept = self._cheaper(claim, price)
        return Move(asked, (replace(claim, instance_types=kept),), plan.existing) if kept else None

    def _spot(
        self, asked: tuple[Candidate, ...], claim: PlannedClaim, price: float, existing: Mapping[str, tuple[str, ...]]
    ) -> Move | None:
        """3.7."""
        if not self._spot_to_spot:
            return None
        kept = self._cheaper(claim, price)
        if len(asked) == 1:
            if len(kept) < SPOT_FLEXIBILITY:
                return None
            kept = kept[:SPOT_FLEXIBILITY]
        return Move(asked, (replace(claim, instance_types=kept),), existing) if kept else None

    def _cheaper(self, claim: PlannedClaim, price: float) -> tuple[str, ...]:
        """Types whose dearest way to be launched is below `price`."""
        known = self._types[claim.node_pool]
        return tuple(name for name in claim.instance_types if worst_launch_price(known[name], claim) < price)

    def _of_another_type(self, move: Move) -> Move | None:
        """3.9: several nodes never become one of a type that is there already, or a dearer one."""
        (claim,) = move.replacements
        there: dict[str, float] = {}
        for one in move.candidates:
            kind = self._type_of(one)
            assert kind is not None
            there[kind.name] = min(there.get(kind.name, float("inf")), one.usd_per_hour)
        limit = min((there[name] for name in claim.instance_types if name in there), default=float("inf"))
        kept = self._cheaper(claim, limit)
        return Move(move.candidates, (replace(claim, instance_types=kept),), move.destinations) if kept else None

    def _simulate(self, asked: Sequence[Candidate]) -> Plan | None:
        """1.7. None: pods that run now would be left without a place."""
        names = {c.name for c in asked}
        moving = {p.key for c in asked for p in c.reschedulable}
        under = {state.name(n) for n in self._snapshot.nodes if _is_under(n)}
        nodes = tuple(
            replace(n, marked_for_deletion=True) if state.name(n) in names else n
            for n in self._snapshot.nodes
            if state.name(n) in names or state.name(n) not in under
        )
        plan = self._solve(self._ask(replace(self._snapshot, nodes=nodes)))
        waiting = {p.key for p in self._snapshot.pods}
        if any(key not in waiting for key in plan.unplaced):
            return None
        unready = {state.name(n) for n in nodes if not state.is_initialized(n)}
        if any(key in moving for name in unready for key in plan.existing.get(name, ())):
            return None
        return plan

    def _seconds(self, asked: Sequence[Candidate]) -> float:
        return self._cost.of(len(self._snapshot.nodes), sum(len(c.reschedulable) for c in asked))

    def _type_of(self, one: Candidate) -> InstanceType | None:
        return self._types.get(one.pool.name, {}).get(one.instance_type)


def ratio(one: Candidate) -> float:
    """1.5: $/h for each unit of disturbance."""
    return one.usd_per_hour / cost.of_pods(one.reschedulable)


def interleaved(found: Iterable[Candidate]) -> list[Candidate]:
    """The first of every pool, then the second of every pool, and so on."""
    by_pool: dict[str, list[Candidate]] = {}
    for one in found:
        by_pool.setdefault(one.pool.name, []).append(one)
    most = max((len(mine) for mine in by_pool.values()), default=0)
    return [mine[turn] for turn in range(most) for _, mine in sorted(by_pool.items()) if turn < len(mine)]


def worst_launch_price(kind: InstanceType, claim: PlannedClaim) -> float:
    """The dearest offering of the capacity type that would be launched."""
    fitting = [o for o in kind.offerings if o.available and _suits(o, claim)]
    for capacity_type in ORDER:
        mine = [o.price for o in fitting if o.capacity_type == capacity_type]
        if mine:
            return max(mine)
    return float("inf")


def _suits(offering: Offering, claim: PlannedClaim) -> bool:
    wanted: Mapping[str, str] = {labels.ZONE: offering.zone, labels.CAPACITY_TYPE: offering.capacity_type}
    return all(claim.requirements[key].has(value) for key, value in wanted.items() if key in claim.requirements)


def _is_under(known: StateNode) -> bool:
    """Whether its pods came or went so lately that consolidateAfter keeps the reference from sending more there."""
    return (
        known.claim is not None
        and state.is_initialized(known)
        and not known.marked_for_deletion
        and not claims.is_set(known.claim, claims.CONSOLIDATABLE)
    )
