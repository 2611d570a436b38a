"""The scale subresource: replicas seen and set without knowing the kind. Source: autoscaling/v1 Scale."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Item, Key, thaw

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store, Wanted


def scale_of(kind: Kind, obj: Item) -> Item:
    """The Scale that stands for `obj`. Raises NotFound: this kind has none."""
    if "scale" not in kind.subresources:
        raise answers.no_such_resource()
    paths = _paths(kind)
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    wanted = _at(obj, paths["specReplicasPath"])
    status: Item = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    selector = _selector_text(_at(obj, paths["labelSelectorPath"])) if paths.get("labelSelectorPath") else ""
    if selector:
        status["selector"] = selector
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": status,
    }


def put(store: "Store", kind: Kind, key: Key, old: Item, scale: Item, *, dry_run: bool = False) -> Item:
    """Set `old`'s replicas to what `scale` says, and return the new Scale. Raises Conflict, Invalid."""
    replicas = scale.get("spec", {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        cause = answers.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise answers.bad_scale(key[1], cause)
    new = thaw(old)
    path = _paths(kind)["specReplicasPath"].lstrip(".").split(".")
    holder = new
    for part in path[:-1]:
        holder = holder.setdefault(part, {})
    holder[path[-1]] = replicas
    new["metadata"]["resourceVersion"] = scale.get("metadata", {}).get("resourceVersion", "")
    return scale_of(kind, store.replace("update", kind, key, old, new, "", dry_run=dry_run))


def patch(store: "Store", kind: Kind, key: Key, old: Item, wanted: "Wanted", *, dry_run: bool = False) -> Item:
    scale = scale_of(kind, old)
    return put(store, kind, key, old, store.patched(kind, scale, wanted), dry_run=dry_run)


def _paths(kind: Kind) -> Mapping[str, str]:
    return kind.scale_paths or {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".spec.selector",
    }


def _at(obj: Any, path: str) -> Any:
    for part in path.lstrip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    words = {"In": "in", "NotIn": "notin"}
    for term in selector.get("matchExpressions") or ():
        operator, key = term["operator"], term["key"]
        if operator in words:
            parts.append(f"{key} {words[operator]} ({','.join(sorted(term['values']))})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(parts)
