"""`solve`: a Problem in, a Plan out, by first fit.

Source: spec/scheduling 5.
"""

from collections.abc import Callable
from typing import NamedTuple

from kubewright.scheduling.refusal import Because, Refusal
from kubewright.settings import MinValuesPolicy
from kubewright.solver.build import Parts
from kubewright.solver.classes import PodClass, by_constraint, by_priority, by_size, by_tightness, hard_rules
from kubewright.solver.committed import Committed
from kubewright.solver.engine import NO_RULES, Engine, Leeway, Progress
from kubewright.solver.finish import finished
from kubewright.solver.ground import Ground
from kubewright.solver.problem import Plan, PlannedClaim, Problem
from kubewright.solver.reporter import Reporter
from kubewright.solver.reservations import Reservations, promised

_CUT_SHORT = (Because.LIMITS, Because.OFFERING, Because.RESERVED)
"""Reasons for which another pod being placed first would have made a difference."""

_ORDER_MATTERS = (
    Because.SPREAD,
    Because.AFFINITY,
    Because.ANTI_AFFINITY,
    Because.LABEL,
    Because.RESOURCES,
    Because.INSTANCE_TYPE,
)
"""Reasons that may be owed to what was placed before."""


class Try(NamedTuple):
    """One way to go about a pass."""

    order: Callable[[PodClass], tuple[object, ...]]
    spread_out: bool = False
    """Claims with the fewest pods first."""
    lenient: bool = False
    """Spreads look only at domains where a node stands."""
    courteous: bool = False
    """Nobody goes where those who must follow could not come."""


_OTHER_TRIES = (
    Try(by_tightness),
    Try(by_constraint),
    Try(by_size, spread_out=True),
    Try(by_constraint, spread_out=True),
    Try(by_size, lenient=True),
    Try(by_size, spread_out=True, lenient=True),
    Try(by_size, courteous=True),
    Try(by_constraint, spread_out=True, courteous=True),
)
"""In the order in which they are tried."""

_OF_ONE_POD = (Try(by_size, lenient=True),)
"""A single pod has no order and nobody to be spread out with. Explanations ask about one pod again and again."""


def solve(problem: Problem, reporter: Reporter | None = None, ground: Ground | None = None) -> Plan:
    """Where every pod goes: on nodes that exist, on nodes to buy, or nowhere with the reasons.

    Pods are packed by size. If topology or full nodes then leave some out, bound pods first and pods spread over open claims are
    tried as well, and the first plan that leaves out fewest is taken. Only where a pool's limits or dry offerings left pods out,
    and priorities differ, is it done again with the more important pods first. `ground` is the problem's,
    where there is one.
    """
    ground = ground or Ground(problem)
    plan = attempt(problem, by_size, reporter, ground=ground)
    assert plan is not None
    if not plan.unplaced:
        return plan
    spread = {pod.key for pod in problem.pods if pod.spec.topology_spread_constraints}
    if any(
        r.because in _ORDER_MATTERS or (r.because is Because.LIMITS and key in spread)
        for key, refusals in plan.unplaced.items()
        for r in refusals
    ):
        followed = any(p.spec.affinity is not None and p.spec.affinity.pod_affinity is not None for p in problem.pods)
        for other in _OTHER_TRIES if len(problem.pods) > 1 else _OF_ONE_POD:
            if other.courteous and not followed:
                continue
            again = attempt(
                problem,
                other.order,
                None,
                spread_out=other.spread_out,
                lenient=other.lenient,
                courteous=other.courteous,
                ground=ground,
            )
            if again is not None and len(again.unplaced) < len(plan.unplaced):
                plan = again
            if not plan.unplaced:
                return plan
    if len({pod.spec.priority or 0 for pod in problem.pods}) > 1:
        short = any(r.because in _CUT_SHORT for refusals in plan.unplaced.values() for r in refusals)
        if short:
            return attempt(problem, by_priority, reporter, ground=ground) or plan
    return plan


def attempt(
    problem: Problem,
    order: Callable[[PodClass], tuple[object, ...]],
    reporter: Reporter | None,
    *,
    spread_out: bool = False,
    lenient: bool = False,
    courteous: bool = False,
    make: Callable[..., Engine] = Engine,
    ground: Ground | None = None,
) -> Plan | None:
    """One pass; None when a lenient one turned out not to be balanced.

    `make` is called as `Engine` is, for passes that place otherwise by the same checks. `ground` is shared by many passes.
    """
    parts = Parts(problem, lenient=lenient, ground=ground)
    settings = problem.settings
    if not parts.pools:
        no = Refusal(Because.NO_POOL, "", "", "no dynamic nodepools found")
        return Plan(unplaced={pod.key: (no,) for pod in problem.pods})
    relax = settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
    reservations = None
    if settings.feature_gates.reserved_capacity and any(k.reservation for t in parts.templates for k in t.columns.kinds):
        columns = [t.columns for t in parts.templates]
        reservations = Reservations(columns, promised(problem.nodes), strict=settings.reserved_strict)
    engine = make(
        parts.table,
        parts.templates,
        reservations,
        relax_min_values=relax,
        reporter=reporter,
        spread_out=spread_out,
        present=parts.topology.present,
    )
    engine.courteous = courteous
    if settings.commitments:
        engine.committed = Committed(problem)
    classes = sorted(parts.classes, key=order)
    bound = [one for one in classes if hard_rules(one)] if order is by_constraint and make is Engine else []
    left = engine.run(bound, [one for one in classes if not hard_rules(one)]) if bound else engine.run(classes)
    if courteous:
        left = engine.relent(left)
    left = engine.pin_and_resume(left)
    if lenient and not parts.topology.balanced():
        return None
    unplaced: dict[str, tuple[Refusal, ...]] = {}
    for progress in left:
        reasons = _reasons(engine, parts, progress)
        for pod in progress.one.pods[progress.done :]:
            unplaced[pod.key] = reasons
        if reporter is not None:
            reporter.gave_up(tuple(pod.key for pod in progress.one.pods[progress.done :]))
    if reservations is not None:
        reservations.settle(engine.claims)
    claims: list[PlannedClaim] = []
    for claim in engine.claims:
        one = finished(claim, parts.well_known, strict=not relax, committed=engine.committed)
        if isinstance(one, Refusal):
            for cls, start, end in claim.placed:
                unplaced.update((pod.key, (one,)) for pod in cls.pods[start:end])
            continue
        claims.append(one)
    existing = {
        parts.table.nodes[index].name: tuple(sorted(p.key for one, start, end in put for p in one.pods[start:end]))
        for index, put in sorted(engine.existing.items())
    }
    return Plan(
        claims=tuple(claims),
        existing=existing,
        unplaced=dict(sorted(unplaced.items())),
        usd_per_hour=sum(c.usd_per_hour for c in claims),
    )


def _reasons(engine: Engine, parts: Parts, progress: Progress) -> tuple[Refusal, ...]:
    """Every pool's no to the most relaxed form of a class, asked at the end of the pass."""
    one = progress.one
    if one.refusal is not None:
        return (one.refusal,)
    variant = one.variants[-1]
    rules = variant.rules or NO_RULES
    leeway = Leeway(rules)
    found = [*engine.refusals(progress, variant, rules, leeway), *parts.without_types]
    return tuple(found) or (Refusal(Because.NO_POOL, "", "", "nodepool requirements filtered out all available instance types"),)
