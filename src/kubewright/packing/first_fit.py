"""`plan`: first fit now, with room for the bound and the improver after it."""

from kubewright.settings import Settings
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.reporter import Reporter
from kubewright.solver.solve import solve


def plan(problem: Problem, settings: Settings | None = None, reporter: Reporter | None = None) -> Plan:
    """The plan for `problem`. `settings.packing` names the method; only first fit exists so far.

    Raises:
        NotImplementedError: a packing that does not exist yet was asked for.
    """
    if settings is not None and settings.packing != "first-fit":
        raise NotImplementedError(f"packing {settings.packing}: use first-fit, the improver does not exist yet")
    return solve(problem, reporter)
