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


def decide(
    snapshot: Snapshot, settings: Settings, now: datetime, memory: Memory, solver: SolverSettings | None = None
) -> Decisions:
    """Commands that may be begun once their `delay` is over and `validate` still says so.

    `solver` is what `settings` and the provider's vocabulary make of them; without it the provider has none.
    """
    solver = solver or solver_settings(settings)
    snapshot = snapshot if snapshot.now == now else replace(snapshot, now=now)
    everywhere = still(snapshot, settings)
    if everywhere is not None:
        return Decisions(stays={state.name(n): (everywhere,) for n in snapshot.nodes}, memory=memory)
    knobs = settings.disruption
    graceful = candidates(snapshot, Class.GRACEFUL, memory.queued, knobs.settled_after)
    used = budgets.usage(snapshot.nodes, memory.queued)
    pools = tuple(p.node_pool for p in snapshot.pools)
    left = {reason: budgets.remaining(pools, used, reason, now) for reason in Reason}
    stays = Stays()
    for blocked in graceful.blocked:
        stays.add(state.name(blocked.known), blocked.stay)
    found = _Found()
    found.empty(graceful.found, left[Reason.EMPTY], snapshot)
    simulation: Simulation | None = None
    if not found.commands:
        simulation = Simulation(snapshot, solver, memory.queued)
        found.drifted(
            eventual(snapshot, graceful, memory.queued, knobs.settled_after), left[Reason.DRIFTED], simulation, knobs, memory
        )
    if not found.commands:
        assert simulation is not None
        found.consolidated(graceful.found, left[Reason.UNDERUTILIZED], simulation, knobs, memory)
    for name, stay in found.stays:
        stays.add(name, stay)
    going = {c.name for command in found.commands for c in command.candidates}
    return Decisions(
        found.commands,
        {name: reasons for name, reasons in stays.all().items() if name not in going},
        found.eligible,
        tuple(left[r] for r in Reason),
        found.held,
        graceful.blocked,
        replace(memory, unreached=found.unreached),
        found.steps,
        bool(found.unreached),
    )


class _Found:
    """What the methods found, one after another."""

    def __init__(self) -> None:
        self.commands: tuple[Command, ...] = ()
        self.stays: list[tuple[str, Stay]] = []
        self.eligible: dict[str, int] = {}
        self.held: dict[str, tuple[str, ...]] = {}
        self.unreached: tuple[str, ...] = ()
        self.steps = 0

    def empty(self, candidates: Sequence[Candidate], left: Budgets, snapshot: Snapshot) -> None:
        wanted = [c for c in candidates if emptiness.should_disrupt(c)]
        going, held = emptiness.admit(wanted, left)
        self._note(Reason.EMPTY, {c.name: left.stay(c.pool) for c in held}, len(wanted), candidates)
        self.commands = (emptiness.command(going, snapshot),) if going else ()

    def drifted(
        self, candidates: Sequence[Candidate], left: Budgets, simulation: Simulation, knobs: DisruptionSettings, memory: Memory
    ) -> None:
        found = drift.find(candidates, left, simulation, knobs, memory)
        self._note(Reason.DRIFTED, found.stays, found.eligible, candidates)
        self.commands, self.unreached = found.commands, found.unreached

    def consolidated(
        self, candidates: Sequence[Candidate], left: Budgets, simulation: Simulation, knobs: DisruptionSettings, memory: Memory
    ) -> None:
        found = consolidation.find(candidates, left, simulation, knobs, memory)
        self._note(Reason.UNDERUTILIZED, found.stays, found.eligible, candidates)
        self.commands, self.unreached, self.steps = found.commands, (*self.unreached, *found.unreached), found.steps

    def _note(self, reason: Reason, stays: Mapping[str, Stay], eligible: int, candidates: Sequence[Candidate]) -> None:
        self.stays += sorted(stays.items())
        self.eligible[reason.value] = eligible
        pools = {c.pool.name for c in candidates if c.name in stays and stays[c.name].because is Because.BUDGET}
        self.held[reason.value] = tuple(sorted(pools))


def still(snapshot: Snapshot, settings: Settings) -> Stay | None:
    """Why nothing voluntary may happen to any node now."""
    if settings.disruption.frozen:
        return Stay(Because.FROZEN, "disruption is switched off for the whole cluster", {"setting": "disruption.frozen"}, "")
    if snapshot.silent:
        kinds = ", ".join(snapshot.silent)
        return Stay(Because.SILENT, f"nothing is disrupted while watches are silent ({kinds})", {"kinds": kinds}, "")
    return None


class Stays:
    """Collects reasons by node."""

    def __init__(self) -> None:
        self._found: dict[str, list[Stay]] = {}

    def add(self, name: str, stay: Stay) -> None:
        reasons = self._found.setdefault(name, [])
        if stay not in reasons:
            reasons.append(stay)

    def all(self) -> dict[str, tuple[Stay, ...]]:
        return {name: tuple(self._found[name]) for name in sorted(self._found)}
