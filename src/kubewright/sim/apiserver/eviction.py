"""The eviction subresource: delete a pod if its PodDisruptionBudget can spare it.

Source: k8s.io/kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go.
"""

from typing import TYPE_CHECKING

import msgspec

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Item

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store

_MOST_DISRUPTED = 2000
"""Source: MaxDisruptedPodSize."""

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(
    store: "Store", namespace: str, name: str, *, uid: str, grace_period_s: int | None, dry_run: bool, version: str = ""
) -> None:
    pods = store.kind("v1", "Pod")
    namespace = namespace or "default"
    pod = store.peek(pods, namespace, name)

    def delete(version: str) -> None:
        store.delete(
            "v1",
            "Pod",
            namespace,
            name,
            uid=uid,
            resource_version=version,
            grace_period_s=grace_period_s,
            dry_run=dry_run,
        )

    if _needs_no_budget(pod):
        delete(version)
        return
    store.check_preconditions(pods, pod, uid, version)
    budgets = _budgets_of(store, pod)
    if not budgets:
        delete(version)
        return
    if len(budgets) > 1:
        raise answers.internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    budget = budgets[0]
    policy = budget["spec"].get("unhealthyPodEvictionPolicy")
    if not _is_ready(pod):
        status = budget.get("status") or {}
        guarded = policy != "AlwaysAllow"
        healthy_enough = (
            status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) and status.get("desiredHealthy", 0) > 0
        )
        if not guarded or healthy_enough:
            # the pod is counted as unhealthy already, so no budget is spent; a pod that became ready meanwhile is not this pod
            delete(version or pod["metadata"]["resourceVersion"])
            return
    _spend(store, budget, name, dry_run=dry_run)
    delete(version)


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
    new = store.thawed(budget)
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
