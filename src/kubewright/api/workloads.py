"""What types alone cannot see in core manifests: names, labels, selectors, containers, amounts.

Source: k8s.io/kubernetes pkg/apis/*/validation, the rules people trip over; the API server has the last word on the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubewright.api import labels, olds, quantity, selectors
from kubewright.api.findings import Finding, nearest, nest, quoted
from kubewright.api.meta import LabelSelector

Obj = Mapping[str, Any]

_DNS_LABEL_NAMES = frozenset({"Namespace", "Service", "StatefulSet"})
_CLUSTER_SCOPED = frozenset(
    {
        "Namespace",
        "Node",
        "PersistentVolume",
        "ClusterRole",
        "ClusterRoleBinding",
        "RuntimeClass",
        "PriorityClass",
        "CSINode",
        "StorageClass",
        "NodePool",
        "NodeClaim",
        "NodeOverlay",
        "EC2NodeClass",
    }
)
_TEMPLATES = {
    "Deployment": "spec.template",
    "ReplicaSet": "spec.template",
    "StatefulSet": "spec.template",
    "DaemonSet": "spec.template",
    "Job": "spec.template",
    "CronJob": "spec.jobTemplate.spec.template",
}
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTART = {"Deployment": ("Always",), "ReplicaSet": ("Always",), "StatefulSet": ("Always",), "DaemonSet": ("Always",)} | {
    "Job": ("OnFailure", "Never"),
    "CronJob": ("OnFailure", "Never"),
}


def metadata(obj: Obj) -> Iterator[Finding]:
    """Name, namespace and labels of any object."""
    kind, meta = str(obj["kind"]), obj.get("metadata")
    if not isinstance(meta, dict):
        yield Finding("metadata", f"found {quoted(meta)}; every object needs a name", nest("metadata.name", "my-" + kind.lower()))
        return
    name, prefix = meta.get("name"), meta.get("generateName")
    if not name and not prefix:
        yield Finding("metadata.name", "found nothing; every object needs a name", nest("metadata.name", "my-" + kind.lower()))
    elif isinstance(name, str) and name:
        problems = labels.label_problems(name) if kind in _DNS_LABEL_NAMES else labels.subdomain_problems(name)
        if problems:
            yield Finding("metadata.name", f"found {quoted(name)}: {problems[0]}", nest("metadata.name", _as_name(name)))
    if kind in _CLUSTER_SCOPED and meta.get("namespace"):
        yield Finding(
            "metadata.namespace", f"found {quoted(meta['namespace'])}, but a {kind} belongs to no namespace; take it out"
        )
    yield from _labels(meta.get("labels"), "metadata.labels")
    yield from _keys(meta.get("annotations"), "metadata.annotations")


def check(obj: Obj) -> Iterator[Finding]:
    """The rest of a core object; its types have been checked."""
    kind, spec = str(obj["kind"]), obj.get("spec") or {}
    if kind == "Pod":
        yield from _pod(obj.get("metadata"), spec, "metadata", "spec")
    if kind in _TEMPLATES:
        yield from _workload(kind, obj)
    if kind == "PodDisruptionBudget":
        yield from _disruption_budget(spec)
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        yield Finding("spec.replicas", f"found {replicas}; it cannot be negative", nest("spec.replicas", 0))


def _workload(kind: str, obj: Obj) -> Iterator[Finding]:
    path = _TEMPLATES[kind]
    template: Any = obj
    for step in path.split("."):
        template = template.get(step) if isinstance(template, dict) else None
    if not isinstance(template, dict):
        mended = {"metadata": {"labels": {"app": "my-app"}}, "spec": {"containers": [{"name": "app", "image": "my-image"}]}}
        yield Finding(path, "found nothing, but it is required", nest(path, mended))
        return
    yield from _labels((template.get("metadata") or {}).get("labels"), f"{path}.metadata.labels")
    pod_spec = template.get("spec") or {}
    yield from _pod(template.get("metadata"), pod_spec, f"{path}.metadata", f"{path}.spec")
    policy, allowed = pod_spec.get("restartPolicy", "Always"), _RESTART[kind]
    if policy not in allowed:
        at = f"{path}.spec.restartPolicy"
        found = quoted(policy) if "restartPolicy" in pod_spec else "nothing, which means Always"
        yield Finding(at, f"found {found}; a {kind} takes {' or '.join(allowed)}", nest(at, allowed[0]))
    if kind not in ("Job", "CronJob"):
        yield from _selector_fits(obj["spec"].get("selector"), (template.get("metadata") or {}).get("labels") or {}, path)


def _selector_fits(written: Any, found: Mapping[str, Any], path: str) -> Iterator[Finding]:
    mended = {"spec": {"selector": {"matchLabels": dict(found) or {"app": "my-app"}}}}
    if not isinstance(written, dict) or not (written.get("matchLabels") or written.get("matchExpressions")):
        yield Finding("spec.selector", "found nothing; it must select the template's labels", mended)
        return
    if list(_selector(written, "spec.selector")) or not all(isinstance(v, str) for v in found.values()):
        return
    if not selectors.matches(msgspec.convert(written, LabelSelector), found):
        says = (
            f"found {quoted(written)}, which does not select the template's labels {quoted(dict(found))} ({path}.metadata.labels)"
        )
        yield Finding("spec.selector", says, mended)


def _pod(meta: Any, spec: Obj, meta_path: str, path: str) -> Iterator[Finding]:
    yield from olds.pod_findings(meta, spec, meta_path, path)
    containers = spec.get("containers") or []
    if not containers:
        at = f"{path}.containers"
        yield Finding(at, "found none; a pod needs at least one", nest(at, [{"name": "app", "image": "my-image"}]))
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            yield from _container(container, f"{path}.{group}[{index}]", seen)
    yield from _labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    yield from _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    for index, toleration in enumerate(spec.get("tolerations") or []):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or []):
        yield from _spread(spread, f"{path}.topologySpreadConstraints[{index}]")


def _container(container: Obj, path: str, seen: set[str]) -> Iterator[Finding]:
    name = container.get("name")
    if isinstance(name, str):
        problems = labels.label_problems(name)
        if problems:
            yield Finding(f"{path}.name", f"found {quoted(name)}: {problems[0]}", nest(f"{path}.name", _as_name(name)))
        if name in seen:
            yield Finding(f"{path}.name", f"found {quoted(name)} twice in one pod", nest(f"{path}.name", f"{name}-2"))
        seen.add(name)
    if not container.get("image"):
        yield Finding(f"{path}.image", "found nothing, but it is required", nest(f"{path}.image", "my-image"))
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for key, wanted in (resources.get("requests") or {}).items():
        limit = limits.get(key)
        if limit is not None and _amount(wanted) > _amount(limit):
            at = f"{path}.resources.requests.{key}"
            mended = nest(f"{path}.resources", {"requests": {key: limit}})
            yield Finding(at, f"found {quoted(wanted)}, more than the limit {quoted(limit)}", mended)


def _affinity(affinity: Obj, path: str) -> Iterator[Finding]:
    node = affinity.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    base = f"{path}.nodeAffinity"
    if isinstance(required, dict):
        at = f"{base}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for index, term in enumerate(required.get("nodeSelectorTerms") or []):
            yield from _expressions(term, f"{at}[{index}]", _NODE_OPERATORS)
    for index, preferred in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
        at = f"{base}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        weight = preferred.get("weight")
        if isinstance(weight, int) and not 1 <= weight <= 100:
            yield Finding(
                f"{at}.weight", f"found {weight}; it must be from 1 to 100", nest(f"{at}.weight", min(max(weight, 1), 100))
            )
        yield from _expressions(preferred.get("preference") or {}, f"{at}.preference", _NODE_OPERATORS)
    for kind in ("podAffinity", "podAntiAffinity"):
        group = affinity.get(kind) or {}
        for index, term in enumerate(group.get("requiredDuringSchedulingIgnoredDuringExecution") or []):
            at = f"{path}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
            yield from _pod_term(term, at)
        for index, weighted in enumerate(group.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
            at = f"{path}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm"
            yield from _pod_term(weighted.get("podAffinityTerm") or {}, at)


def _pod_term(term: Obj, path: str) -> Iterator[Finding]:
    if not term.get("topologyKey"):
        at = f"{path}.topologyKey"
        yield Finding(at, "found nothing, but it is required", nest(at, labels.HOSTNAME))
    yield from _selector(term.get("labelSelector"), f"{path}.labelSelector")


def _toleration(toleration: Obj, path: str) -> Iterator[Finding]:
    operator = toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        right = nearest(operator, ("Equal", "Exists")) or "Equal"
        yield Finding(
            f"{path}.operator", f"found {quoted(operator)}; it must be Equal or Exists", nest(f"{path}.operator", right)
        )
    if operator == "Exists" and toleration.get("value"):
        says = f"found {quoted(toleration['value'])}; with Exists there is no value, take it out"
        yield Finding(f"{path}.value", says, nest(path, {"key": toleration.get("key", ""), "operator": "Exists"}))
    if not toleration.get("key") and operator != "Exists":
        says = "found no key; only Exists tolerates everything"
        yield Finding(f"{path}.key", says, nest(path, {"operator": "Exists"}))
    yield from _one_of(toleration, "effect", _EFFECTS, path)


def _spread(spread: Obj, path: str) -> Iterator[Finding]:
    skew = spread.get("maxSkew")
    if isinstance(skew, int) and skew < 1:
        yield Finding(f"{path}.maxSkew", f"found {skew}; it must be at least 1", nest(f"{path}.maxSkew", 1))
    yield from _one_of(spread, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"), path)
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        yield from _one_of(spread, name, ("Honor", "Ignore"), path)
    yield from _selector(spread.get("labelSelector"), f"{path}.labelSelector")


def _one_of(obj: Obj, name: str, allowed: tuple[str, ...], path: str) -> Iterator[Finding]:
    found = obj.get(name)
    if found and found not in allowed:
        right = nearest(str(found), allowed) or allowed[0]
        says = f"found {quoted(found)}; it must be one of {', '.join(allowed)}"
        yield Finding(f"{path}.{name}", says, nest(f"{path}.{name}", right))


def _disruption_budget(spec: Obj) -> Iterator[Finding]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        says = "found both minAvailable and maxUnavailable; only one may be set"
        yield Finding("spec.maxUnavailable", says, nest("spec.minAvailable", spec["minAvailable"]))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        bad_text = isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit())
        if bad_text or (isinstance(value, int) and value < 0):
            says = f"found {quoted(value)}; it must be a number of pods or a percentage"
            yield Finding(f"spec.{name}", says, nest(f"spec.{name}", 1))
    yield from _selector(spec.get("selector"), "spec.selector")


def _selector(written: Any, path: str) -> Iterator[Finding]:
    if isinstance(written, dict):
        yield from _labels(written.get("matchLabels"), f"{path}.matchLabels")
        yield from _expressions(written, path, _LABEL_OPERATORS)


def _expressions(term: Obj, path: str, allowed: tuple[str, ...]) -> Iterator[Finding]:
    for index, expression in enumerate(term.get("matchExpressions") or []):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator"), expression.get("values") or []
        if operator not in allowed:
            right = nearest(str(operator), allowed) or "In"
            says = f"found {quoted(operator)}; it must be one of {', '.join(allowed)}"
            yield Finding(f"{at}.operator", says, nest(f"{at}.operator", right))
        elif operator in ("In", "NotIn") and not values:
            yield Finding(f"{at}.values", f"found none, but {operator} needs at least one", nest(f"{at}.values", ["..."]))
        elif operator in ("Exists", "DoesNotExist") and values:
            mended = nest(at, {"key": expression.get("key"), "operator": operator})
            yield Finding(f"{at}.values", f"found {quoted(values)}, but {operator} takes none", mended)
        elif operator in ("Gt", "Lt") and not (len(values) == 1 and values[0].lstrip("-").isdigit()):
            yield Finding(
                f"{at}.values", f"found {quoted(values)}, but {operator} takes one whole number", nest(f"{at}.values", ["1"])
            )


def _labels(written: Any, path: str) -> Iterator[Finding]:
    yield from _keys(written, path)
    for key, value in written.items() if isinstance(written, dict) else ():
        if isinstance(value, str) and (problems := labels.value_problems(value)):
            yield Finding(f"{path}.{key}", f"found {quoted(value)}: {problems[0]}", nest(path, {key: _as_value(value)}))


def _keys(written: Any, path: str) -> Iterator[Finding]:
    for key, value in written.items() if isinstance(written, dict) else ():
        if problems := labels.qualified_name_problems(key):
            yield Finding(f"{path}.{key}", f"found the key {quoted(key)}: {problems[0]}", nest(path, {_as_value(key): value}))


def _as_name(name: str) -> str:
    text = "".join(ch if ch.isascii() and ch.isalnum() else "-" for ch in name.lower())[:63].strip("-")
    return text or "my-name"


def _as_value(value: str) -> str:
    text = "".join(ch if ch.isascii() and (ch.isalnum() or ch in "-_.") else "-" for ch in value)[:63].strip("-_.")
    return text or "my-value"


def _amount(written: Any) -> int:
    try:
        return quantity.parse(written if isinstance(written, str | int) else repr(written))
    except (ValueError, TypeError):
        # its own finding says so
        return 0
