"""The pretend kube-scheduler: pods that have no node get one, or a condition that says why not.

One pass runs whenever something changed. A pod that failed is tried again when the cluster changed in a way that could help it,
as kube-scheduler's queueing hints do; there is no preemption: a pod of high priority goes first, and takes nobody's place.
"""

from datetime import datetime

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector, SelectorRequirement
from kubewright.errors import Conflict, NotFound
from kubewright.sim.objects import (
    LABEL_HOSTNAME,
    LABEL_ZONE,
    Item,
    Key,
    condition,
    controller_of,
    is_terminal,
    key_of,
    with_condition,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.scheduler.judge import Pass, depends_on_others
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts, Spread, facts
from kubewright.sim.scheduler.storage import SELECTED_NODE, Storage

NAME = "default-scheduler"
_PASS: Key = ("", "")
_MESSAGE_EVERY_S = 10.0
"""How often the text of an unschedulable pod may change: kube-scheduler's longest back-off."""

_STORAGE_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "VolumeAttachment")
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


class KubeScheduler(Reconciler):
    def start(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.waiting: dict[Key, PodFacts] = {}
        """Pods without a node that are this scheduler's."""
        self._storage = Storage(self.view)
        self._facts: dict[str, PodFacts] = {}
        self._failed: set[Key] = set()
        self._assumed: dict[Key, str] = {}
        """Pods whose node is chosen and whose claims are still being bound."""
        self._claim_users: dict[Key, int] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._told: dict[str, tuple[str, float]] = {}
        """Pod's uid → (message, loop time) last written."""
        self.view.on("Pod", self._pod_changed)
        self.view.on("Node", self._node_changed)
        self.view.on("Namespace", self._namespace_changed)
        for kind in _STORAGE_KINDS:
            self.view.on(kind, self._storage_changed)

    # what changed

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        obj = after or before
        assert obj is not None
        key, uid = key_of(obj), obj["metadata"]["uid"]
        if after is None or is_terminal(after):
            self._forget(key, uid)
            return
        pod = self._facts_of(before, after)
        node = pod.spec.node_name
        if node:
            self.waiting.pop(key, None)
            self._failed.discard(key)
            self._told.pop(uid, None)
            self._drop_assumed(key, uid, but=node)
            if before is None or not before["spec"].get("nodeName"):
                self._use_claims(pod, 1)
                if any(depends_on_others(self.waiting[k]) for k in self._failed if k in self.waiting):
                    self._retry(only_dependent=True)
            if node in self.nodes:
                self.nodes[node].add(pod)
        elif pod.spec.scheduler_name == NAME and not pod.terminating:
            if before is None or self.waiting.get(key) is not pod:
                self.waiting[key] = pod
                self._failed.discard(key)
                self.enqueue(_PASS)
        else:
            self._forget(key, uid)

    def _forget(self, key: Key, uid: str) -> None:
        self.waiting.pop(key, None)
        self._failed.discard(key)
        self._told.pop(uid, None)
        self._drop_assumed(key, uid)
        pod = self._facts.pop(uid, None)
        if pod is not None and pod.spec.node_name:
            self._use_claims(pod, -1)
            if pod.spec.node_name in self.nodes:
                self.nodes[pod.spec.node_name].remove(uid)
            self._retry()

    def _drop_assumed(self, key: Key, uid: str, but: str = "") -> None:
        node = self._assumed.pop(key, None)
        if node is not None and node != but and node in self.nodes:
            self.nodes[node].remove(uid)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            del self.nodes[before["metadata"]["name"]]
            for key in [k for k, node in self._assumed.items() if node == before["metadata"]["name"]]:
                del self._assumed[key]
                self.enqueue(_PASS)
            return
        if before is not None and _judged_by(before) == _judged_by(after):
            return
        name = after["metadata"]["name"]
        old, node = self.nodes.get(name), NodeState(after)
        if old is not None:
            for pod in old.pods.values():
                node.add(pod)
        else:
            for obj in self.view.pods_on(name):
                if not is_terminal(obj):
                    node.add(self._facts_of(None, obj))
        self.nodes[name] = node
        self._retry()

    def _namespace_changed(self, before: Item | None, after: Item | None) -> None:
        if after is not None:
            self._namespaces[after["metadata"]["name"]] = after["metadata"].get("labels") or {}
        elif before is not None:
            self._namespaces.pop(before["metadata"]["name"], None)

    def _storage_changed(self, before: Item | None, after: Item | None) -> None:
        del before
        if after is None or any(pod.claims for pod in self.waiting.values()):
            self._retry()

    def _retry(self, *, only_dependent: bool = False) -> None:
        if only_dependent:
            self._failed = {k for k in self._failed if k in self.waiting and not depends_on_others(self.waiting[k])}
        else:
            self._failed.clear()
        if self.waiting:
            self.enqueue(_PASS)

    def _facts_of(self, before: Item | None, after: Item) -> PodFacts:
        uid = after["metadata"]["uid"]
        known = self._facts.get(uid)
        if known is None or before is None or _judged_by(before) != _judged_by(after):
            known = self._facts[uid] = facts(after)
        return known

    def _use_claims(self, pod: PodFacts, sign: int) -> None:
        for name, _ in pod.claims:
            self._claim_users[pod.namespace, name] = self._claim_users.get((pod.namespace, name), 0) + sign

    # a pass

    def reconcile(self, key: Key) -> None:
        del key
        self._bind_assumed()
        ready = [pod for k, pod in self.waiting.items() if k not in self._failed and k not in self._assumed]
        if not ready:
            return
        judge = Pass(self.nodes, self._namespaces, self._storage, self._claim_users, self._default_spreads)
        for pod in sorted(ready, key=_queue_order):
            if pod.spec.scheduling_gates:
                self._say(pod, "SchedulingGated", _GATED)
                self._failed.add(pod.key)
                continue
            verdict = judge.judge(pod)
            if verdict.node is None:
                self._failed.add(pod.key)
                self._say(pod, "Unschedulable", verdict.message)
            elif self._take(pod, verdict.node):
                judge.placed(pod, verdict.node)
        if judge.placements and any(depends_on_others(self.waiting[k]) for k in self._failed if k in self.waiting):
            self._retry(only_dependent=True)

    def _take(self, pod: PodFacts, node: NodeState) -> bool:
        """Bind, or have the pod's claims bound first; False when the pod is no longer to be had."""
        unbound = self._storage.unbound(pod)
        if not unbound:
            return self._bind(pod, node.name)
        taken: set[str] = set()
        for claim in unbound:
            volume = self._storage.provision(claim, node, taken)
            if volume:
                reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
                reference |= {field: claim["metadata"][field] for field in ("namespace", "name", "uid")}
                self.store.patch("v1", "PersistentVolume", "", volume, {"spec": {"claimRef": reference}})
            else:
                chosen = {"metadata": {"annotations": {SELECTED_NODE: node.name}}}
                self.store.patch("v1", "PersistentVolumeClaim", *key_of(claim), chosen)
        self._assumed[pod.key] = node.name
        return True

    def _bind_assumed(self) -> None:
        for key, node in list(self._assumed.items()):
            pod = self.waiting.get(key)
            if pod is None:
                self._assumed.pop(key)
            elif not self._storage.unbound(pod):
                self._bind(pod, node)

    def _bind(self, pod: PodFacts, node: str) -> bool:
        try:
            self.store.bind(*pod.key, node, uid=pod.uid)
        except (NotFound, Conflict):
            return False  # deleted, or bound by somebody else; the view will tell
        namespace, name = pod.key
        about = self.view.get("v1", "Pod", pod.key)
        if about is not None:
            message = f"Successfully assigned {namespace}/{name} to {node}"
            self.runtime.events.tell(about, "Normal", "Scheduled", message, NAME)
        return True

    def _say(self, pod: PodFacts, reason: str, message: str) -> None:
        """Put the pod's condition and event right, unless its last text is younger than a back-off."""
        text, when = self._told.get(pod.uid, ("", -_MESSAGE_EVERY_S))
        if text == message:
            return
        wait_s = when + _MESSAGE_EVERY_S - self.runtime.now_s()
        if wait_s > 0:
            self._failed.discard(pod.key)
            self.after(wait_s, _PASS)
            return
        obj = self.view.get("v1", "Pod", pod.key)
        if obj is None:
            return
        now = self.runtime.now()
        old = obj.get("status", {}).get("conditions") or ()
        seen = {"observedGeneration": obj["metadata"].get("generation", 0)}
        conditions = with_condition(old, "PodScheduled", "False", now, reason=reason, message=message, **seen)
        try:
            self.store.patch("v1", "Pod", *pod.key, {"status": {"conditions": conditions}}, "status")
        except NotFound:
            return
        self._told[pod.uid] = (message, self.runtime.now_s())
        if reason == "Unschedulable":
            self.runtime.events.tell(obj, "Warning", "FailedScheduling", message, NAME)

    def _default_spreads(self, pod: PodFacts) -> list[Spread]:
        """The cluster's own soft constraints, for pods of a service or a workload that have none.

        Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/podtopologyspread systemDefaultConstraints.
        """
        obj = self.view.get("v1", "Pod", pod.key)
        if obj is None:
            return []
        labels: dict[str, str] = {}
        expressions: list[SelectorRequirement] = []
        for service in self.view.objects("v1", "Service", pod.namespace):
            wanted = service["spec"].get("selector")
            if wanted and selectors.matches(LabelSelector(match_labels=wanted), pod.labels):
                labels |= wanted
        owner = controller_of(obj)
        if owner is not None and owner["kind"] in ("ReplicaSet", "StatefulSet"):
            workload = self.view.get(owner["apiVersion"], owner["kind"], (pod.namespace, owner["name"]))
            selector = (workload or {}).get("spec", {}).get("selector") or {}
            labels |= selector.get("matchLabels") or {}
            expressions += [
                SelectorRequirement(key=e["key"], operator=e["operator"], values=tuple(e.get("values") or ()))
                for e in selector.get("matchExpressions") or ()
            ]
        if not labels and not expressions:
            return []
        found = LabelSelector(match_labels=labels, match_expressions=tuple(expressions))
        return [
            Spread(topology_key=LABEL_HOSTNAME, max_skew=3, selector=found, default=True),
            Spread(topology_key=LABEL_ZONE, max_skew=5, selector=found, default=True),
        ]


def _queue_order(pod: PodFacts) -> tuple[int, datetime, Key]:
    return -pod.priority, pod.created, pod.key


def _judged_by(obj: Item) -> tuple[object, ...]:
    """The parts of a Pod or Node that filters and scores read."""
    meta, status = obj["metadata"], obj.get("status", {})
    sizes = [
        (s.get("name"), s.get("resources"), s.get("allocatedResources"))
        for field in ("containerStatuses", "initContainerStatuses")
        for s in status.get(field) or ()
        if "resources" in s or "allocatedResources" in s
    ]
    resize = (condition(obj, "PodResizePending") or {}).get("reason")
    return (
        obj["spec"],
        meta.get("labels"),
        "deletionTimestamp" in meta,
        status.get("allocatable"),
        sizes,
        resize,
        meta.get("ownerReferences"),
    )
