"""PodDisruptionBudget status: how many pods may be evicted now.

Source: k8s.io/kubernetes v1.36 pkg/controller/disruption/disruption.go.
"""

import msgspec

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector
from kubewright.sim.objects import (
    Item,
    Key,
    controller_of,
    is_active,
    is_ready,
    is_terminating,
    key_of,
    moment,
    scaled,
    with_condition,
)
from kubewright.sim.runtime import Reconciler

NAME = "controllermanager"
_EVICTION_FORGOTTEN_S = 120.0
"""How long an evicted pod that is not being deleted still counts as gone. Source: DeletionTimeout, 2 min."""

_SCALES = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Deployment": "apps/v1"}


class PodDisruptionBudgets(Reconciler):
    def start(self) -> None:
        self._selectors: dict[Key, LabelSelector | None] = {}
        self.view.on("PodDisruptionBudget", self._budget_changed)
        self.view.on("Pod", self._pod_changed)
        for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            self.view.on(kind, self._scale_changed)

    def _budget_changed(self, before: Item | None, after: Item | None) -> None:
        key = key_of(after or before or {})
        if after is None:
            self._selectors.pop(key, None)
            return
        selector = after["spec"].get("selector")
        self._selectors[key] = msgspec.convert(selector, LabelSelector) if selector is not None else None
        self.enqueue(key)

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        if before is not None and after is not None and _counted_by(before) == _counted_by(after):
            return
        space = key_of(after or before or {})[0]
        for key, selector in self._selectors.items():
            if key[0] == space and any(pod is not None and _picks(selector, pod) for pod in (before, after)):
                self.enqueue(key)

    def _scale_changed(self, before: Item | None, after: Item | None) -> None:
        if before is not None and after is not None and before["spec"].get("replicas") == after["spec"].get("replicas"):
            return
        for budget in self.view.objects("policy/v1", "PodDisruptionBudget", key_of(after or before or {})[0]):
            self.enqueue(key_of(budget))

    def reconcile(self, key: Key) -> None:
        budget = self.view.get("policy/v1", "PodDisruptionBudget", key)
        if budget is None or is_terminating(budget):
            return
        selector = self._selectors[key]
        pods = [p for p in self.view.objects("v1", "Pod", key[0]) if _picks(selector, p) and is_active(p)]
        expected = self._expected(budget, pods)
        if expected is None:
            self._write(budget, 0, 0, 0, 0, {}, reason="SyncFailed")
            return
        count, desired = expected
        disrupted = self._disrupted(budget)
        healthy = sum(is_ready(p) and p["metadata"]["name"] not in disrupted for p in pods)
        allowed = max(0, healthy - desired) if count > 0 else 0
        self._write(budget, allowed, healthy, desired, count, disrupted)

    def _expected(self, budget: Item, pods: list[Item]) -> tuple[int, int] | None:
        """(expected pods, healthy pods wanted); None when a pod's controller cannot say its scale."""
        spec = budget["spec"]
        if spec.get("maxUnavailable") is not None:
            total = self._scale_of(budget, pods)
            return None if total is None else (total, max(0, total - scaled(spec["maxUnavailable"], total, up=True)))
        least = spec.get("minAvailable")
        if least is None:
            return len(pods), 0
        if isinstance(least, int):
            return len(pods), least
        total = self._scale_of(budget, pods)
        return None if total is None else (total, scaled(least, total, up=True))

    def _scale_of(self, budget: Item, pods: list[Item]) -> int | None:
        """What the pods' controllers want, added up."""
        scales: dict[str, int] = {}
        for pod in pods:
            owner = self._scaled_owner(pod)
            if owner is None:
                reference = controller_of(pod)
                about = f"{reference['apiVersion']}/{reference['kind']}" if reference else "nothing"
                text = f"found no scale subresource for pod {pod['metadata']['name']!r}, which is controlled by {about}"
                if not reference:
                    text = f"found no controllers for pod {pod['metadata']['name']!r}"
                self.runtime.events.tell(budget, "Warning", "CalculateExpectedPodCountFailed", text, NAME)
                return None
            scales[owner["metadata"]["uid"]] = int(owner["spec"].get("replicas", 1))
        return sum(scales.values())

    def _scaled_owner(self, pod: Item) -> Item | None:
        reference = controller_of(pod)
        space = key_of(pod)[0]
        found: Item | None = None
        while reference is not None and reference["kind"] in _SCALES:
            owner = self.view.get(_SCALES[reference["kind"]], reference["kind"], (space, reference["name"]))
            if owner is None or owner["metadata"]["uid"] != reference["uid"]:
                return found
            found, reference = owner, controller_of(owner)
        return found

    def _disrupted(self, budget: Item) -> dict[str, str]:
        """Pods evicted just now that are still there."""
        now = self.runtime.now()
        kept: dict[str, str] = {}
        for name, when in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            pod = self.view.get("v1", "Pod", (key_of(budget)[0], name))
            left_s = _EVICTION_FORGOTTEN_S - (now - moment(when)).total_seconds()
            if pod is not None and not is_terminating(pod) and left_s > 0:
                kept[name] = when
                self.after(left_s, key_of(budget))
        return kept

    def _write(
        self, budget: Item, allowed: int, healthy: int, desired: int, expected: int, disrupted: dict[str, str], reason: str = ""
    ) -> None:
        old = budget.get("status") or {}
        why = reason or ("SufficientPods" if allowed else "InsufficientPods")
        conditions = with_condition(
            old.get("conditions") or (),
            "DisruptionAllowed",
            "True" if allowed else "False",
            self.runtime.now(),
            reason=why,
            observedGeneration=budget["metadata"].get("generation", 0),
        )
        conditions = [{"message": "", **c} for c in conditions]
        status: Item = {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": conditions,
        }
        gone = {name: None for name in old.get("disruptedPods") or {} if name not in disrupted}
        if gone or any(old.get(field) != value for field, value in status.items()):
            if gone:
                status["disruptedPods"] = gone
            self.store.patch("policy/v1", "PodDisruptionBudget", *key_of(budget), {"status": status}, "status")


def _picks(selector: LabelSelector | None, pod: Item) -> bool:
    return selectors.matches(selector, pod["metadata"].get("labels") or {})


def _counted_by(pod: Item) -> tuple[object, ...]:
    """What a budget reads of a pod."""
    meta = pod["metadata"]
    return is_active(pod), is_ready(pod), meta.get("labels"), meta.get("ownerReferences")
