"""The smallest set of constraints that cannot be met together: found by dropping constraints and solving again."""

from collections.abc import Sequence
from itertools import combinations

from kubewright.explain import edits
from kubewright.explain.constraints import Piece, pieces
from kubewright.solver.problem import Problem
from kubewright.solver.solve import solve

MOST_CONFLICTS = 4
LARGEST_SEARCHED = 3
"""Conflicts of more members are minimal (no member can go), but perhaps not the smallest there is."""


MOST_PROBES = 200
"""Solves that the search for fixes may take; a conflict is always searched to its end."""


class Patience:
    """How many solves are left for fixes; shared by the searches that one explanation starts."""

    def __init__(self, left: int = MOST_PROBES) -> None:
        self.left = left

    @property
    def is_over(self) -> bool:
        return self.left <= 0


class Prober:
    """Asks the solver about one pod, again and again.

    The pod is asked about alone if it cannot be placed even then; otherwise with all the others of the pass.
    """

    def __init__(self, problem: Problem, key: str, patience: Patience | None = None) -> None:
        self.key = key
        self.patience = patience or Patience()
        alone = edits.only(problem, key)
        self.alone = self._unplaced(alone)
        self.problem = alone if self.alone else problem
        self.left_out = 1 if self.alone else len(solve(problem).unplaced)

    def blocked(self, problem: Problem) -> bool:
        return self._unplaced(problem)

    def cures(self, problem: Problem) -> bool:
        """Whether a changed problem places the pod and leaves out fewer than before; no more is asked when patience is over."""
        if self.patience.is_over:
            return False
        self.patience.left -= 1
        plan = solve(problem)
        return self.key not in plan.unplaced and len(plan.unplaced) < self.left_out

    def _unplaced(self, problem: Problem) -> bool:
        self.patience.left -= 1
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


def further(prober: Prober, members: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    """What is in the way besides: the conflicts that show when one member of each before is dropped, `MOST_CONFLICTS` at most."""
    found: list[tuple[Piece, ...]] = []
    problem = prober.problem
    while members and len(found) < MOST_CONFLICTS:
        problem = members[0].drop(problem)
        again = Prober(problem, prober.key, prober.patience)
        if not again.left_out:
            break
        members = conflict(again)
        if members:
            found.append(members)
    return found


def blocks(prober: Prober, every: Sequence[Piece], members: Sequence[Piece]) -> bool:
    """Whether `members` alone keep the pod out."""
    kept = {p.identity for p in members}
    return prober.blocked(without(prober.problem, [p for p in every if p.identity not in kept]))


def without(problem: Problem, dropped: Sequence[Piece]) -> Problem:
    for piece in dropped:
        problem = piece.drop(problem)
    return problem
