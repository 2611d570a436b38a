"""`decide`: one look at the cluster, every method of disruption in its order, and why each node stays.

The order is the reference's: empty nodes first, then drift, then consolidation; the first method that finds something ends the
look, and the next look is taken at once. Source: spec/disruption 1.1.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubewright.disruption import budgets, consolidation, drift, emptiness
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import Blocked, Candidate, candidates, eventual
from kubewright.disruption.commands import Command
from kubewright.disruption.fingerprint import fingerprint
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Class, Reason
from kubewright.disruption.simulation import Simulation
from kubewright.disruption.stays import Because, Stay
from kubewright.lifecycle import state
from kubewright.settings import DisruptionSettings, Settings
from kubewright.solver.problem import Snapshot, SolverSettings
from kubewright.solver.select import solver_settings


class Decisions(msgspec.Struct, frozen=True):
    """What to do, and why the rest stays as it is."""

    commands: tuple[Command, ...] = ()
    """Of one method, with candidates of their own each; they hold together, carried out in this order."""
    stays: Mapping[str, tuple[Stay, ...]] = {}
    """Node (or NodeClaim without one) → every reason why it is not disrupted now. Nodes that go are left out."""
    eligible: Mapping[str, int] = {}
    """Reason → candidates of its methods before budgets."""
    budgets: tuple[Budgets, ...] = ()
    """Of every reason."""
    held: Mapping[str, tuple[str, ...]] = {}
    """Reason → NodePools with candidates that nothing but a budget holds back."""
    blocked: tuple[Blocked, ...] = ()
    """Nodes that no graceful method may touch."""
    memory: Memory = Memory()
    """For the next look."""
    steps: int = 0
    """Of the search."""
    out_of_steps: bool = False
    """Whether the search ended because its budget of steps did."""
    soon: tuple[str, ...] | None = None
    """Nodes that are next in line, for a soft taint; None where nobody asked, and what was said before still holds."""


def decide(
    snapshot: Snapshot, settings: Settings, now: datetime, memory: Memory, solver: SolverSettings | None = None
) -> Decisions:
    """Commands that may be begun once their `delay` is over and `validate` still says so.

    `solver` is what `settings` and the provider's vocabulary make of them; without it the provider has none.
    """
    snapshot = snapshot if snapshot.now == now else replace(snapshot, now=now)
    return _look(snapshot, settings, memory, solver or solver_settings(settings), thorough=False)


def stays(
    snapshot: Snapshot, settings: Settings, now: datetime, memory: Memory, solver: SolverSettings | None = None
) -> Mapping[str, tuple[Stay, ...]]:
    """Why each node stays, by every method; nodes that would go are left out.

    Unlike `decide` it asks all methods, each as if the nodes that those before found were going already.
    """
    snapshot = snapshot if snapshot.now == now else replace(snapshot, now=now)
    return _look(snapshot, settings, memory, solver or solver_settings(settings), thorough=True).stays


def _look(snapshot: Snapshot, settings: Settings, memory: Memory, solver: SolverSettings, *, thorough: bool) -> Decisions:
    everywhere = still(snapshot, settings)
    if everywhere is not None:
        return Decisions(stays={state.name(n): (everywhere,) for n in snapshot.nodes}, memory=memory)
    knobs = settings.disruption
    graceful = candidates(snapshot, Class.GRACEFUL, memory.untouchable, knobs)
    more = eventual(snapshot, graceful, memory.untouchable, knobs)
    used = budgets.usage(snapshot.nodes, memory.queued)
    pools = tuple(p.node_pool for p in snapshot.pools)
    left = {reason: budgets.remaining(pools, used, reason, snapshot.now) for reason in Reason}
    found = _Found(snapshot, knobs, memory, solver)
    for blocked in graceful.blocked:
        found.note(state.name(blocked.known), blocked.stay)
    found.empty(graceful.found, left[Reason.EMPTY])
    if thorough or not found.commands:
        found.drifted(more, left[Reason.DRIFTED])
    if thorough or not found.commands:
        found.consolidated(graceful.found, left[Reason.UNDERUTILIZED])
    return Decisions(
        tuple(found.commands),
        found.all_stays(),
        found.eligible,
        tuple(left[r] for r in Reason),
        found.held,
        graceful.blocked,
        found.memory,
        found.steps,
        bool(found.memory.unreached),
        found.soon,
    )


class _Found:
    """What the methods found, one after another."""

    def __init__(self, snapshot: Snapshot, knobs: DisruptionSettings, memory: Memory, solver: SolverSettings) -> None:
        self._snapshot = snapshot
        self._knobs = knobs
        self._solver = solver
        self._before = memory
        self._stays: dict[str, list[Stay]] = {}
        self.memory = replace(memory, unreached=())
        self.commands: list[Command] = []
        self.eligible: dict[str, int] = {}
        self.held: dict[str, tuple[str, ...]] = {}
        self.steps = 0
        self.soon: tuple[str, ...] | None = None

    def note(self, name: str, stay: Stay) -> None:
        reasons = self._stays.setdefault(name, [])
        if stay not in reasons:
            reasons.append(stay)

    def all_stays(self) -> dict[str, tuple[Stay, ...]]:
        """Of all nodes but those that go, by name."""
        going = {c.name for command in self.commands for c in command.candidates}
        names = (state.name(n) for n in self._snapshot.nodes)
        return {name: tuple(self._stays.get(name, (LATER,))) for name in sorted(names) if name not in going}

    def empty(self, candidates: Sequence[Candidate], left: Budgets) -> None:
        wanted = [c for c in candidates if emptiness.should_disrupt(c)]
        going, held = emptiness.admit(wanted, left)
        self._note(Reason.EMPTY, {c.name: left.stay(c.pool) for c in held}, len(wanted), candidates)
        self.commands += (emptiness.command(going, self._snapshot),) if going else ()

    def drifted(self, candidates: Sequence[Candidate], left: Budgets) -> None:
        """Not asked for, and no simulation made, where nothing has drifted."""
        if not any(drift.is_drifted(c) for c in candidates):
            self._note(Reason.DRIFTED, {}, 0, candidates)
            return
        found = drift.find(self._rest(candidates), left, self._simulation(), self._knobs, self._before)
        self._note(Reason.DRIFTED, found.stays, found.eligible, candidates)
        self.commands += found.commands
        self.memory = replace(self.memory, unreached=found.unreached)

    def consolidated(self, candidates: Sequence[Candidate], left: Budgets) -> None:
        mark = "" if self.commands else fingerprint(self._snapshot, left, self._before)
        if mark and mark == self._before.settled:
            self._note(Reason.UNDERUTILIZED, self._before.stays, self._before.eligible, candidates)
            return
        found = consolidation.find(self._rest(candidates), left, self._simulation(), self._knobs, self._before)
        self._note(Reason.UNDERUTILIZED, found.stays, found.eligible, candidates)
        self.commands += found.commands
        self.steps, self.soon = found.steps, found.soon
        quiet = not found.commands and not found.unreached
        self.memory = replace(
            self.memory,
            unreached=(*self.memory.unreached, *found.unreached),
            settled=mark if quiet else "",
            stays=found.stays if quiet else {},
            eligible=found.eligible if quiet else 0,
        )

    def _going(self) -> frozenset[str]:
        return frozenset(c.provider_id for command in self.commands for c in command.candidates)

    def _rest(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        going = self._going()
        return [c for c in candidates if c.provider_id not in going]

    def _simulation(self) -> Simulation:
        return Simulation(self._snapshot, self._solver, self._before.queued | self._going())

    def _note(self, reason: Reason, stays: Mapping[str, Stay], eligible: int, candidates: Sequence[Candidate]) -> None:
        for name, stay in sorted(stays.items()):
            self.note(name, stay)
        self.eligible[reason.value] = eligible
        pools = {c.pool.name for c in candidates if c.name in stays and stays[c.name].because is Because.BUDGET}
        self.held[reason.value] = tuple(sorted(pools))


LATER = Stay(Because.UNREACHED, "other nodes go first; it is looked at when they are on their way", {}, "")


def still(snapshot: Snapshot, settings: Settings) -> Stay | None:
    """Why nothing voluntary may happen to any node now."""
    if settings.disruption.frozen:
        return Stay(Because.FROZEN, "disruption is switched off for the whole cluster", {"setting": "disruption.frozen"}, "")
    if snapshot.silent:
        kinds = ", ".join(snapshot.silent)
        return Stay(Because.SILENT, f"nothing is disrupted while watches are silent ({kinds})", {"kinds": kinds}, "")
    return None
