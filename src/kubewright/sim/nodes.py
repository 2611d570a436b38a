"""The node lifecycle controller and pod garbage collection: what happens around nodes that are not well, or not there.

Conditions become taints, a silent kubelet makes its node Unknown, NoExecute taints drive pods out when their time is up, and pods
of a node that no longer exists are removed.
"""

import msgspec

from kubewright.errors import Conflict, NotFound
from kubewright.sim.kubelet import Kubelets
from kubewright.sim.objects import (
    Item,
    Key,
    condition,
    is_terminal,
    is_terminating,
    is_true,
    key_of,
    stamp,
    with_condition,
)
from kubewright.sim.runtime import Reconciler, Runtime

NAME = "node-controller"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OURS = {(key, "NoSchedule") for key in (NOT_READY, UNREACHABLE, _UNSCHEDULABLE, *_PRESSURE.values())} | {
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
}


class NodeDelays(msgspec.Struct, frozen=True):
    """Source: kube-controller-manager's defaults (node-monitor-grace-period; podgc quarantineTime)."""

    monitor_grace_s: float = 50.0
    """From a kubelet's last sign of life to Ready=Unknown."""
    quarantine_s: float = 40.0
    """From a vanished node to the removal of its pods."""


class NodeLifecycle(Reconciler):
    """Taints and Unknown conditions of nodes."""

    def __init__(self, runtime: Runtime, kubelets: Kubelets, delays: NodeDelays) -> None:
        self._kubelets = kubelets
        self._delays = delays
        self._silent_since: dict[str, float] = {}
        super().__init__(runtime)

    def start(self) -> None:
        self.view.on("Node", self._node_changed)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        if before is None and after is not None:
            name = after["metadata"]["name"]
            text = f"Node {name} event: Registered Node {name} in Controller"
            self.runtime.events.tell(after, "Normal", "RegisteredNode", text, NAME)
        self.enqueue_object(before, after)

    def watch_out(self, node: str) -> None:
        """A kubelet may just have died."""
        self.enqueue(("", node))

    def reconcile(self, key: Key) -> None:
        node = self.view.get("v1", "Node", key)
        if node is None:
            self._silent_since.pop(key[1], None)
            return
        if self._kubelets.is_alive(key[1]):
            self._silent_since.pop(key[1], None)
        else:
            since = self._silent_since.setdefault(key[1], self.runtime.now_s())
            left_s = since + self._delays.monitor_grace_s - self.runtime.now_s()
            if left_s > 1e-9:
                self.after(left_s, key)
            elif (condition(node, "Ready") or {}).get("status") != "Unknown":
                node = self._lost(node)
        self._taint(node)

    def _lost(self, node: Item) -> Item:
        now = self.runtime.now()
        conditions = node.get("status", {}).get("conditions") or []
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
            text = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
            conditions = with_condition(conditions, kind, "Unknown", now, **text)
        name = node["metadata"]["name"]
        written = self.store.patch("v1", "Node", "", name, {"status": {"conditions": conditions}}, "status")
        self.runtime.events.tell(written, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady", NAME)
        for pod in self.view.pods_on(name):
            if is_true(pod, "Ready"):
                not_ready = with_condition(pod["status"]["conditions"], "Ready", "False", now)
                self.store.patch("v1", "Pod", *key_of(pod), {"status": {"conditions": not_ready}}, "status")
        return written

    def _taint(self, node: Item) -> None:
        current = node["spec"].get("taints") or []
        wanted = _wanted(node)
        kept = [t for t in current if (t["key"], t["effect"]) not in _OURS or (t["key"], t["effect"]) in wanted]
        present = {(t["key"], t["effect"]) for t in kept}
        now = stamp(self.runtime.now())
        new = [
            {"key": key, "effect": effect, **({"timeAdded": now} if effect == "NoExecute" else {})}
            for key, effect in sorted(wanted - present)
        ]
        if new or len(kept) != len(current):
            self.store.patch("v1", "Node", "", node["metadata"]["name"], {"spec": {"taints": [*kept, *new]}})


def _wanted(node: Item) -> set[tuple[str, str]]:
    """(key, effect) of the taints that the node's state calls for."""
    found: set[tuple[str, str]] = set()
    ready = (condition(node, "Ready") or {"status": "False"})["status"]
    if ready != "True":
        key = UNREACHABLE if ready == "Unknown" else NOT_READY
        found |= {(key, "NoSchedule"), (key, "NoExecute")}
    found |= {(taint, "NoSchedule") for kind, taint in _PRESSURE.items() if is_true(node, kind)}
    if node["spec"].get("unschedulable"):
        found.add((_UNSCHEDULABLE, "NoSchedule"))
    return found


class TaintEviction(Reconciler):
    """Deletes pods that do not, or no longer, tolerate a NoExecute taint of their node."""

    def start(self) -> None:
        self._since: dict[tuple[str, str, str], float] = {}
        self.view.on("Node", self._node_changed)
        self.view.on("Pod", self._pod_changed)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        if before is not None:
            gone = _no_execute(before) - (_no_execute(after) if after is not None else set())
            for key, value in gone:
                self._since.pop((before["metadata"]["uid"], key, value), None)
        if after is not None and _no_execute(after):
            for taint in _no_execute(after):
                self._since.setdefault((after["metadata"]["uid"], *taint), self.runtime.now_s())
            for pod in self.view.pods_on(after["metadata"]["name"]):
                self.enqueue(key_of(pod))

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        if after is not None and after["spec"].get("nodeName") and (before is None or not before["spec"].get("nodeName")):
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        pod = self.view.get("v1", "Pod", key)
        if pod is None or is_terminating(pod) or is_terminal(pod):
            return
        node = self.view.get("v1", "Node", ("", pod["spec"].get("nodeName", "")))
        if node is None:
            return
        for taint, value in sorted(_no_execute(node)):
            left_s = self._left_s(pod, node, taint, value)
            if left_s is None:
                continue
            if left_s > 1e-9:
                self.after(left_s, key)
                continue
            conditions = with_condition(
                pod["status"].get("conditions") or (),
                "DisruptionTarget",
                "True",
                self.runtime.now(),
                reason="DeletionByTaintManager",
                message="Taint manager: deleting due to NoExecute taint",
            )
            self.store.patch("v1", "Pod", *key, {"status": {"conditions": conditions}}, "status")
            self.store.delete("v1", "Pod", *key, uid=pod["metadata"]["uid"])
            text = f"Marking for deletion Pod {key[0]}/{key[1]}"
            self.runtime.events.tell(pod, "Normal", "TaintManagerEviction", text, "taint-eviction-controller")
            return

    def _left_s(self, pod: Item, node: Item, taint: str, value: str) -> float | None:
        """Seconds that the pod may stay with this taint; None for ever."""
        covering = [
            t
            for t in pod["spec"].get("tolerations") or ()
            if t.get("effect", "") in ("", "NoExecute")
            and t.get("key", "") in ("", taint)
            and (t.get("operator", "Equal") == "Exists" or (t.get("key") and t.get("value", "") == value))
        ]
        if not covering:
            return 0.0
        limits = [float(t["tolerationSeconds"]) for t in covering if t.get("tolerationSeconds") is not None]
        if not limits:
            return None
        since = self._since.setdefault((node["metadata"]["uid"], taint, value), self.runtime.now_s())
        return since + max(0.0, min(limits)) - self.runtime.now_s()


def _no_execute(node: Item) -> set[tuple[str, str]]:
    return {(t["key"], t.get("value", "")) for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"}


class PodCollector(Reconciler):
    """Removes pods of nodes that no longer exist."""

    def __init__(self, runtime: Runtime, delays: NodeDelays) -> None:
        self._quarantine_s = delays.quarantine_s
        self._since: dict[str, float] = {}
        super().__init__(runtime)

    def start(self) -> None:
        self.view.on("Node", self._node_changed)
        self.view.on("Pod", self._pod_changed)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        if after is None:
            self._since[name] = self.runtime.now_s()
            for pod in self.view.pods_on(name):
                self.enqueue(key_of(pod))
        else:
            self._since.pop(name, None)

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        del before
        if after is not None and (name := after["spec"].get("nodeName")):
            if self.view.get("v1", "Node", ("", name)) is None:
                self.enqueue(key_of(after))
        elif after is not None and is_terminating(after):
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        pod = self.view.get("v1", "Pod", key)
        if pod is None:
            return
        name = pod["spec"].get("nodeName")
        if name:
            if self.view.get("v1", "Node", ("", name)) is not None:
                return
            left_s = self._since.setdefault(name, self.runtime.now_s()) + self._quarantine_s - self.runtime.now_s()
            if left_s > 1e-9:
                self.after(left_s, key)
                return
        elif not is_terminating(pod):
            return
        if not is_terminal(pod):
            self._fail(pod)
        try:
            self.store.delete("v1", "Pod", *key, uid=pod["metadata"]["uid"], grace_period_s=0)
        except (NotFound, Conflict):
            return  # somebody was faster

    def _fail(self, pod: Item) -> None:
        conditions = with_condition(
            pod["status"].get("conditions") or (),
            "DisruptionTarget",
            "True",
            self.runtime.now(),
            reason="DeletionByPodGC",
            message="PodGC: node no longer exists",
        )
        status = {"phase": "Failed", "conditions": conditions}
        self.store.patch("v1", "Pod", *key_of(pod), {"status": status}, "status")
