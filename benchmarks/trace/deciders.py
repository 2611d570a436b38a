"""The model of the reference in the place of our own deciding: looks of one command at a time, and what they would have taken.

Everything else of the operator is ours: marks, replacements, drains, provisioning. The reference's loop is one thread: while it
computes, and while it waits 15 s to look at a command again, it looks at nothing else (docs/spec/disruption.md 1.1, 3.10).
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from benchmarks.trace.reference import Answer, Cost, Model, Move
from kubewright.disruption import budgets, emptiness
from kubewright.disruption.candidates import candidates
from kubewright.disruption.commands import VALIDATION_DELAY, Command
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Class, Reason
from kubewright.disruption.validation import Rejected
from kubewright.lifecycle import state
from kubewright.solver.problem import Problem, Snapshot, SolverSettings
from kubewright.solver.select import select
from kubewright.solver.solve import solve

POLL = timedelta(seconds=10)
LOOK_AGAIN = timedelta(minutes=5)
"""Even if nothing has changed."""
MEASURED = Cost(base=0.0313, per_node=4.6e-05, per_pod=5.2e-04, per_pod_squared=3.6e-06)
"""By `python -m benchmarks.trace.calibrate`, on two shared cores; within a third of every figure measured."""


class Reference:
    """`look` and `confirm` for `controllers.disruption.Disruption`."""

    def __init__(self, settings: SolverSettings) -> None:
        self._settings = replace(settings, reserved_strict=False)
        self._not_before: datetime | None = None
        self._settled: tuple[int, datetime] | None = None
        """What the cluster looked like when nothing was found, and when that was."""

    def look(self, snapshot: Snapshot, memory: Memory) -> Decisions:
        """At most one command; none while the last one is being thought over."""
        now = snapshot.now
        if self._not_before is not None and now < self._not_before:
            return Decisions(memory=memory)
        found, spent_s = self._find(snapshot, memory)
        took = timedelta(seconds=spent_s)
        if found is None:
            self._not_before = now + POLL + took
            return Decisions(memory=memory)
        command = replace(found, delay=found.delay + took)
        self._not_before = command.due
        return Decisions((command,), memory=memory)

    def confirm(self, command: Command, snapshot: Snapshot, memory: Memory) -> Command | Rejected:
        """3.10: the command as it was found, if it still holds."""
        names = tuple(c.name for c in command.candidates)
        others = memory.queued - {c.provider_id for c in command.candidates}
        if command.reason is Reason.EMPTY:
            confirmed = self._empty(snapshot, others, {c.provider_id for c in command.candidates})
            return replace(command, candidates=confirmed.candidates) if confirmed else Rejected("churn", "not empty", names)
        move = Move(command.candidates, command.replacements, command.destinations)
        if self._model(snapshot, others).is_still_valid(move):
            return command
        return Rejected("scheduling", "the same does not come out any more", names)

    def _find(self, snapshot: Snapshot, memory: Memory) -> tuple[Command | None, float]:
        empty = self._empty(snapshot, memory.queued, None)
        if empty is not None:
            return empty, 0.0
        seen = fingerprint(snapshot)
        if self._settled is not None and self._settled[0] == seen and snapshot.now - self._settled[1] < LOOK_AGAIN:
            return None, 0.0
        model = self._model(snapshot, memory.queued)
        spent_s, constrained = 0.0, False
        for method, ask in (("multi", model.multi), ("single", model.single)):
            answer: Answer = ask()
            spent_s += answer.seconds
            constrained |= answer.constrained
            if answer.move is not None:
                return _command(answer.move, method, snapshot.now), spent_s
        self._settled = None if constrained else (seen, snapshot.now)
        return None, spent_s

    def _model(self, snapshot: Snapshot, queued: frozenset[str]) -> Model:
        return Model(snapshot, self._ask, solve, MEASURED, queued)

    def _ask(self, snapshot: Snapshot) -> Problem:
        return select(snapshot, self._settings).problem

    def _empty(self, snapshot: Snapshot, queued: frozenset[str], only: set[str] | None) -> Command | None:
        found = candidates(snapshot, Class.GRACEFUL, queued).found
        wanted = [c for c in found if emptiness.should_disrupt(c) and (only is None or c.provider_id in only)]
        used = budgets.usage(snapshot.nodes, queued)
        left = budgets.remaining((p.node_pool for p in snapshot.pools), used, Reason.EMPTY, snapshot.now)
        going, _ = emptiness.admit(wanted, left)
        return emptiness.command(going, snapshot) if going else None


def fingerprint(snapshot: Snapshot) -> int:
    """Of what the reference takes for a change: bindings, nodes that come, go or are marked, pools. Source: 7.5."""
    # Not whether a node has become Consolidatable.
    nodes = tuple(
        (state.name(n), n.marked_for_deletion, state.is_initialized(n), tuple(p.key for p in n.pods)) for n in snapshot.nodes
    )
    return hash((nodes, tuple((p.node_pool.name, p.node_pool.metadata.generation) for p in snapshot.pools)))


def _command(move: Move, method: str, now: datetime) -> Command:
    return Command(
        Reason.UNDERUTILIZED,
        tuple(sorted(move.candidates, key=lambda c: c.name)),
        now,
        method,
        move.replacements,
        move.destinations,
        delay=VALIDATION_DELAY,
    )
