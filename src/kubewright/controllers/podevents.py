"""nodeclaim.podevents: writes on each NodeClaim when a pod last came to its node or left it.

Source: spec/disruption 3.1. On purpose different: pods that are only seen again after a restart reset no timer, and an event that
falls within ten seconds of the last one is written when they are over instead of never.
"""

from datetime import datetime, timedelta

from kubewright.api.core import Pod
from kubewright.controllers.context import Context
from kubewright.errors import NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, pods

AT_MOST_EVERY = timedelta(seconds=10)


class PodEvents:
    """Keyed by NodeClaim."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._last: dict[str, datetime] = {}
        self.controller = Controller("nodeclaim.podevents", self.reconcile, workers=10)
        context.mirror.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        claim = self._on.mirror.node_claims.get(name)
        event = self._last.get(name)
        if claim is None or event is None:
            self._last.pop(name, None)
            return None
        written = claim.status.last_pod_event_time
        if written is not None and event - written < timedelta(seconds=1):
            return None
        if written is not None and (due := written + AT_MOST_EVERY) > self._on.clock.now():
            return due - self._on.clock.now()
        after = claims.with_status(claim, last_pod_event_time=event)
        try:
            await self._on.actor.update(claim, after, locked=False)
        except NotFound:
            self._last.pop(name, None)
        return None

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        if not pod.spec.node_name or pods.is_daemon(pod) or not self._is_event(old, new):
            return
        node = self._on.mirror.nodes.get(pod.spec.node_name)
        claim = None if node is None else self._on.mirror.claim_of(node)
        if claim is not None:
            self._last[claim.name] = self._on.clock.now().replace(microsecond=0)
            self.controller.enqueue(claim.name)

    def _is_event(self, old: Pod | None, new: Pod | None) -> bool:
        if new is None:
            return old is not None and pods.is_active(old)  # gone without having been seen to terminate
        if old is None:
            return self._on.mirror.pods.synced
        return (
            not old.spec.node_name
            or (pods.is_terminal(new) and not pods.is_terminal(old))
            or (pods.is_terminating(new) and not pods.is_terminating(old))
        )
