"""pod.metrics: how long pods take to be bound, and to run, from their creation and from our first sight of them as homeless.

Only what is seen to happen counts: a pod that was bound before we looked says nothing. Source: spec/scheduling 12.1.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from kubewright.api.core import Pod
from kubewright.controllers.context import Context
from kubewright.lifecycle import pods


class PodTimes:
    """Listens to the mirror from its making on; it writes nothing and has nothing to run."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.seen: dict[str, datetime] = {}
        """By UID, until it runs or goes: when a pod was first seen to need a node."""
        self.answered: dict[str, datetime] = {}
        """By UID, as long as it is in `seen`: when a pass first decided about it."""
        self.passes: deque[tuple[datetime, Sequence[str]]] = deque()
        """Passes that ended: when, and the UIDs of their pods. The solver's thread may add to it."""
        context.mirror.pods.subscribe(self._pod_changed)

    def catch_up(self) -> None:
        """Note what the passes that ended meanwhile decided about, be it that a pod has no place."""
        while self.passes:
            at, uids = self.passes.popleft()
            for uid in uids:
                began = self.seen.get(uid)
                if began is not None and uid not in self.answered:
                    self.answered[uid] = at
                    took = max((at - began).total_seconds(), 0.0)
                    self._on.actor.observe("pods_scheduling_decision_duration_seconds", took, {})

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self.catch_up()
        if new is None or pods.is_terminal(new):
            gone = new if new is not None else old
            assert gone is not None
            self._forget(gone)
            return
        if pods.is_provisionable(new):
            self.seen.setdefault(new.metadata.uid, self._on.clock.now())
        if old is None:
            return
        if new.spec.node_name and not old.spec.node_name:
            self._observe("bound", new)
        if new.status.phase == "Running" and old.status.phase != "Running":
            self._observe("startup", new)
            self._forget(new)

    def _forget(self, pod: Pod) -> None:
        self.seen.pop(pod.metadata.uid, None)
        self.answered.pop(pod.metadata.uid, None)

    def _observe(self, what: str, pod: Pod) -> None:
        now = self._on.clock.now()
        for metric, began in (
            (f"pods_{what}_duration_seconds", pod.metadata.creation_timestamp),
            (f"pods_provisioning_{what}_duration_seconds", self.seen.get(pod.metadata.uid)),
        ):
            if began is not None:
                self._on.actor.observe(metric, (now - began).total_seconds(), {})
