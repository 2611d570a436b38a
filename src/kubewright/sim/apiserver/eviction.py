"""The eviction subresource: delete a pod if its PodDisruptionBudget can spare it.

Source: k8s.io/kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go.
"""

from typing import TYPE_CHECKING

import msgspec

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector
from kubewright.sim.apiserver import answers, deletion
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Item, thaw

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store

_MOST_DISRUPTED = 2000
"""Source: MaxDisruptedPodSize."""

_TOO_MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


class Asked(msgspec.Struct, frozen=True):
    """The delete options that came with the eviction."""

    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    dry_run: bool = False


def evict(store: "Store", namespace: str, name: str, asked: Asked) -> None:
    pods = store.kind("v1", "Pod")
    pod = store.peek(pods, namespace, name)
    version = asked.resource_version
    if not _needs_no_budget(pod):
        deletion.check_preconditions(pods, pod, asked.uid, version)
        budgets = _budgets_of(store, pod)
        if len(budgets) > 1:
            raise answers.internal(_TOO_MANY_BUDGETS)
        if budgets and _is_unhealthy_and_free(pod, budgets[0]):
            # No budget is spent on a pod that counts as unhealthy already; one that became ready meanwhile is not this pod.
            version = version or pod["metadata"]["resourceVersion"]
        elif budgets:
            _spend(store, budgets[0], name, dry_run=asked.dry_run)
    if not asked.dry_run and "deletionTimestamp" not in pod["metadata"]:
        deletion.check_preconditions(pods, pod, asked.uid, version)
        marked = _mark(store, pods, pod)
        version = version and marked["metadata"]["resourceVersion"]
    store.delete(
        "v1",
        "Pod",
        namespace,
        name,
        uid=asked.uid,
        resource_version=version,
        grace_period_s=asked.grace_period_s,
        dry_run=asked.dry_run,
    )


def _mark(store: "Store", pods: Kind, pod: Item) -> Item:
    """The pod with the condition by which Jobs tell an eviction from a failure of its own."""
    new = thaw(pod)
    status = new.setdefault("status", {})
    status["conditions"] = [c for c in status.get("conditions") or () if c["type"] != "DisruptionTarget"] + [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": store.stamp(),
        }
    ]
    return store.write("update", pods, (pod["metadata"]["namespace"], pod["metadata"]["name"]), new)


def _is_unhealthy_and_free(pod: Item, budget: Item) -> bool:
    """Whether unhealthyPodEvictionPolicy lets this pod go without asking the budget."""
    if _is_ready(pod):
        return False
    status = budget.get("status") or {}
    always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return bool(always or 0 < status.get("desiredHealthy", 0) <= status.get("currentHealthy", 0))


def _needs_no_budget(pod: Item) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budgets_of(store: "Store", pod: Item) -> list[Item]:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    if not labels:
        return []
    found = []
    for budget in store.table(_budget_kind(store)).items(meta["namespace"]):
        written = budget.get("spec", {}).get("selector")
        selector = None if written is None else msgspec.convert(written, LabelSelector)
        if selectors.matches(selector, labels):
            found.append(budget)
    return found


def _budget_kind(store: "Store") -> Kind:
    return store.kind("policy/v1", "PodDisruptionBudget")


def _is_ready(pod: Item) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or ())


def _spend(store: "Store", budget: Item, pod: str, *, dry_run: bool) -> None:
    """Take one disruption out of the budget, and note the pod so that the controller counts it as gone already."""
    kind = _budget_kind(store)
    meta, status = budget["metadata"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {meta['name']} is still being processed by the server.",
        }
        raise answers.too_many_requests(_REFUSED, [cause], retry_after_s=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise answers.forbidden(kind, meta["name"], "pdb disruptions allowed is negative")
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > _MOST_DISRUPTED:
        raise answers.forbidden(
            kind, meta["name"], "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if allowed == 0:
        raise answers.too_many_requests(_REFUSED, [{"reason": "DisruptionBudget", "message": _why(meta["name"], status)}])
    new = thaw(budget)
    new["status"]["disruptionsAllowed"] = allowed - 1
    new["status"]["disruptedPods"] = {**disrupted, pod: store.stamp()}
    conditions = [c for c in status.get("conditions") or () if c["type"] != "DisruptionAllowed"]
    if allowed == 1:
        conditions.append(
            {
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "InsufficientPods",
                "message": "",
                "observedGeneration": status.get("observedGeneration", 0),
                "lastTransitionTime": store.stamp(),
            }
        )
        new["status"]["conditions"] = conditions
    if not dry_run:
        store.write("update", kind, (meta["namespace"], meta["name"]), new)


def _why(name: str, status: Item) -> str:
    for condition in status.get("conditions") or ():
        if (
            condition["type"] == "DisruptionAllowed"
            and condition["status"] == "False"
            and condition.get("reason") == "SyncFailed"
        ):
            return (
                f"The disruption budget {name} does not allow evicting pods currently because it failed sync: "
                f"{condition.get('message', '')}"
            )
    healthy = status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has {healthy} currently"
