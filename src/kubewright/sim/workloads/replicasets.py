"""ReplicaSets: as many pods as wanted, and the right ones go first."""

from datetime import datetime

from kubewright.api import selectors
from kubewright.sim.objects import (
    Item,
    Key,
    available_in_s,
    condition,
    is_active,
    is_ready,
    is_terminal,
    is_terminating,
    key_of,
    moment,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.view import is_stray
from kubewright.sim.workloads import templates

NAME = "replicaset-controller"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_BURST = 500
"""Most pods created or deleted in one turn. Source: k8s.io/kubernetes pkg/controller/replicaset BurstReplicas."""

_SHOWN_ZERO = ("replicas", "observedGeneration", "terminatingReplicas")
"""Counts that the API shows even when there are none."""

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(Reconciler):
    def start(self) -> None:
        self.view.on("ReplicaSet", self.enqueue_object)
        self.view.on("Pod", self.enqueue_owner("ReplicaSet"))
        self.view.on("Pod", self._stray)

    def _stray(self, before: Item | None, after: Item | None) -> None:
        """A pod that nobody manages may be wanted by somebody."""
        del before
        if after is None or not is_stray(after):
            return
        labels = after["metadata"].get("labels") or {}
        for owner in self.view.objects("apps/v1", "ReplicaSet", key_of(after)[0]):
            if selectors.matches(templates.selector_of(owner), labels):
                self.enqueue(key_of(owner))

    def reconcile(self, key: Key) -> None:
        owner = self.view.get("apps/v1", "ReplicaSet", key)
        if owner is None:
            return
        every = templates.claim_objects(self.runtime, owner, "Pod")
        pods = [p for p in every if is_active(p)]
        if not is_terminating(owner):
            wanted = owner["spec"].get("replicas", 1)
            if len(pods) < wanted:
                pods += self._create(owner, min(wanted - len(pods), _BURST))
            elif len(pods) > wanted:
                pods = self._delete(owner, pods, min(len(pods) - wanted, _BURST))
        self._status(owner, pods, sum(is_terminating(p) and not is_terminal(p) for p in every))

    def _create(self, owner: Item, count: int) -> list[Item]:
        template = owner["spec"]["template"]
        made = []
        for _ in range(count):
            pod = templates.pod_from(owner, template)
            pod["metadata"]["generateName"] = owner["metadata"]["name"] + "-"
            made.append(templates.create_pod(self.runtime, owner, pod, NAME))
        if count == _BURST:
            self.enqueue(key_of(owner))
        return made

    def _delete(self, owner: Item, pods: list[Item], count: int) -> list[Item]:
        related = self._on_nodes_of_relatives(owner)
        now = self.runtime.now()
        order = sorted(pods, key=lambda p: _deletion_rank(p, related, now))
        for pod in order[:count]:
            templates.delete_pod(self.runtime, owner, pod, NAME)
        if count == _BURST:
            self.enqueue(key_of(owner))
        return order[count:]

    def _on_nodes_of_relatives(self, owner: Item) -> dict[str, int]:
        """Node → active pods there of ReplicaSets with the same controller."""
        reference = next((r for r in owner["metadata"].get("ownerReferences") or () if r.get("controller")), None)
        family = self.view.owned(reference["uid"], "ReplicaSet") if reference else [owner]
        found: dict[str, int] = {}
        for member in family:
            for pod in self.view.owned(member["metadata"]["uid"], "Pod"):
                node = pod["spec"].get("nodeName", "")
                if is_active(pod) and node:
                    found[node] = found.get(node, 0) + 1
        return found

    def _status(self, owner: Item, pods: list[Item], terminating: int) -> None:
        now = self.runtime.now()
        waits = [available_in_s(p, owner["spec"].get("minReadySeconds", 0), now) for p in pods]
        template = (owner["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
        status: Item = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(template.items() <= (p["metadata"].get("labels") or {}).items() for p in pods),
            "readyReplicas": sum(is_ready(p) for p in pods),
            "availableReplicas": sum(w == 0 for w in waits),
            "terminatingReplicas": terminating,
            "observedGeneration": owner["metadata"].get("generation", 0),
        }
        later = [w for w in waits if w]
        if later:
            self.after(min(later), key_of(owner))
        old = owner.get("status") or {}
        shown = {field: value if value or field in _SHOWN_ZERO else None for field, value in status.items()}
        if any(old.get(field) != value for field, value in shown.items()):
            self.store.patch("apps/v1", "ReplicaSet", *key_of(owner), {"status": shown}, "status")


def _deletion_rank(pod: Item, related: dict[str, int], now: datetime) -> tuple[object, ...]:
    """Smallest goes first.

    Source: k8s.io/kubernetes pkg/controller ActivePodsWithRanks: without a node, pending, not ready, cheap to delete, crowded,
    lately ready, restarted, young.
    """
    node = pod["spec"].get("nodeName", "")
    ready = condition(pod, "Ready")
    is_up = ready is not None and ready["status"] == "True"
    since = moment(ready["lastTransitionTime"]) if ready is not None and is_up else now
    restarts = max((s.get("restartCount", 0) for s in pod.get("status", {}).get("containerStatuses") or ()), default=0)
    cost = int((pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0"))
    return (
        bool(node),
        _PHASES.get(pod.get("status", {}).get("phase", "Pending"), 0),
        is_up,
        cost,
        -related.get(node, 0),
        _age_rank(since, now),
        -restarts,
        _age_rank(moment(pod["metadata"]["creationTimestamp"]), now),
        pod["metadata"]["uid"],
    )


def _age_rank(since: datetime, now: datetime) -> int:
    """The age's power of two: ages of about the same size count as equal, and then lots are drawn (by UID)."""
    return int((now - since).total_seconds()).bit_length()
