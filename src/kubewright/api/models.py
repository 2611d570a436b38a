"""The core kinds as Kubernetes defines them: every field and its type, read off lightkube's generated models.

Our own structs of these kinds are narrow; manifests are checked against the whole. Only the data models are used, no client.
"""

import importlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kubewright.api import quantity
from kubewright.api.fields import Field, fields_of
from kubewright.api.findings import NO_QUANTITY, Finding, near_quantity, nearest, nest, quoted

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "ConfigMap"): "core_v1",
    ("v1", "Endpoints"): "core_v1",
    ("v1", "Namespace"): "core_v1",
    ("v1", "Node"): "core_v1",
    ("v1", "PersistentVolume"): "core_v1",
    ("v1", "PersistentVolumeClaim"): "core_v1",
    ("v1", "Pod"): "core_v1",
    ("v1", "Secret"): "core_v1",
    ("v1", "Service"): "core_v1",
    ("v1", "ServiceAccount"): "core_v1",
    ("apps/v1", "DaemonSet"): "apps_v1",
    ("apps/v1", "Deployment"): "apps_v1",
    ("apps/v1", "ReplicaSet"): "apps_v1",
    ("apps/v1", "StatefulSet"): "apps_v1",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling_v2",
    ("batch/v1", "CronJob"): "batch_v1",
    ("batch/v1", "Job"): "batch_v1",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networking_v1",
    ("node.k8s.io/v1", "RuntimeClass"): "node_v1",
    ("policy/v1", "PodDisruptionBudget"): "policy_v1",
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): "rbac_v1",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "rbac_v1",
    ("rbac.authorization.k8s.io/v1", "Role"): "rbac_v1",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rbac_v1",
    ("scheduling.k8s.io/v1", "PriorityClass"): "scheduling_v1",
    ("storage.k8s.io/v1", "CSINode"): "storage_v1",
    ("storage.k8s.io/v1", "StorageClass"): "storage_v1",
}
"""(apiVersion, kind) → the module of models that has it."""

