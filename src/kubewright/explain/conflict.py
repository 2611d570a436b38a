"""The smallest set of constraints that cannot be met together: found by dropping constraints and solving again."""

from collections.abc import Sequence
from itertools import combinations

from kubewright.explain import edits
from kubewright.explain.constraints import Piece, pieces
from kubewright.solver.problem import Problem
from kubewright.solver.solve import solve

LARGEST_SEARCHED = 3
"""Conflicts of more members are minimal (no member can go), but perhaps not the smallest there is."""


class Prober:
    """Asks the solver about one pod, again and again, and remembers how often.

    The pod is asked about alone if it cannot be placed even then; otherwise with all the others of the pass.
    """

    def __init__(self, problem: Problem, key: str) -> None:
        self.key = key
        self.probes = 0
        alone = edits.only(problem, key)
        self.alone = self._unplaced(alone)
        self.problem = alone if self.alone else problem
        self.left_out = 1 if self.alone else len(solve(problem).unplaced)

    def blocked(self, problem: Problem) -> bool:
        return self._unplaced(problem)

    def cures(self, problem: Problem) -> bool:
        """Whether a changed problem places the pod and leaves out fewer than before."""
        self.probes += 1
        plan = solve(problem)
        return self.key not in plan.unplaced and len(plan.unplaced) < self.left_out

    def _unplaced(self, problem: Problem) -> bool:
        self.probes += 1
        return self.key in solve(problem).unplaced


def conflict(prober: Prober) -> tuple[Piece, ...]:
    """A smallest set of pieces that alone, with all others dropped, keeps the pod out; empty when nothing but the places does.

    Every member is needed: dropping any one of them lets the pod in (as far as this set goes).
    """
    every = pieces(prober.problem, prober.key)
    if prober.blocked(without(prober.problem, every)):
        return ()
    kept = list(every)
    for piece in every:
        fewer = [p for p in kept if p is not piece]
        if blocks(prober, every, fewer):
            kept = fewer
    for size in range(1, min(len(kept), LARGEST_SEARCHED + 1)):
        for candidate in combinations(every, size):
            if blocks(prober, every, candidate):
                return candidate
    return tuple(kept)


def blocks(prober: Prober, every: Sequence[Piece], members: Sequence[Piece]) -> bool:
    """Whether `members` alone keep the pod out."""
    kept = {p.identity for p in members}
    return prober.blocked(without(prober.problem, [p for p in every if p.identity not in kept]))


def without(problem: Problem, dropped: Sequence[Piece]) -> Problem:
    for piece in dropped:
        problem = piece.drop(problem)
    return problem
