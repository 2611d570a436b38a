"""DaemonSets: one pod on every node that it may run on.

Source: k8s.io/kubernetes v1.36 pkg/controller/daemon (daemon_controller.go, update.go, util/daemonset_util.go).
"""

from typing import Any

from kubewright.sim.objects import (
    Item,
    Key,
    available_in_s,
    is_controlled_by,
    is_ready,
    is_terminal,
    is_terminating,
    key_of,
    scaled,
)
from kubewright.sim.runtime import Reconciler
from kubewright.sim.scheduler import filters
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts, facts
from kubewright.sim.workloads import templates

NAME = "daemonset-controller"
REVISION = "controller-revision-hash"
GENERATION = "pod-template-generation"

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_RETRY_FAILED_S = 1.0


class DaemonSets(Reconciler):
    def start(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self.view.on("DaemonSet", self.enqueue_object)
        self.view.on("Pod", self.enqueue_owner("DaemonSet"))
        self.view.on("Node", self._node_changed)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        if after is None:
            del self._nodes[name]
        elif before is None or _judged_by(before) != _judged_by(after):
            self._nodes[name] = NodeState(after)
        else:
            return
        for owner in self.view.objects("apps/v1", "DaemonSet"):
            self.enqueue(key_of(owner))

    def reconcile(self, key: Key) -> None:
        owner = self.view.get("apps/v1", "DaemonSet", key)
        if owner is None:
            return
        by_node = self._pods_by_node(owner)
        probe = facts({**_pod(owner, ""), "metadata": {**_pod(owner, "")["metadata"], "name": key[1], "uid": "-"}})
        if not is_terminating(owner):
            self._manage(owner, by_node, probe)
        self._status(owner, by_node, probe)

    def _pods_by_node(self, owner: Item) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for pod in self.view.owned(owner["metadata"]["uid"], "Pod"):
            if is_controlled_by(pod, owner):
                found.setdefault(_target(pod), []).append(pod)
        return found

    def _manage(self, owner: Item, by_node: dict[str, list[Item]], probe: PodFacts) -> None:
        revision = templates.template_hash(owner["spec"]["template"])
        for name in sorted(self._nodes.keys() | by_node.keys()):
            node, pods = self._nodes.get(name), by_node.get(name, [])
            runs, stays = _runs(probe, node)
            living = []
            for pod in pods:
                if is_terminating(pod):
                    continue
                if pod["status"].get("phase") == "Failed":
                    # Deleted here, and made anew a little later, so that a pod that cannot start does not spin.
                    templates.delete_pod(self.runtime, owner, pod, NAME)
                    self.after(_RETRY_FAILED_S, key_of(owner))
                elif not is_terminal(pod):
                    living.append(pod)
            if runs and not pods:
                self._create(owner, name, revision)
            for pod in self._surplus(owner, living, revision) if stays else living:
                templates.delete_pod(self.runtime, owner, pod, NAME)
        self._update(owner, by_node, probe, revision)

    def _surplus(self, owner: Item, living: list[Item], revision: str) -> list[Item]:
        """All but the oldest of each template; with a surge, the old one too as soon as the new one is available."""
        order = sorted(living, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]))
        new = [p for p in order if _label(p, REVISION) == revision]
        old = [p for p in order if _label(p, REVISION) != revision]
        replaced = bool(new) and (not _surge(owner, 1) or self._is_available(owner, new[0]))
        return [*new[1:], *(old if replaced else old[1:])]

    def _create(self, owner: Item, node: str, revision: str) -> None:
        pod = _pod(owner, node)
        labels = pod["metadata"].setdefault("labels", {})
        labels |= {REVISION: revision, GENERATION: str(owner["metadata"].get("generation", 1))}
        templates.create_pod(self.runtime, owner, pod, NAME)

    def _update(self, owner: Item, by_node: dict[str, list[Item]], probe: PodFacts, revision: str) -> None:
        """Rolling update: pods of an old template go, as many at once as may be unavailable."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        rolling = strategy.get("rollingUpdate") or {}
        wanted = [name for name, node in sorted(self._nodes.items()) if _runs(probe, node)[0]]
        if surge := _surge(owner, len(wanted)):
            self._update_by_surge(owner, by_node, wanted, surge, revision)
            return
        budget = scaled(rolling.get("maxUnavailable", 1), len(wanted), up=True)
        old: list[Item] = []
        for name in wanted:
            living = [p for p in by_node.get(name, ()) if not is_terminating(p) and not is_terminal(p)]
            if not any(self._is_available(owner, p) for p in living):
                budget -= 1
                # what is down already costs nothing to replace
                old[:0] = [p for p in living if _label(p, REVISION) != revision]
            else:
                old += [p for p in living if _label(p, REVISION) != revision]
        for pod in old:
            if self._is_available(owner, pod):
                if budget <= 0:
                    continue
                budget -= 1
            templates.delete_pod(self.runtime, owner, pod, NAME)

    def _update_by_surge(self, owner: Item, by_node: dict[str, list[Item]], wanted: list[str], surge: int, revision: str) -> None:
        """Pods of the new template are made beside the old ones, so many at a time; `_surplus` removes the old."""
        behind: list[str] = []
        for name in wanted:
            pods = [p for p in by_node.get(name, ()) if not is_terminating(p) and not is_terminal(p)]
            if pods and all(_label(p, REVISION) != revision for p in pods):
                behind.append(name)
            elif len(pods) > 1:
                surge -= 1
        for name in behind[: max(0, surge)]:
            self._create(owner, name, revision)

    def _is_available(self, owner: Item, pod: Item) -> bool:
        wait_s = available_in_s(pod, owner["spec"].get("minReadySeconds", 0), self.runtime.now())
        if wait_s:
            self.after(wait_s, key_of(owner))
        return wait_s == 0

    def _status(self, owner: Item, by_node: dict[str, list[Item]], probe: PodFacts) -> None:
        revision = templates.template_hash(owner["spec"]["template"])
        counts = dict.fromkeys(("desired", "current", "misscheduled", "ready", "available", "updated"), 0)
        for name, node in self._nodes.items():
            runs, _ = _runs(probe, node)
            pods = sorted(by_node.get(name, ()), key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"]))
            counts["desired"] += runs
            if not pods:
                continue
            if not runs:
                counts["misscheduled"] += 1
                continue
            counts["current"] += 1
            counts["ready"] += is_ready(pods[0])
            counts["available"] += is_ready(pods[0]) and self._is_available(owner, pods[0])
            counts["updated"] += _label(pods[0], REVISION) == revision
        status: Item = {
            "observedGeneration": owner["metadata"].get("generation", 0),
            "desiredNumberScheduled": counts["desired"],
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "numberReady": counts["ready"],
            "numberAvailable": counts["available"] or None,
            "numberUnavailable": counts["desired"] - counts["available"] or None,
            "updatedNumberScheduled": counts["updated"] or None,
        }
        old = owner.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            self.store.patch("apps/v1", "DaemonSet", *key_of(owner), {"status": status}, "status")


def _surge(owner: Item, nodes: int) -> int:
    rolling = (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    return scaled(rolling.get("maxSurge") or 0, nodes, up=True)


def _runs(probe: PodFacts, node: NodeState | None) -> tuple[bool, bool]:
    """(a pod should be made there, one that is there may stay)."""
    if node is None or not filters.matches_affinity(probe, node):
        return False, False
    if probe.spec.node_name and probe.spec.node_name != node.name:
        return False, False
    hard = [t for t in node.taints if t.effect == "NoExecute" and not filters.tolerated(t, probe.tolerations)]
    soft = [t for t in node.taints if t.effect == "NoSchedule" and not filters.tolerated(t, probe.tolerations)]
    return not hard and not soft, not hard


def _pod(owner: Item, node: str) -> Item:
    """A pod of `owner`, pinned to `node` (to none: "") by its name, with the tolerations that daemons get."""
    pod = templates.pod_from(owner, owner["spec"]["template"])
    spec = pod["spec"]
    pod["metadata"]["generateName"] = owner["metadata"]["name"] + "-"
    spec["tolerations"] = _with_daemon_tolerations(spec)
    if node:
        spec["affinity"] = _pinned(spec.get("affinity") or {}, node)
    return pod


def _with_daemon_tolerations(spec: Item) -> list[Any]:
    wanted = [*_TOLERATED, *([_TOLERATED_ON_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    present = list(spec.get("tolerations") or ())
    for key, effect in wanted:
        covered = [t for t in present if t.get("key") == key and t.get("effect") == effect and t.get("operator") == "Exists"]
        if not covered:
            present.append({"key": key, "operator": "Exists", "effect": effect})
    return present


def _pinned(affinity: Item, node: str) -> Item:
    """The pod's own affinity, with every required term also asking for the node's name."""
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    own = dict(affinity.get("nodeAffinity") or {})
    terms = (own.get(field) or {}).get("nodeSelectorTerms") or []
    own[field] = {"nodeSelectorTerms": [{**t, "matchFields": [pin]} for t in terms] or [{"matchFields": [pin]}]}
    return {**affinity, "nodeAffinity": own}


def _target(pod: Item) -> str:
    """The node that a daemon's pod is for, bound or not."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _label(pod: Item, key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def _judged_by(node: Item) -> tuple[object, ...]:
    return node["metadata"].get("labels"), node["spec"].get("taints"), node["spec"].get("unschedulable")
