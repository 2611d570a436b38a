"""What a search proposes, placed by the exact scheduler on the snapshot without the nodes that go.

Groups are placed one after another, each on the nodes that stay or on machines of its own, so that each can be carried out, and
fail, alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kubewright.disruption.search import Group
from kubewright.disruption.simulation import Simulation
from kubewright.scheduling.refusal import Refusal
from kubewright.solver.classes import PodClass, by_size
from kubewright.solver.engine import Engine, Progress
from kubewright.solver.problem import Plan, PlannedClaim
from kubewright.solver.solve import attempt


class Confirmed(msgspec.Struct, frozen=True):
    """A group with the places of all its pods."""

    group: Group
    claims: tuple[PlannedClaim, ...] = ()
    destinations: Mapping[str, tuple[str, ...]] = {}
    unplaced: Mapping[str, tuple[Refusal, ...]] = {}


def confirmed(simulation: Simulation, groups: Sequence[Group]) -> tuple[Confirmed, ...]:
    """Every group as the scheduler sees it; those with `unplaced` pods cannot be done, and the others need to be asked again."""
    of_pod = {pod.key: at for at, group in enumerate(groups) for one in group.going for pod in one.movers}
    problem = simulation.problem([one for group in groups for one in group.going])
    simulation.asked += 1
    plan = Plan() if not problem.pods else attempt(problem, by_size, None, make=_in_turns(of_pod))
    assert plan is not None
    claims: dict[int, list[PlannedClaim]] = {}
    for claim in plan.claims:
        claims.setdefault(of_pod[claim.pods[0]], []).append(claim)
    there: dict[int, dict[str, list[str]]] = {}
    for node, keys in plan.existing.items():
        for key in keys:
            there.setdefault(of_pod[key], {}).setdefault(node, []).append(key)
    refused: dict[int, dict[str, tuple[Refusal, ...]]] = {}
    for key, refusals in plan.unplaced.items():
        refused.setdefault(of_pod[key], {})[key] = refusals
    return tuple(
        Confirmed(
            group,
            tuple(claims.get(at, ())),
            {node: tuple(keys) for node, keys in sorted(there.get(at, {}).items())},
            refused.get(at, {}),
        )
        for at, group in enumerate(groups)
    )


def _in_turns(of_pod: Mapping[str, int]) -> Callable[..., Engine]:
    def make(*args: Any, **more: Any) -> Engine:
        return _InTurns(of_pod, *args, **more)

    return make


class _InTurns(Engine):
    """A pass that places group after group; a machine that is opened for one is closed to the next."""

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
        for turn in sorted(parts):
            everyone = [Progress(one) for one in parts[turn]]
            self._exhaust([p for p in everyone if p.one.refusal is None])
            left += [p for p in everyone if p.left]
            self._in_state.clear()
        return left


def _part(one: PodClass, places: Sequence[int]) -> PodClass:
    """The class with some of its pods only; everything else is shared."""
    part = PodClass.__new__(PodClass)
    for name in PodClass.__slots__:
        setattr(part, name, getattr(one, name))
    part.pods = [one.pods[at] for at in places]
    return part
