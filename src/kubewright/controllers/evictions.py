"""eviction-queue: pods that must leave, asked one by one through the eviction API, with back-off where a budget refuses.

The rule for each is `lifecycle.eviction`. Source: spec/disruption 5.4.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubewright.api.core import Pod, PodDisruptionBudget
from kubewright.api.meta import find_condition
from kubewright.controllers.context import Context
from kubewright.errors import Conflict, KubeError, NotFound, ServerUnavailable, TooManyRequests
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, eviction, pods
from kubewright.lifecycle.effects import Count, Delete, EventKind, Publish
from kubewright.lifecycle.eviction import Way

WORKERS = 100
BASE_DELAY = timedelta(milliseconds=100)
MAX_DELAY = timedelta(seconds=10)
SEVERAL_BUDGETS = "does not support"
"""Part of the API server's fixed answer (a 500) for a pod with more than one budget; nothing else tells it apart."""


class EvictionQueue:
    """Pods on their way out. A pod is known by namespace, name and UID, so a successor of its name is not meant."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._deadlines: dict[str, datetime | None] = {}
        self._refusals: dict[str, int] = {}
        self.controller = Controller(
            "eviction-queue", self.reconcile, workers=WORKERS, base_delay=BASE_DELAY, max_delay=MAX_DELAY
        )
        context.mirror.pods.subscribe(self._pod_changed)
        context.mirror.surroundings["budgets"].subscribe(self._budget_changed)

    async def run(self) -> None:
        await self.controller.run()

    def add(self, leaving: Iterable[Pod], deadline: datetime | None) -> None:
        """Take pods in; one that is in already keeps its place, and the earlier of the two deadlines."""
        for pod in leaving:
            key = _key(pod)
            if key not in self._deadlines:
                self._deadlines[key] = deadline
                self.controller.enqueue(key)
            elif deadline is not None:
                known = self._deadlines[key]
                if known is None or deadline < known:
                    self._deadlines[key] = deadline
                    self.controller.enqueue(key)

    async def reconcile(self, key: str) -> timedelta | None:
        pod = self._on.mirror.pods.get(key.rpartition("#")[0])
        if key not in self._deadlines or pod is None or _key(pod) != key:
            self._drop(key)
            return None
        deadline = self._deadlines[key]
        decision = eviction.decide(pod, self._on.clock.now(), deadline)
        match decision.way:
            case Way.DROP:
                self._drop(key)
                return None
            case Way.WAIT:
                return self._later(key)
            case Way.DELETE:
                assert deadline is not None
                return await self._delete(key, pod, deadline, decision.grace_period_s)
            case Way.EVICT:
                return await self._evict(key, pod)

    async def _delete(self, key: str, pod: Pod, deadline: datetime, grace_period_s: int) -> timedelta | None:
        told = Publish(
            pod,
            EventKind.NORMAL,
            "Disrupted",
            f"Deleting the pod to accommodate the terminationTime {claims.rfc3339(deadline)} of the node. The pod was granted"
            f" {grace_period_s} seconds of grace-period of its {pod.spec.termination_grace_period_seconds}"
            " terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
            (pod.metadata.uid,),
        )
        await self._on.actor.act((told, Delete(pod, grace_period_s), self._drained(pod)))
        self._drop(key)
        return None

    async def _evict(self, key: str, pod: Pod) -> timedelta | None:
        try:
            await self._on.client.evict(pod.name, pod.namespace, uid=pod.metadata.uid)
        except (NotFound, Conflict) as gone:
            await self._count(gone.status)
            self._drop(key)
            return None
        except KubeError as refused:
            await self._count(refused.status)
            several = isinstance(refused, ServerUnavailable) and SEVERAL_BUDGETS in refused.message
            if not isinstance(refused, TooManyRequests) and not several:
                raise
            await self._tell_refusal(pod, several=several)
            return self._later(key)
        told = Publish(
            pod, EventKind.NORMAL, "Evicted", f"Evicted pod: {self._reason(pod) or 'Forceful Termination'}", (pod.name,)
        )
        await self._count(200)
        await self._on.actor.act((told, self._drained(pod)))
        self._drop(key)
        return None

    async def _tell_refusal(self, pod: Pod, *, several: bool) -> None:
        node = self._on.mirror.nodes.get(pod.spec.node_name)
        if node is None:
            return
        why = "violates multiple PDBs" if several else "violates a PDB"
        told = Publish(
            node, EventKind.WARNING, "FailedDraining", f"Failed to drain node, evicting pod {pod.key} {why}", (pod.key,)
        )
        await self._on.actor.act((told,))

    def _drained(self, pod: Pod) -> Count:
        return Count("pods_drained_total", {"reason": self._reason(pod)})

    def _reason(self, pod: Pod) -> str:
        """Why the pod's node goes: the claim's DisruptionReason, "Forceful Termination" without one, "" if there is no claim."""
        node = self._on.mirror.nodes.get(pod.spec.node_name)
        claim = None if node is None else self._on.mirror.claim_of(node)
        if claim is None:
            return ""
        given = find_condition(claim.status.conditions, claims.DISRUPTION_REASON)
        return given.reason if given is not None and given.status == "True" else "Forceful Termination"

    async def _count(self, code: int) -> None:
        await self._on.actor.act((Count("pods_eviction_requests_total", {"code": str(code)}),))

    def _later(self, key: str) -> timedelta:
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        return min(BASE_DELAY * (1 << min(refusals, 20)), MAX_DELAY)

    def _drop(self, key: str) -> None:
        self._deadlines.pop(key, None)
        self._refusals.pop(key, None)

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, _: Pod | None) -> None:
        if old is not None and _key(old) in self._deadlines:
            # It went, or it changed: both may be what its entry waits for.
            self.controller.enqueue(_key(old))

    def _budget_changed(self, _: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A budget that opens lets its pods try at once instead of after their back-off."""
        if new is None or pods.allowed(new) == 0:
            return
        for key in sorted(self._refusals):
            if key.startswith(new.namespace + "/"):
                self._refusals[key] = 0
                self.controller.enqueue(key)


def _key(pod: Pod) -> str:
    return f"{pod.key}#{pod.metadata.uid}"
