"""A cheaper plan than first fit's, made by the same checks: passes of `Packer`, of which the best is taken."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kubewright.packing.packer import Pack, Packer
from kubewright.packing.parts import Entry
from kubewright.packing.wishes import NONE, Wishes
from kubewright.solver.classes import PodClass, by_constraint, by_size, by_tightness
from kubewright.solver.engine import Engine
from kubewright.solver.ground import Ground
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.solve import attempt

_TOLERANCES = (0.02, 0.1, 0.4)
_FEW = 300
"""Pods up to which other orders are tried."""
Order = Callable[[PodClass], tuple[object, ...]]


class _Other(NamedTuple):
    """Another way to go about a pass; see `solver.solve.attempt` and `packer.Packer`."""

    order: Order
    tolerance: float
    taste: int = 0
    spread_out: bool = False
    lenient: bool = False


_OTHERS = (
    _Other(by_size, 0.4, 1),
    _Other(by_size, 0.1, 1, lenient=True),
    _Other(by_constraint, 0.1),
    _Other(by_size, 10.0, spread_out=True),
    _Other(by_tightness, 10.0, 1),
    _Other(by_size, 10.0, 2),
    _Other(by_constraint, 0.4, 3, lenient=True),
    _Other(by_size, 0.1, 4),
)
"""In the order in which they are tried."""
_FIRST = 16
"""A part in so many of the steps goes into a pass from which only the domains of pods are wanted."""
_BIASED = 4
"""A part in so many of the steps goes into each try to have fewer nodes, or more."""


def improved(
    problem: Problem, first: Plan, steps: int, wishes: Wishes = NONE, enough: float = 0.0, ground: Ground | None = None
) -> Plan:
    """The cheapest plan found within about `steps`, `first` itself if none is cheaper; leaves out no pod that `first` places.

    Wishes for small machines and for spread workloads are kept as long as that is not dearer than `first`. Once a plan costs no
    more than `enough`, which no plan undercuts, the search ends. `ground` is that of the problem, where there is one.
    """
    ground = ground or Ground(problem)
    search = _Passes(problem, first, steps, wishes, enough, ground)
    search.run()
    if search.best is first and not wishes.kept_by(first, problem):
        search = _Passes(problem, first, steps // 2, wishes._replace(share=1.0, most_cpu=0), enough, ground)
        search.run()
    return search.chosen()


def packed(problem: Problem, first: Plan, pack: Pack, wishes: Wishes = NONE, ground: Ground | None = None) -> Plan | None:
    """The plan of one pass that packs as it is told; None where it leaves out a pod that `first` places, or could not."""
    search = _Passes(problem, first, 1, wishes, 0.0, ground or Ground(problem))
    search.found.clear()
    search.pass_(_TOLERANCES[0], 1, exact=pack)
    return search.found[0] if search.found else None


class _Passes:
    def __init__(self, problem: Problem, first: Plan, steps: int, wishes: Wishes, enough: float, ground: Ground) -> None:
        self.ground = ground
        self.problem = problem
        self.first = first
        self.best = first
        self.found = [first]
        self.left = steps
        self.wishes = wishes
        self.enough = enough

    def run(self) -> None:
        if not self.first.claims or self.left <= 0:
            return
        biased = self.left // _BIASED if self.wishes.nodes else 0
        self.left -= biased
        total = self.left
        is_few = len(self.problem.pods) <= _FEW
        for tolerance in _TOLERANCES[:1] if is_few else _TOLERANCES:
            if self._is_done():
                break
            engine = self.pass_(tolerance, total // _FIRST)
            if engine is None:
                continue
            if engine.settled:
                is_few = False
                break
            entries = engine.entries()
            if entries and not self._is_done():
                self.pass_(tolerance, self.left // 3 if is_few else self.left * 4 // 5, entries, engine.packed())
        # Few pods: what is bought is decided by which of them meet where, so other orders and domains are tried as well.
        self.left += total if is_few else 0
        for other in _OTHERS if is_few else ():
            if self._is_done():
                break
            engine = self.pass_(other.tolerance, total // _FIRST, other=other)
            if engine is not None and (entries := engine.entries()):
                self.pass_(other.tolerance, self.left // 3, entries, engine.packed(), other=other)
        if biased and self.best.claims:
            share = self.wishes.within if self.wishes.nodes == "fewer" else -self.wishes.within
            for times in (1, 4):
                bias = times * share * self.best.usd_per_hour / len(self.best.claims)
                self.left = biased // 2
                self.pass_(_TOLERANCES[0], self.left, bias=bias)

    def chosen(self) -> Plan:
        """The cheapest, or of those about as cheap the one with fewest or most nodes."""
        if not self.wishes.nodes:
            return self.best
        least = cost(self.best, self.wishes)
        most = min(cost(self.first, self.wishes), least * (1 + self.wishes.within)) + 1e-9
        near = [p for p in self.found if cost(p, self.wishes) <= most]
        sign = 1 if self.wishes.nodes == "fewer" else -1
        return min(near, key=lambda p: (sign * len(p.claims), cost(p, self.wishes)))

    def _is_done(self) -> bool:
        return self.left <= 0 or cost(self.best, self.wishes) <= self.enough * (1 + 1e-9)

    def pass_(
        self,
        tolerance: float,
        steps: int,
        blueprint: Sequence[Entry] = (),
        known: Sequence[Sequence[Entry]] = (),
        exact: Pack | None = None,
        bias: float = 0.0,
        other: _Other | None = None,
    ) -> Packer | None:
        made: list[Packer] = []
        more = {
            "tolerance": tolerance,
            "steps": steps,
            "steps_alone": self.left,
            "wishes": self.wishes,
            "blueprint": blueprint,
            "known": known,
            "exact": exact,
            "enough": self.enough,
            "bias": bias,
            "taste": other.taste if other is not None else 0,
        }
        plan = attempt(
            self.problem,
            other.order if other is not None else by_size,
            None,
            spread_out=other is not None and other.spread_out,
            lenient=other is not None and other.lenient,
            make=_maker(made, more),
            ground=self.ground,
        )
        if plan is None or not made:
            return None
        self.left -= made[0].used
        if plan.unplaced.keys() <= self.first.unplaced.keys():
            self.found.append(plan)
            less = cost(self.best, self.wishes) - cost(plan, self.wishes)
            if less > 1e-9 or (less > -1e-9 and len(plan.claims) < len(self.best.claims)):
                self.best = plan
        return made[0]


def cost(plan: Plan, wishes: Wishes) -> float:
    """USD per hour, with what nodes cost beyond their price."""
    return plan.usd_per_hour + wishes.node_usd * len(plan.claims)


def _maker(made: list[Packer], more: dict[str, Any]) -> Callable[..., Engine]:
    def make(*args: Any, **given: Any) -> Engine:
        made.append(Packer(*args, **more, **given))
        return made[-1]

    return make
