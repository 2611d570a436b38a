"""Improving beside what is scarce and cheap: the machines that first fit begins on commitments and reservations stay as they
are, and the rest is packed anew.

What is paid for is used up first, so that is where the pods go that fit it; the improver, and whatever proves an optimum, look at
what is left at list prices. The bound of the whole is that of list prices, lowered by what commitments can save at most.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api import quantity
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus
from kubewright.api.meta import ObjectMeta
from kubewright.api.quantity import Resources
from kubewright.packing.bound import bound
from kubewright.packing.improve import cost
from kubewright.packing.wishes import Wishes
from kubewright.scheduling.requirements import expressions
from kubewright.settings import Settings
from kubewright.solver.committed import COMMITMENT
from kubewright.solver.ground import Ground
from kubewright.solver.problem import Plan, PlannedClaim, Problem, StateNode
from kubewright.solver.solve import solve

Planned = Callable[[Problem, Plan, Settings, Ground], Plan]
Weighed = Callable[[Plan, float, Wishes], Plan]


def planned_beside(
    problem: Problem,
    first: Plan,
    settings: Settings,
    wishes: Wishes,
    *,
    planned: Planned,
    weighed: Weighed,
    steps: int,
    ground: Ground,
) -> Plan:
    """The best of `first` and of what `planned` makes of the pods beside its scarce machines, with a bound that holds."""
    found = replace(first, first_fit_usd_per_hour=cost(first, wishes))
    kept = [claim for claim in first.claims if is_scarce(claim)]
    if _is_plain(problem):
        inner = _without(problem, kept)
        below = Ground(inner)
        rest = planned(inner, solve(inner, ground=below), settings, below)
        other = _joined(kept, rest)
        if other.unplaced.keys() <= first.unplaced.keys() and cost(other, wishes) < cost(first, wishes):
            found = replace(other, first_fit_usd_per_hour=cost(first, wishes))
    least = bound(problem, found, steps, wishes.node_usd, ground)
    return weighed(replace(found, proved_by=""), least, wishes)


def is_scarce(claim: PlannedClaim) -> bool:
    """Whether the claim is for a machine of a reservation or a commitment."""
    sold = claim.requirements.get(names.CAPACITY_TYPE)
    return COMMITMENT in claim.annotations or (sold is not None and sold.values == {names.RESERVED})


def _is_plain(problem: Problem) -> bool:
    """Whether no pod minds where others are: then machines can be planned apart."""
    return not problem.settings.default_constraints and not any(
        pod.spec.topology_spread_constraints
        or (pod.spec.affinity is not None and (pod.spec.affinity.pod_affinity or pod.spec.affinity.pod_anti_affinity))
        for pod in problem.pods
    )


def _without(problem: Problem, kept: Sequence[PlannedClaim]) -> Problem:
    """What is left to plan: the scarce machines are there, full, and count for limits and as machines of their reservations."""
    spoken_for = {key for claim in kept for key in claim.pods}
    kinds = {p.node_pool.name: {t.name: t for t in p.instance_types} for p in problem.pools}
    there = [_full(claim, kinds[claim.node_pool][claim.instance_types[0]].capacity) for claim in kept]
    return replace(
        problem,
        pods=tuple(p for p in problem.pods if p.key not in spoken_for),
        nodes=(*problem.nodes, *there),
        settings=replace(problem.settings, commitments=()),
    )


def _full(claim: PlannedClaim, capacity: Resources) -> StateNode:
    carried = {**claim.labels, names.NODEPOOL: claim.node_pool}
    amounts: dict[str, str | int] = {name: quantity.show(amount) for name, amount in sorted(capacity.items())}
    wanted = tuple(written for key in sorted(claim.requirements) for written in expressions(claim.requirements[key]))
    made = NodeClaim(
        metadata=ObjectMeta(name=f"scarce {claim.name}", labels=carried),
        spec=NodeClaimSpec(requirements=wanted),
        status=NodeClaimStatus(capacity=amounts),
    )
    return StateNode(None, made)


def _joined(kept: Sequence[PlannedClaim], rest: Plan) -> Plan:
    """One plan; claims of a pool are numbered through."""
    numbers: dict[str, int] = {}
    claims: list[PlannedClaim] = []
    for claim in (*kept, *rest.claims):
        numbers[claim.node_pool] = numbers.get(claim.node_pool, 0) + 1
        claims.append(replace(claim, name=f"{claim.node_pool}-{numbers[claim.node_pool]}"))
    return replace(rest, claims=tuple(claims), usd_per_hour=sum(c.usd_per_hour for c in claims))
