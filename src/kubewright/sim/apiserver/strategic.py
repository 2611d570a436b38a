"""Strategic merge patch: a merge patch that knows which lists are merged by which key.

Source: k8s.io/apimachinery v0.36 pkg/util/strategicpatch; the keys are the patchMergeKey tags of k8s.io/api.
"""

from collections.abc import Mapping
from typing import Any

from kubewright.api.fields import Field, fields_of
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind

_MERGE_KEYS: Mapping[tuple[str, str], str] = {
    ("ObjectMeta", "ownerReferences"): "uid",
    ("PodSpec", "containers"): "name",
    ("PodSpec", "initContainers"): "name",
    ("PodSpec", "ephemeralContainers"): "name",
    ("PodSpec", "hostAliases"): "ip",
    ("PodSpec", "imagePullSecrets"): "name",
    ("PodSpec", "resourceClaims"): "name",
    ("PodSpec", "schedulingGates"): "name",
    ("PodSpec", "topologySpreadConstraints"): "topologyKey",
    ("PodSpec", "volumes"): "name",
    ("Container", "env"): "name",
    ("Container", "ports"): "containerPort",
    ("Container", "volumeDevices"): "devicePath",
    ("Container", "volumeMounts"): "mountPath",
    ("ProjectedVolumeSource", "sources"): "",
    ("NodeSpec", "podCIDRs"): "",
    ("NodeStatus", "addresses"): "type",
    ("ServiceSpec", "ports"): "port",
    ("ServiceAccount", "secrets"): "name",
    ("ServiceAccount", "imagePullSecrets"): "name",
    ("PodStatus", "podIPs"): "ip",
    ("PodStatus", "hostIPs"): "ip",
    ("PodStatus", "resourceClaimStatuses"): "name",
    ("CSINodeSpec", "drivers"): "name",
    ("ValidatingWebhookConfiguration", "webhooks"): "name",
}

_CONDITIONS_REPLACED = {"CronJobStatus"}

_SET_LISTS = {("ObjectMeta", "finalizers"), ("NodeSpec", "podCIDRs")}
"""Lists of plain values that are merged as sets."""

_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def merge(kind: Kind, old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`old` after `patch`; neither is changed. Raises KubeError (400): the patch's directives make no sense."""
    return _struct(kind.model, old, patch)


def _struct(model: Any, old: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive == "delete":
        return {}
    result = dict(old) if isinstance(old, Mapping) else {}
    if _RETAIN in patch:
        kept = set(patch[_RETAIN])
        result = {k: v for k, v in result.items() if k in kept}
    known = fields_of(model) if model is not None else {}
    for name, value in patch.items():
        if name.startswith(("$", _ORDER)) and not name.startswith(_DELETE_FROM):
            continue
        if name.startswith(_DELETE_FROM):
            real = name.removeprefix(_DELETE_FROM)
            gone = set(value)
            result[real] = [v for v in result.get(real) or () if v not in gone]
            continue
        field = known.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = _struct(field.model if field else None, result.get(name), value)
        elif isinstance(value, list):
            order = patch.get(_ORDER + name)
            result[name] = _list(model, name, field, result.get(name) or [], value, order)
        else:
            result[name] = value
    for name, order in patch.items():  # an order alone, when the only change is a removal from the list
        if name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch:
            real = name.removeprefix(_ORDER)
            if isinstance(result.get(real), list):
                result[real] = _ordered(result[real], order, merge_key(model, real))
    return result


def merge_key(model: Any, name: str) -> str:
    """The key by which list `name` of `model` is merged; "" when it is replaced whole."""
    if model is None:
        return ""
    if name == "conditions" and model.__name__ not in _CONDITIONS_REPLACED:
        return "type"
    return _MERGE_KEYS.get((model.__name__, name), "")


def is_set(model: Any, name: str) -> bool:
    """Whether list `name` of `model` holds plain values that are merged as a set."""
    return model is not None and (model.__name__, name) in _SET_LISTS


def _list(model: Any, name: str, field: Field | None, old: list[Any], patch: list[Any], order: Any) -> list[Any]:
    key = merge_key(model, name)
    if is_set(model, name):
        merged = [*old, *(value for value in patch if value not in old)]
        return _ordered(merged, order, "")
    if not key:
        return [value for value in patch if not (isinstance(value, Mapping) and "$patch" in value)]
    if any(isinstance(one, Mapping) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if one.get("$patch") != "replace"]
    result = list(old)
    for one in patch:
        if not isinstance(one, Mapping) or key not in one:
            raise answers.bad_request(f"map: {answers.go_value(one)} does not contain declared merge key: {key}")
        at = next((n for n, item in enumerate(result) if item.get(key) == one[key]), None)
        if one.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_struct(field.model if field else None, {}, one))
        else:
            result[at] = _struct(field.model if field else None, result[at], one)
    return _ordered(result, order, key)


def _ordered(items: list[Any], order: Any, key: str) -> list[Any]:
    """`items` with those that `order` names in its order; the others stay behind the neighbour they had."""
    if not order:
        return items
    wanted = [one[key] if key and isinstance(one, Mapping) else one for one in order]

    def named(item: Any) -> Any:
        return item.get(key) if key else item

    placed = sorted((item for item in items if named(item) in wanted), key=lambda item: wanted.index(named(item)))
    result: list[Any] = []
    ahead = 0
    for item in items:
        if named(item) in wanted:
            result.append(placed[ahead])
            ahead += 1
        else:
            result.append(item)
    return result
