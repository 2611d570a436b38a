"""What a search proposes, placed by the exact scheduler on the snapshot without the nodes that go.

Groups are placed one after another, each on the nodes that stay, on room that is left on the machines of the groups before, or on
machines of its own: few depend on each other, and most can be carried out, and fail, alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kubewright.disruption.search import OPEN, Group
from kubewright.disruption.simulation import Simulation
from kubewright.packing.carrier import SizedClaim
from kubewright.scheduling.refusal import Refusal
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import PodClass, by_size
from kubewright.solver.engine import Engine, Progress
from kubewright.solver.problem import Plan, PlannedClaim
from kubewright.solver.solve import attempt
from kubewright.solver.templates import State


class Confirmed(msgspec.Struct, frozen=True):
    """A group with the places of all its pods."""

    group: Group
    parts: tuple[Group, ...]
    """The groups that were asked about and became this one."""
    claims: tuple[PlannedClaim, ...] = ()
    destinations: Mapping[str, tuple[str, ...]] = {}
    unplaced: Mapping[str, tuple[Refusal, ...]] = {}


def confirmed(simulation: Simulation, groups: Sequence[Group]) -> tuple[Confirmed, ...]:
    """Every group as the scheduler sees it; those with `unplaced` pods cannot be done, and the others need to be asked again.

    Groups that come to share a machine are one from then on.
    """
    of_pod = {pod.key: at for at, group in enumerate(groups) for one in group.going for pod in one.movers}
    problem = simulation.problem([one for group in groups for one in group.going])
    simulation.asked += 1
    plan = Plan() if not problem.pods else attempt(problem, by_size, None, make=_in_turns(of_pod))
    assert plan is not None
    root = list(range(len(groups)))
    for claim in plan.claims:
        shared = sorted({_root(root, of_pod[key]) for key in claim.pods})
        for other in shared[1:]:
            root[other] = shared[0]
    claims: dict[int, list[PlannedClaim]] = {}
    for claim in plan.claims:
        claims.setdefault(_root(root, of_pod[claim.pods[0]]), []).append(claim)
    there: dict[int, dict[str, list[str]]] = {}
    for node, keys in plan.existing.items():
        for key in keys:
            there.setdefault(_root(root, of_pod[key]), {}).setdefault(node, []).append(key)
    refused: dict[int, dict[str, tuple[Refusal, ...]]] = {}
    for key, refusals in plan.unplaced.items():
        refused.setdefault(_root(root, of_pod[key]), {})[key] = refusals
    parts: dict[int, list[Group]] = {}
    for at, group in enumerate(groups):
        parts.setdefault(_root(root, at), []).append(group)
    return tuple(
        Confirmed(
            mine[0] if len(mine) == 1 else Group(tuple(c for g in mine for c in g.going), sum(g.usd_per_hour for g in mine)),
            tuple(mine),
            tuple(claims.get(at, ())),
            {node: tuple(keys) for node, keys in sorted(there.get(at, {}).items())},
            refused.get(at, {}),
        )
        for at, mine in parts.items()
    )


def _root(root: Sequence[int], at: int) -> int:
    while root[at] != at:
        at = root[at]
    return at


def _in_turns(of_pod: Mapping[str, int]) -> Callable[..., Engine]:
    def make(*args: Any, **more: Any) -> Engine:
        return _InTurns(of_pod, *args, **more)

    return make


class _InTurns(Engine):
    """A pass that places group after group.

    What is left on a machine that is bought for one is open to the next, as far as it makes the machine no dearer.
    """

    def __init__(self, of_pod: Mapping[str, int], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._of_pod = of_pod

    def run(self, *stages: Sequence[PodClass]) -> list[Progress]:
        parts: dict[int, list[PodClass]] = {}
        for one in (one for classes in stages for one in classes):
            mine: dict[int, list[int]] = {}
            for at, pod in enumerate(one.pods):
                mine.setdefault(self._of_pod[pod.key], []).append(at)
            for turn, places in mine.items():
                parts.setdefault(turn, []).append(_part(one, places))
        left: list[Progress] = []
        first = 0
        for turn in sorted(parts):
            everyone = [Progress(one) for one in parts[turn]]
            before = {c.index: len(c.placed) for c in self.claims[max(0, first - OPEN) :]}
            self._exhaust([p for p in everyone if p.one.refusal is None])
            left += [p for p in everyone if p.left]
            joined = sum(1 << at for at, count in before.items() if len(self.claims[at].placed) > count)
            self._close(first, joined)
            first = len(self.claims)
        return left

    def new_claim(self, name: str, state: State) -> OpenClaim:
        return SizedClaim(len(self.claims), name, state, -1)

    def _close(self, first: int, joined: int) -> None:
        """Hold the claims from `first` on to their cheapest machine, and leave the last few open.

        Where claims of former groups (the mask `joined`) were used, those and what this group opened are closed: or all would
        become one group.
        """
        for claim in self.claims[first:]:
            rows = claim.rows & claim.state.rows
            if isinstance(claim, SizedClaim):
                by_price = claim.template.columns.by_price(claim.state.kinds)
                claim.target = next((1 << row for _, row in by_price if rows >> row & 1), 0)
        recent = -1 << max(0, len(self.claims) - OPEN)
        if joined:
            recent &= ~joined & ((1 << first) - 1)
        for state, members in list(self._in_state.items()):
            if members & recent:
                self._in_state[state] = members & recent
            else:
                del self._in_state[state]


def _part(one: PodClass, places: Sequence[int]) -> PodClass:
    """The class with some of its pods only; everything else is shared."""
    part = PodClass.__new__(PodClass)
    for name in PodClass.__slots__:
        setattr(part, name, getattr(one, name))
    part.pods = [one.pods[at] for at in places]
    return part
