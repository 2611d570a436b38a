"""Selectors, expressions, tolerations, by Kubernetes' own rules. Imports nothing of kubewright."""

from typing import Any

from tests.conformance.validator.amounts import J

ANYTHING = "\0anything"
"""A label's value that nobody knows yet."""


OLD_NAMES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""Labels that nodes carry under two names."""


def labels_of(one: J) -> dict[str, str]:
    return dict(one["metadata"].get("labels") or {})


def namespace_of(one: J) -> str:
    return str(one["metadata"].get("namespace", ""))


def key_of(one: J) -> str:
    return f"{namespace_of(one)}/{one['metadata']['name']}"


def selects(selector: J | None, one: J) -> bool:
    """Whether a label selector picks the object; none picks nothing, an empty one everything."""
    if selector is None:
        return False
    labels = labels_of(one)
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(
        expression_holds(e, {labels[e["key"]]} if e["key"] in labels else set(), of_node=False)
        for e in selector.get("matchExpressions") or ()
    )


def expression_holds(e: J, values: set[str], *, of_node: bool = True) -> bool:
    """Whether the expression holds whichever of `values` the label has; empty means that it is missing."""
    listed = set(e.get("values") or ())
    match e["operator"]:
        case "In":
            return bool(values) and values <= listed
        case "NotIn":
            return not values & listed and not (of_node and ANYTHING in values)
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values
        case "Gt":
            return bool(values) and all(_number(v, e, lambda a, b: a > b) for v in values)
        case "Lt":
            return bool(values) and all(_number(v, e, lambda a, b: a < b) for v in values)
    return False


def _number(value: str, e: J, holds: Any) -> bool:
    try:
        return bool(holds(int(value), int(e["values"][0])))
    except (ValueError, IndexError, KeyError):
        return False


def tolerates(toleration: J, taint: J) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]):
        return False
    key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint["key"])
    if operator in ("Gt", "Lt") and key == taint["key"]:
        return expression_holds({"operator": operator, "values": [toleration.get("value", "")]}, {taint.get("value", "")})
    return bool(key == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def tolerated(pod_spec: J, taints: list[J]) -> J | None:
    """The first taint that keeps the pod off, None when none does. Preferences keep nobody off."""
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not any(tolerates(t, taint) for t in pod_spec.get("tolerations") or ()):
            return taint
    return None
