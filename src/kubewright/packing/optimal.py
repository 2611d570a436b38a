"""The least cost, proven, for few pods: a mixed-integer program over whole machines, solved by HiGHS where it is installed.

Machines are whole; pods are shared out among all machines of a kind as if these were one. What that costs no plan can undercut,
and with few machines it is most often what a plan can reach. Whether the pods fit on the machines one by one is asked afterwards;
where they do not, that set of machines is ruled out and the program is solved again. The work is limited in nodes of the
branch-and-bound tree, never in seconds, so the same version of HiGHS gives the same answer.
"""

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from kubewright.packing.machines import Machine
from kubewright.packing.proof import Asked

MOST_PODS = 100
NODES = 2000
"""Of the tree, for each program."""
ROUNDS = 5
"""Sets of machines that may turn out not to hold the pods one by one."""
_FEWER = 1e-8
"""USD that a machine costs more, to prefer few large ones among sets of the same price: pods fit on them more easily."""
_LARGE = 4
"""Pods of which a machine holds at most so many are counted one by one."""
_SAFE = 1 - 1e-6
"""Against the solver's tolerances, where it was stopped."""

Mix = dict[int, int]


class Optimum(NamedTuple):
    bound: float
    """USD per hour that no plan undercuts."""
    machines: tuple[Machine, ...]
    """The set that costs so much; empty where none is known."""


def highs() -> ModuleType | None:
    """HiGHS, None where the extra `[optimal]` is not installed."""
    try:
        return importlib.import_module("highspy")
    except ModuleNotFoundError:
        return None


class Model:
    """A program that grows by variables and rows; see HiGHS's manual for its terms."""

    def __init__(self, module: ModuleType, nodes: int) -> None:
        self._module = module
        self._solver: Any = module.Highs()
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 0),
            ("mip_max_nodes", nodes),
            ("mip_rel_gap", 1e-7),
            ("mip_abs_gap", 1e-9),
        ):
            self._solver.setOptionValue(name, value)
        self._count = 0

    def variable(self, most: float, cost: float = 0.0, *, whole: bool = False) -> int:
        self._solver.addVar(0.0, float(most))
        self._solver.changeColCost(self._count, cost)
        if whole:
            self._solver.changeColIntegrality(self._count, self._module.HighsVarType.kInteger)
        self._count += 1
        return self._count - 1

    def row(self, least: float | None, most: float | None, terms: Mapping[int, float]) -> None:
        endless = self._module.kHighsInf
        low, high = -endless if least is None else least, endless if most is None else most
        self._solver.addRow(low, high, len(terms), list(terms), list(terms.values()))

    def solve(self) -> tuple[str, float, list[float]]:
        """("optimal", "infeasible" or "stopped", what the objective cannot be below, values; none where none were found)."""
        self._solver.run()
        status, known = self._solver.getModelStatus(), self._module.HighsModelStatus
        info = self._solver.getInfo()
        if status == known.kInfeasible:
            return "infeasible", 0.0, []
        found = list(self._solver.getSolution().col_value) if info.primal_solution_status == _FEASIBLE else []
        if status == known.kOptimal:
            return "optimal", info.mip_dual_bound, found
        return "stopped", info.mip_dual_bound, found


_FEASIBLE = 2
"""HiGHS's kSolutionStatusFeasible."""


