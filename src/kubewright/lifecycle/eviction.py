"""How one pod leaves a node that drains: by the eviction API, by deletion once its time is up, or not yet.

Source: spec/disruption 5.4.
"""

import enum
from datetime import datetime, timedelta

import msgspec

from kubewright.api.core import Pod
from kubewright.lifecycle import pods


class Way(enum.StrEnum):
    EVICT = "evict"
    DELETE = "delete"
    WAIT = "wait"
    """Pinned, or tolerating the disruption by now: look again later."""
    DROP = "drop"
    """Nothing (more) to do for this pod."""


class Decision(msgspec.Struct, frozen=True):
    way: Way
    grace_period_s: int = 0
    """For DELETE."""


def decide(pod: Pod, now: datetime, deadline: datetime | None) -> Decision:
    """How to treat a pod that a drain wants gone; `deadline` is the node's termination time, if it has one."""
    if is_force_eligible(pod, now, deadline):
        assert deadline is not None
        return Decision(Way.DELETE, max(int((deadline - now) // timedelta(seconds=1)), 1))
    if not pods.is_active(pod):
        return Decision(Way.DROP)
    if not pods.is_evictable(pod, now):
        return Decision(Way.WAIT)
    return Decision(Way.EVICT)


def is_force_eligible(pod: Pod, now: datetime, deadline: datetime | None) -> bool:
    """Whether the pod, asked nicely, would outlive the node's termination time, so that it must be deleted now.

    It must go its own grace period before the deadline; one already terminating with a later end is hurried.
    """
    if deadline is None or pods.is_terminal(pod):
        return False
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp > deadline
    own = pod.spec.termination_grace_period_seconds
    return own is not None and now > deadline - timedelta(seconds=own)
