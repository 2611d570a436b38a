"""Which pods of a draining node must go now: in four tiers, each only after the one before is gone.

Source: spec/disruption 5.3.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kubewright.api.core import Pod
from kubewright.lifecycle import eviction, pods


class Drain(msgspec.Struct, frozen=True):
    """`leave`: pods to be evicted (or deleted) now, by key. `waiting`: all pods the drain still waits for."""

    leave: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()

    @property
    def is_done(self) -> bool:
        return not self.waiting


def drain(bound: Sequence[Pod], now: datetime, deadline: datetime | None) -> Drain:
    """What remains to be done to empty a node of `bound`.

    Pods whose time is up go at once, whatever their tier. A tier ends only when its pods are gone, terminating ones included
    (until they are stuck, see `pods.STUCK_AFTER`).
    """
    waiting = tuple(sorted((p for p in bound if pods.is_waiting_eviction(p, now)), key=lambda p: p.key))
    forced = tuple(p for p in waiting if eviction.is_force_eligible(p, now, deadline))
    keys = {p.key for p in forced}
    asked = [p for p in waiting if p.key not in keys]
    first = min((tier(p) for p in asked), default=0)
    return Drain((*forced, *(p for p in asked if tier(p) == first)), waiting)


def tier(pod: Pod) -> int:
    """Non-critical before critical, and within each the DaemonSets' pods last. Critical is known by class name only."""
    return 2 * pods.is_critical(pod) + pods.is_daemon(pod)
