"""What a write may touch: who owns status, spec and metadata in which call, and when generation moves.

Source: the `strategy.go` of each kind in k8s.io/kubernetes v1.36 pkg/registry, and
k8s.io/apiextensions-apiserver pkg/registry/customresource for custom kinds.
"""

from typing import Any

from kubewright.sim.apiserver.kinds import Kind

Item = dict[str, Any]

_WITH_GENERATION = {
    "ControllerRevision": False,
    "CronJob": True,
    "CustomResourceDefinition": True,
    "DaemonSet": True,
    "Deployment": True,
    "EndpointSlice": True,
    "Ingress": True,
    "IngressClass": True,
    "Job": True,
    "NetworkPolicy": True,
    "Pod": True,
    "PodDisruptionBudget": True,
    "PriorityClass": True,
    "ReplicaSet": True,
    "StatefulSet": True,
}

_STATUS_KEPT_ON_CREATE = {"Node", "CSINode"}
"""The kubelet creates its Node with a status, and the server lets it."""

_OUTSIDE_SPEC = {"apiVersion", "kind", "metadata", "status"}

_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation")


def has_generation(kind: Kind) -> bool:
    return kind.custom or _WITH_GENERATION.get(kind.kind, False)


def reset_for_create(kind: Kind, obj: Item) -> None:
    """Take away what a creator may not say: status, and the server's own metadata."""
    meta = obj["metadata"]
    for field in (*_SERVER_OWNED, "managedFields"):
        meta.pop(field, None)
    if has_generation(kind):
        meta["generation"] = 1
    if "status" in kind.subresources and kind.kind not in _STATUS_KEPT_ON_CREATE:
        obj.pop("status", None)
        blank = _first_status(kind)
        if blank is not None:
            obj["status"] = blank


def _first_status(kind: Kind) -> Item | None:
    if kind.custom:
        return None
    match kind.kind:
        case "Pod":
            return {"phase": "Pending"}
        case "Namespace":
            return {"phase": "Active"}
        case "PersistentVolumeClaim" | "PersistentVolume":
            return {"phase": "Pending"}
        case "Service":
            return {"loadBalancer": {}}
        case _:
            return {}


def reconcile_update(kind: Kind, new: Item, old: Item, subresource: str) -> None:
    """Put back in `new` whatever this call may not change."""
    meta, before = new["metadata"], old["metadata"]
    for field in ("namespace", *_SERVER_OWNED):
        _carry(meta, before, field)
    meta.pop("managedFields", None)
    if subresource == "status":
        _keep_all_but_status(kind, new, old)
    elif "status" in kind.subresources:
        _carry(new, old, "status")
    if subresource != "finalize" and kind.kind == "Namespace":
        _keep_namespace_finalizers(new, old)


def move_generation(kind: Kind, new: Item, old: Item) -> None:
    """Count a change of the wish, once everything has been filled in: what was only left out is no change."""
    if has_generation(kind) and _wish(new) != _wish(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _keep_all_but_status(kind: Kind, new: Item, old: Item) -> None:
    for field in (set(new) | set(old)) - _OUTSIDE_SPEC:
        _carry(new, old, field)
    if kind.custom:
        new["metadata"] = {**old["metadata"], "resourceVersion": new["metadata"].get("resourceVersion", "")}
    elif kind.kind == "Deployment":
        _carry(new["metadata"], old["metadata"], "labels")
    elif kind.kind == "Pod":
        _carry(new["metadata"], old["metadata"], "ownerReferences")


def _keep_namespace_finalizers(new: Item, old: Item) -> None:
    spec = {**new.get("spec", {})}
    _carry(spec, old.get("spec", {}), "finalizers")
    if spec or "spec" in old:
        new["spec"] = spec


def _carry(new: Item, old: Item, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _wish(obj: Item) -> Item:
    return {field: value for field, value in obj.items() if field not in _OUTSIDE_SPEC}
