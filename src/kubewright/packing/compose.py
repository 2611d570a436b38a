"""`plan`: first fit, then the improver where it is wanted, then the bound."""

from msgspec.structs import replace

from kubewright.packing.bound import bound
from kubewright.packing.improve import improved
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.reporter import Reporter
from kubewright.solver.solve import solve


def plan(problem: Problem, settings: Settings | None = None, reporter: Reporter | None = None) -> Plan:
    """The plan for `problem` by the method that `settings.packing` names, with its lower bound.

    `reporter` hears of the first-fit pass. Without settings it is first fit alone, without a bound.
    """
    found = solve(problem, reporter)
    if settings is None:
        return found
    steps = settings.packing_steps if settings.packing is Packing.IMPROVE else 0
    if steps:
        found = improved(problem, found, steps)
    return replace(found, bound_usd_per_hour=bound(problem, found, steps // 10), steps=steps)