_QUANTITIES = frozenset({"requests", "limits", "capacity", "allocatable", "overhead", "podFixed"})
_QUANTITY_OWNERS = frozenset(
    {"ResourceRequirements", "VolumeResourceRequirements", "NodeStatus", "PersistentVolumeSpec", "PodSpec", "Overhead"}
)
_TEXT_MAPS = frozenset(
    {"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "binaryData", "parameters", "selector"}
)
_WORDS = {
    "str": "a text (in quotes if it looks like a number)",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def check(obj: Mapping[str, Any]) -> Iterator[Finding]:
    """Unknown fields, wrong types, unreadable quantities and missing required fields of a core object."""
    module = importlib.import_module("lightkube.models." + KINDS[str(obj["apiVersion"]), str(obj["kind"])])
    model = getattr(module, str(obj["kind"]))
    yield from _struct(model, {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}, "")


def check_metadata(obj: Mapping[str, Any]) -> Iterator[Finding]:
    """The same for the metadata of an object of any kind."""
    meta = obj.get("metadata")
    if isinstance(meta, dict):
        yield from _struct(importlib.import_module("lightkube.models.meta_v1").ObjectMeta, meta, "metadata")


def _struct(model: Any, value: Mapping[str, Any], path: str) -> Iterator[Finding]:
    known = fields_of(model)
    for name, written in value.items():
        here = f"{path}.{name}" if path else name
        field = known.get(name)
        if field is None:
            yield _unknown(name, here, path, written, model)
        elif written is not None:
            yield from _field(model, name, field, written, here)
    for name, field in known.items():
        here = f"{path}.{name}" if path else name
        if field.required and value.get(name) is None and name not in ("apiVersion", "kind"):
            yield Finding(here, f"found nothing, but {model.__name__} requires it", nest(here, _example(field)))


def _unknown(name: str, here: str, path: str, written: Any, model: Any) -> Finding:
    known = fields_of(model)
    near = nearest(name, known)
    found = f"found {quoted(written)}, but {model.__name__} has no field of this name"
    if near is not None:
        return Finding(here, f"{found}; did you mean {near}?", nest(f"{path}.{near}" if path else near, written))
    for outer in sorted(known):
        child = known[outer]
        if child.model is not None and not child.many and name in fields_of(child.model):
            right = f"{path}.{outer}.{name}" if path else f"{outer}.{name}"
            return Finding(here, f"{found}; it belongs at {right}", nest(right, written))
    return Finding(here, f"{found}; take it out, or use one of: {', '.join(sorted(known))}")


def _field(model: Any, name: str, field: Field, written: Any, path: str) -> Iterator[Finding]:
    if not field.many:
        yield from _leaf(model, name, field, written, path)
    elif isinstance(written, list):
        for index, item in enumerate(written):
            yield from _leaf(model, name, field, item, f"{path}[{index}]")
    else:
        yield Finding(path, f"found {quoted(written)}; it must be a list", nest(path, [written]))


def _leaf(model: Any, name: str, field: Field, written: Any, path: str) -> Iterator[Finding]:
    if field.leaf == "model":
        if isinstance(written, dict):
            yield from _struct(field.model, written, path)
        else:
            inside = next((n for n, f in fields_of(field.model).items() if f.required), next(iter(fields_of(field.model))))
            says = f"found {quoted(written)}; it must be a mapping ({field.model.__name__})"
            yield Finding(path, says, nest(path, {inside: "..."}))
    elif field.leaf == "dict":
        yield from _map(model, name, written, path)
    elif field.leaf == "Quantity":
        yield from _quantity(written, path)
    elif field.leaf in ("Time", "MicroTime"):
        if not _is_moment(written):
            says = f"found {quoted(written)}; it must be a moment such as 2026-01-31T00:00:00Z"
            yield Finding(path, says, nest(path, "2026-01-31T00:00:00Z"))
    elif field.leaf != "any" and not _is_a(field.leaf, written):
        wanted = _WORDS.get(field.leaf, "a whole number or a text")
        yield Finding(path, f"found {quoted(written)}; it must be {wanted}", nest(path, _converted(field.leaf, written)))


def _map(model: Any, name: str, written: Any, path: str) -> Iterator[Finding]:
    if not isinstance(written, dict):
        yield Finding(path, f"found {quoted(written)}; it must be a mapping", nest(path, {"key": "value"}))
        return
    for key, value in written.items():
        here = f"{path}.{key}"
        if name in _QUANTITIES and model.__name__ in _QUANTITY_OWNERS:
            yield from _quantity(value, here)
        elif name in _TEXT_MAPS and not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
            yield Finding(here, f"found {quoted(value)}; it must be a text, so put it in quotes", nest(path, {key: text}))


def _quantity(written: Any, path: str) -> Iterator[Finding]:
    head, _, key = path.rpartition(".")
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        yield Finding(path, f"found {quoted(written)}; it must be a quantity", nest(head, {key: "100m"}))
        return
    try:
        text = written if isinstance(written, str | int) else repr(written)
        # the server reads a text without digits as 0; nobody means that
        amount = quantity.parse(text if isinstance(text, int) or any(ch.isdigit() for ch in text) else "")
    except ValueError:
        says = f"found {quoted(written)}, {NO_QUANTITY}"
        yield Finding(path, says, nest(head, {key: near_quantity(str(written))}))
        return
    if amount < 0:
        yield Finding(path, f"found {quoted(written)}; an amount cannot be negative", nest(head, {key: str(written).lstrip("-")}))


def _is_a(leaf: str, value: Any) -> bool:
    if isinstance(value, bool):
        return leaf == "bool"
    if leaf == "int":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "float": (int, float), "IntOrString": (int, str)}
    return isinstance(value, kinds[leaf])


def _converted(leaf: str, written: Any) -> Any:
    if leaf == "str":
        return str(written).lower() if isinstance(written, bool) else str(written) if isinstance(written, int | float) else "..."
    if leaf == "bool":
        return str(written).lower() in ("true", "yes", "1", "on")
    digits = "".join(ch for ch in str(written) if ch.isdigit())
    return int(digits) if digits and not isinstance(written, float) else round(written) if isinstance(written, float) else 1


def _example(field: Field) -> Any:
    plain: dict[str, Any] = {"str": "...", "int": 1, "bool": True, "float": 1.0, "dict": {}, "Quantity": "100m"}
    value = plain.get(field.leaf, {})
    if field.model is not None:
        value = {name: _example(inner) for name, inner in fields_of(field.model).items() if inner.required}
    return [value] if field.many else value


def _is_moment(written: Any) -> bool:
    try:
        return isinstance(written, str) and datetime.fromisoformat(written).tzinfo is not None
    except ValueError:
        return False