class Program:
    """Which set of machines has room for the pods at the least price."""

    def __init__(self, module: ModuleType, asked: Asked, nodes: int = NODES) -> None:
        self._asked = asked
        self._model = model = Model(module, nodes)
        self._pods = sum(asked.counts)
        self._most: list[int] = []
        self._bought: list[int] = []
        for m in asked.machines:
            self._most.append(min(self._pods, m.capacity) if m.reservation else self._pods)
            self._bought.append(model.variable(self._most[-1], m.usd + _FEWER, whole=True))
        placed: list[dict[int, float]] = [{} for _ in asked.counts]
        for m, column in zip(asked.machines, self._bought, strict=True):
            self._hold(m.room, m.allowed, column, placed)
        for stock in asked.stocks:
            self._hold(stock.room, stock.allowed, None, placed)
        for n, terms in zip(asked.counts, placed, strict=True):
            if n:
                model.row(float(n), None, terms)
        both = list(zip(asked.machines, self._bought, strict=True))
        for index, limit in enumerate(asked.limits):
            model.row(None, limit.left, {c: amount for m, c in both for i, amount in m.uses if i == index})
        reserved = {m.reservation: m.capacity for m in asked.machines if m.reservation}
        for name, capacity in sorted(reserved.items()):
            model.row(None, float(capacity), {c: 1.0 for m, c in both if m.reservation == name})

    def _hold(self, room: Sequence[float], allowed: int, bought: int | None, placed: list[dict[int, float]]) -> None:
        """What may go to a kind of machine, or to the room that is there, and that there is room for it."""
        asked = self._asked
        here = {i: self._model.variable(n) for i, n in enumerate(asked.counts) if n and allowed >> i & 1}
        for i, column in here.items():
            placed[i][column] = 1.0
        for k, amount in enumerate(room):
            terms = {column: asked.sizes[i][k] for i, column in here.items() if asked.sizes[i][k]}
            if terms and bought is not None:
                self._model.row(None, 0.0, {**terms, bought: -amount})
                self._hold_large(here, k, amount, bought)
            elif terms:
                self._model.row(None, amount, terms)

    def _hold_large(self, here: Mapping[int, int], k: int, room: float, bought: int) -> None:
        """Of pods that take more than a third of a machine it holds two, and so on: what sharing them out at once forgets."""
        for most in range(1, _LARGE + 1):
            large = {column: 1.0 for i, column in here.items() if self._asked.sizes[i][k] * (most + 1) > room * (1 + 1e-9)}
            if large:
                self._model.row(None, 0.0, {**large, bought: -float(most)})

    def solve(self) -> Optimum:
        """The cheapest set of machines that has the room, of those not ruled out."""
        status, least, values = self._model.solve()
        if status == "infeasible":
            return Optimum(0.0, ())
        machines = self._asked.machines
        chosen = tuple(
            m for m, column in zip(machines, self._bought, strict=True) for _ in range(round(values[column]) if values else 0)
        )
        if status == "optimal":
            # Another set could be cheaper by no more than what was put on to prefer few machines.
            most_put_on = _FEWER * (self._pods - len(chosen))
            return Optimum(max(0.0, (sum(m.usd for m in chosen) - most_put_on) * (1 - 1e-7)), chosen)
        return Optimum(max(0.0, least - _FEWER * self._pods) * _SAFE, chosen)

    def rule_out(self, machines: Sequence[Machine]) -> None:
        """Ask for a set that has more of something: this one, and all within it, do not hold the pods."""
        more: dict[int, float] = {}
        for m, column, most in zip(self._asked.machines, self._bought, self._most, strict=True):
            held = sum(1 for other in machines if other is m)
            if held < most:
                flag = self._model.variable(1, whole=True)
                self._model.row(0.0, None, {column: 1.0, flag: -(held + 1.0)})
                more[flag] = 1.0
        self._model.row(1.0, None, more)


def fitted(
    module: ModuleType, bins: Sequence[Machine], sizes: Sequence[Sequence[float]], counts: Sequence[int], nodes: int = NODES
) -> tuple[str, list[Mix]]:
    """("yes", pods by item for each of `bins`), ("no", none), or ("unknown", none) where the limit was reached."""
    model = Model(module, nodes)
    columns = [{i: model.variable(n, whole=True) for i, n in enumerate(counts) if n and m.allowed >> i & 1} for m in bins]
    for i, n in enumerate(counts):
        if n:
            model.row(float(n), float(n), {mine[i]: 1.0 for mine in columns if i in mine})
    for m, mine in zip(bins, columns, strict=True):
        for k, amount in enumerate(m.room):
            terms = {column: sizes[i][k] for i, column in mine.items() if sizes[i][k]}
            if terms:
                model.row(None, amount, terms)
    status, _, values = model.solve()
    if status == "infeasible":
        return "no", []
    if not values:
        return "unknown", []
    mixes = [{i: round(values[column]) for i, column in mine.items() if round(values[column])} for mine in columns]
    # Rounded answers of a solver with tolerances are believed only once they are checked.
    if any(sum(mix.get(i, 0) for mix in mixes) != n for i, n in enumerate(counts)):
        return "unknown", []
    for m, mix in zip(bins, mixes, strict=True):
        if any(sum(sizes[i][k] * n for i, n in mix.items()) > r + 1e-9 for k, r in enumerate(m.room)):
            return "unknown", []
    return "yes", mixes
