"""`plan`: first fit, then the improver where it is wanted, then the bound; spot claims name what will not undo it."""

from msgspec.structs import replace

from kubewright.packing import wishes as wanted
from kubewright.packing.beside import is_scarce, planned_beside
from kubewright.packing.bound import Question, best_bound
from kubewright.packing.improve import cost, improved, packed
from kubewright.packing.perfect import Perfected, perfected
from kubewright.packing.trim import trimmed
from kubewright.packing.wishes import Wishes
from kubewright.settings import Packing, Settings
from kubewright.solver.build import Parts
from kubewright.solver.committed import relief
from kubewright.solver.ground import Ground
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.reporter import Reporter
from kubewright.solver.solve import solve

_STEPS_A_POD = 60
_TO_PROVE = 8
"""A part in so many of the steps goes into the bound."""
_CLOSE = 1e-5
"""Share by which cost and bound may differ, for rounding, and still be the same."""


def plan(problem: Problem, settings: Settings | None = None, reporter: Reporter | None = None) -> Plan:
    """The plan for `problem` by the method that `settings.packing` names, with its cost, bound and gap.

    `reporter` hears of the first-fit pass. Without settings it is first fit alone, without a bound. With first fit the bound is
    the fractional one, which takes a few hundredths of a second.
    """
    ground = Ground(problem)
    first = solve(problem, reporter, ground)
    if problem.settings.slack and first.unplaced:
        # Rather no slack than no node.
        tight = replace(problem, settings=replace(problem.settings, slack=0.0))
        other = solve(tight, ground=ground)
        if len(other.unplaced) < len(first.unplaced):
            problem, first = tight, other
    if settings is None:
        return first
    whole = _planned(problem, first, settings, ground)
    return trimmed(whole, problem, settings.launch_price_share, settings.launch_least_pools)


def _planned(problem: Problem, first: Plan, settings: Settings, ground: Ground) -> Plan:
    wishes = wanted.of(settings)
    steps = budget(problem, settings)
    if first.claims and (problem.settings.commitments or any(map(is_scarce, first.claims))):
        apart = steps // _TO_PROVE
        return planned_beside(problem, first, settings, wishes, planned=_planned, weighed=_weighed, steps=apart, ground=ground)
    found = replace(first, steps=steps, first_fit_usd_per_hour=cost(first, wishes))
    if not first.claims:
        return found
    # Who is left out is the same for most plans, and so are the machines.
    question = Question(Parts(problem, ground=ground), first, wishes.node_usd)
    # Commitments may make a plan cheaper than list prices allow, by this much at most.
    saved = relief(problem)
    least = max(0.0, best_bound(question, steps // _TO_PROVE)[0] - saved)
    proof = Perfected(first, 0.0, "")
    if steps:
        proof = Perfected(improved(problem, first, steps, wishes, least, ground), 0.0, "")
        if proof.plan.unplaced.keys() != first.unplaced.keys():
            question = Question(Parts(problem, ground=ground), proof.plan, wishes.node_usd)
            least = max(0.0, best_bound(question, steps // _TO_PROVE)[0] - saved)
        if not saved and cost(proof.plan, wishes) > least * (1 + _CLOSE):
            proof = perfected(
                question, proof.plan, lambda p: cost(p, wishes), lambda pack: packed(problem, first, pack, wishes, ground), _CLOSE
            )
    found = replace(proof.plan, steps=steps, first_fit_usd_per_hour=cost(first, wishes), proved_by=proof.by)
    return _weighed(found, max(least, proof.bound), wishes)


def budget(problem: Problem, settings: Settings) -> int:
    """Steps for this problem: the least of the settings, more for more pods, up to the most; 0 for first fit."""
    if settings.packing is not Packing.IMPROVE:
        return 0
    return max(settings.packing_steps, min(settings.packing_steps_most, _STEPS_A_POD * len(problem.pods)))


def _weighed(one: Plan, least: float, wishes: Wishes) -> Plan:
    """`one` with `least` as its bound, and the gap that follows."""
    whole = cost(one, wishes)
    is_least = whole <= least * (1 + _CLOSE)
    gap = 0.0 if is_least or least <= 0 else whole / least - 1
    nodes = wishes.node_usd * len(one.claims)
    return replace(one, bound_usd_per_hour=min(least, whole), gap=gap, optimal=is_least, node_usd_per_hour=nodes)
