"""The optimum for few pods that only requests, requirements and taints bind: proven, and most often reached.

Needs HiGHS (the extra `[optimal]`); without it the plan stays the improver's and the bound is the linear program's.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from kubewright.packing import optimal
from kubewright.packing.bound import Question
from kubewright.packing.fill import Load
from kubewright.packing.machines import Machine
from kubewright.packing.packer import Pack
from kubewright.solver.problem import Plan


class Perfected(NamedTuple):
    plan: Plan
    bound: float
    """USD per hour; 0 where nothing was proven."""
    by: str
    """What proved it, with its version: another one may choose another plan of the same cost. "" if none was asked."""


def perfected(
    question: Question, plan: Plan, cost: Callable[[Plan], float], again: Callable[[Pack], Plan | None], close: float
) -> Perfected:
    """`plan` or one that costs less, with a bound that is proven.

    `again` packs once more, by the given way to pack, and returns a plan as good as `plan` but for its cost. Costs that differ
    by the share `close` are the same.
    """
    if not question.is_simple or not plan.claims or sum(question.counts) > optimal.MOST_PODS:
        return Perfected(plan, 0.0, "")
    module = optimal.highs()
    if module is None:
        return Perfected(plan, 0.0, "")
    program = optimal.Program(module, question)
    bound = 0.0
    for _ in range(optimal.ROUNDS):
        found = program.solve()
        bound = max(bound, found.bound)
        if cost(plan) <= bound * (1 + close) or not found.machines:
            break
        other = again(_onto(module, found.machines))
        if other is not None and cost(other) < cost(plan):
            plan = other
        if cost(plan) <= bound * (1 + close) or question.stocks:
            break
        if optimal.fitted(module, found.machines, question.sizes, question.counts)[0] != "no":
            break
        program.rule_out(found.machines)
    return Perfected(plan, bound, f"HiGHS {module.Highs().version()}")


def _onto(module: ModuleType, chosen: Sequence[Machine]) -> Pack:
    """Packs onto these machines, where they can be bought and hold all."""

    def pack(live: Sequence[Machine], sizes: Sequence[Sequence[float]], counts: Sequence[int]) -> list[Load] | None:
        bins: list[Machine] = []
        for wanted in chosen:
            same = [m for m in live if (m.template, m.row) == (wanted.template, wanted.row)]
            if not same:
                return None
            bins.append(min(same, key=lambda m: m.usd))
        answer, mixes = optimal.fitted(module, bins, sizes, counts)
        if answer != "yes":
            return None
        return [Load(m, tuple(sorted(mix.items())), 0.0) for m, mix in zip(bins, mixes, strict=True) if mix]

    return pack
