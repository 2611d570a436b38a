"""Emptiness: nodes without a pod to move go, dearest first, as many as the budgets allow.

Source: spec/disruption 3.2, and 3.10 for the second look.
"""

from collections.abc import Collection, Sequence

import msgspec

from kubewright.api import duration
from kubewright.disruption import budgets
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import Blocked, Candidate, candidates
from kubewright.disruption.commands import VALIDATION_DELAY, Command
from kubewright.disruption.reasons import Class, Reason
from kubewright.lifecycle import claims
from kubewright.solver.problem import Snapshot

REASON = Reason.EMPTY
CLASS = Class.GRACEFUL
TYPE = "empty"


class Found(msgspec.Struct, frozen=True):
    command: Command | None = None
    eligible: int = 0
    """Candidates before budgets."""
    held: tuple[Candidate, ...] = ()
    """Candidates that only a budget holds back."""
    budgets: Budgets = Budgets(REASON)
    blocked: tuple[Blocked, ...] = ()
    """Nodes that no method may touch now."""


def should_disrupt(candidate: Candidate) -> bool:
    """Whether the node is for this method to end: empty, quiet long enough, in a pool that allows it."""
    return (
        candidate.pool.spec.replicas is None
        and duration.parse_nillable(candidate.pool.spec.disruption.consolidate_after) is not None
        and candidate.is_empty
        and not candidate.known.virtual_pods
        and claims.is_set(candidate.claim, claims.CONSOLIDATABLE)
    )


def find(snapshot: Snapshot, queued: Collection[str] = ()) -> Found:
    """One command for all empty nodes the budgets let go."""
    judged = candidates(snapshot, CLASS, queued)
    wanted = [c for c in judged.found if should_disrupt(c)]
    left = budgets.remaining((p.node_pool for p in snapshot.pools), budgets.usage(snapshot.nodes, queued), REASON, snapshot.now)
    admitted, held = admit(wanted, left)
    return Found(command(admitted, snapshot) if admitted else None, len(wanted), held, left, judged.blocked)


def command(going: Sequence[Candidate], snapshot: Snapshot) -> Command:
    """All of them together: nothing needs to stand ready before they go."""
    cost = sum(c.disturbance for c in going)
    return Command(REASON, tuple(going), snapshot.now, TYPE, disturbance=cost, delay=VALIDATION_DELAY)


def admit(wanted: Sequence[Candidate], left: Budgets) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Those who may go, by name, and those a budget holds back; the dearest go first, among equals the oldest."""
    room = dict(left.left)
    going: list[Candidate] = []
    held: list[Candidate] = []
    for candidate in sorted(wanted, key=_order):
        if room.get(candidate.pool.name, 0) > 0:
            room[candidate.pool.name] -= 1
            going.append(candidate)
        else:
            held.append(candidate)
    return tuple(sorted(going, key=lambda c: c.name)), tuple(sorted(held, key=lambda c: c.name))


def confirm(planned: Command, snapshot: Snapshot, queued: Collection[str] = ()) -> Command | None:
    """The command on second thoughts: those of its nodes that would be chosen again now; None when there are none."""
    names = {c.provider_id for c in planned.candidates}
    queued = frozenset(queued) - names
    wanted = [c for c in candidates(snapshot, CLASS, queued).found if should_disrupt(c) and c.provider_id in names]
    left = budgets.remaining((p.node_pool for p in snapshot.pools), budgets.usage(snapshot.nodes, queued), REASON, snapshot.now)
    admitted, _ = admit(wanted, left)
    return msgspec.structs.replace(planned, candidates=admitted) if admitted else None


def _order(candidate: Candidate) -> tuple[float, float, str]:
    created = candidate.claim.metadata.creation_timestamp
    return (-candidate.usd_per_hour, created.timestamp() if created else 0.0, candidate.name)
