"""What the server refuses of pods and pod templates. Source: k8s.io/kubernetes v1.36 pkg/apis/core/validation."""

from collections.abc import Iterable
from typing import Any

from kubewright.api import labels, quantity
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.answers import Cause

Item = dict[str, Any]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NO_OVERCOMMIT_PREFIX = "hugepages-"

_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(obj: Item, old: Item | None) -> list[Cause]:
    causes = pod_spec(obj["spec"], "spec")
    if old is not None:
        causes += _changed(obj["spec"], old["spec"])
    return causes


def pod_spec(spec: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    causes += _volumes(spec, path)
    containers = spec.get("containers") or []
    if not containers:
        causes.append(answers.required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for n, container in enumerate(spec.get(field) or ()):
            causes += _container(container, f"{path}.{field}[{n}]", names)
    causes += _choice(spec, "restartPolicy", ("Always", "OnFailure", "Never"), path)
    causes += _choice(spec, "dnsPolicy", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"), path)
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        text = "must be greater than or equal to 0"
        causes.append(answers.invalid_value(f"{path}.terminationGracePeriodSeconds", grace, text))
    for key, value in (spec.get("nodeSelector") or {}).items():
        causes += [answers.invalid_value(f"{path}.nodeSelector", key, t) for t in labels.qualified_name_problems(key)]
        causes += [answers.invalid_value(f"{path}.nodeSelector", value, t) for t in labels.value_problems(value)]
    for n, toleration in enumerate(spec.get("tolerations") or ()):
        causes += _toleration(toleration, f"{path}.tolerations[{n}]")
    causes += _spread(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    causes += _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    return causes


def _choice(spec: Item, field: str, allowed: tuple[str, ...], path: str) -> list[Cause]:
    value = spec.get(field)
    if value is None or value in allowed:
        return []
    return [answers.unsupported(f"{path}.{field}", value, allowed)]


def _volumes(spec: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for n, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        at = f"{path}.volumes[{n}]"
        if not name:
            causes.append(answers.required(f"{at}.name"))
        elif name in names:
            causes.append(answers.duplicate(f"{at}.name", name))
        else:
            causes += [answers.invalid_value(f"{at}.name", name, text) for text in labels.label_problems(name)]
        names.add(name)
    for field in ("initContainers", "containers"):
        for n, container in enumerate(spec.get(field) or ()):
            for m, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in names:
                    where = f"{path}.{field}[{n}].volumeMounts[{m}].name"
                    causes.append(Cause(where, "FieldValueNotFound", f"Not found: {answers.go_value(mount.get('name', ''))}"))
    return causes


def _container(container: Item, path: str, names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(answers.required(f"{path}.name"))
    else:
        causes += [answers.invalid_value(f"{path}.name", name, text) for text in labels.label_problems(name)]
        if name in names:
            causes.append(answers.duplicate(f"{path}.name", name))
        names.add(name)
    if not container.get("image"):
        causes.append(answers.required(f"{path}.image"))
    for n, port in enumerate(container.get("ports") or ()):
        for field in ("containerPort", "hostPort"):
            number = port.get(field, 0)
            if (number or field == "containerPort") and not 1 <= number <= 65535:
                text = "must be between 1 and 65535, inclusive"
                where = f"{path}.ports[{n}].{field}"
                causes.append(answers.required(where) if not number else answers.invalid_value(where, number, text))
    causes += resources(container.get("resources") or {}, f"{path}.resources")
    return causes


def resources(written: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    limits, requests = written.get("limits") or {}, written.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{path}.{field}[{name}]" if quantity.parse(amount) < 0 else f"{path}.{field}"
            if quantity.parse(amount) < 0:
                causes.append(answers.invalid_value(at, amount, "must be greater than or equal to 0"))
            if "/" not in name and name not in _STANDARD and not name.startswith(_NO_OVERCOMMIT_PREFIX):
                causes += [
                    answers.invalid_value(f"{path}.{field}[{name}]", name, text)
                    for text in (
                        "must be a standard resource type or fully qualified",
                        "must be a standard resource for containers",
                    )
                ]
    for name, amount in requests.items():
        if name in limits and quantity.parse(amount) > quantity.parse(limits[name]):
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(answers.invalid_value(f"{path}.requests", amount, text))
    return causes


_STANDARD = {"cpu", "memory", "ephemeral-storage", "storage"}


def _toleration(toleration: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        causes += [answers.invalid_value(f"{path}.key", key, text) for text in labels.qualified_name_problems(key)]
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(answers.invalid_value(f"{path}.operator", operator, text))
    if operator == "Exists" and toleration.get("value"):
        text = "value must be empty when `operator` is 'Exists'"
        causes.append(answers.invalid_value(f"{path}.operator", toleration["value"], text))
    if operator not in ("", "Equal", "Exists", "Lt", "Gt"):
        causes.append(answers.unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(answers.invalid_value(f"{path}.effect", toleration.get("effect", ""), text))
    if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
        causes.append(answers.unsupported(f"{path}.effect", toleration["effect"], _EFFECTS))
    return causes


def taint_problems(taint: Item, path: str) -> list[Cause]:
    causes = [
        answers.invalid_value(f"{path}.key", taint.get("key", ""), text)
        for text in labels.qualified_name_problems(taint.get("key", ""))
    ]
    causes += [
        answers.invalid_value(f"{path}.value", taint["value"], text) for text in labels.value_problems(taint.get("value", ""))
    ]
    if not taint.get("effect"):
        causes.append(answers.required(f"{path}.effect"))
    elif taint["effect"] not in _EFFECTS:
        causes.append(answers.unsupported(f"{path}.effect", taint["effect"], _EFFECTS))
    return causes


def _spread(constraints: Iterable[Item], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for n, constraint in enumerate(constraints):
        at = f"{path}[{n}]"
        if constraint.get("maxSkew", 0) <= 0:
            causes.append(answers.invalid_value(f"{at}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not constraint.get("topologyKey"):
            causes.append(answers.required(f"{at}.topologyKey", "can not be empty"))
        causes += _choice(constraint, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"), at)
        if constraint.get("minDomains", 1) <= 0:
            causes.append(answers.invalid_value(f"{at}.minDomains", constraint["minDomains"], "must be greater than zero"))
    return causes


def _affinity(affinity: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    node = affinity.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    at = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if required is not None:
        terms = required.get("nodeSelectorTerms") or []
        if not terms:
            causes.append(answers.required(f"{at}.nodeSelectorTerms", "must have at least one node selector term"))
        for n, term in enumerate(terms):
            causes += _term(term, f"{at}.nodeSelectorTerms[{n}]")
    for n, preferred in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        where = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{n}]"
        if not 1 <= preferred.get("weight", 0) <= 100:
            causes.append(answers.invalid_value(f"{where}.weight", preferred.get("weight", 0), "must be in the range 1-100"))
        causes += _term(preferred.get("preference") or {}, f"{where}.preference")
    return causes


def _term(term: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for n, expression in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{n}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator in ("In", "NotIn") and not values:
            causes.append(answers.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(answers.forbidden_field(f"{at}.values", text))
        elif operator in ("Gt", "Lt") and len(values) != 1:
            causes.append(answers.required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
            causes.append(answers.invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
        key = expression.get("key", "")
        causes += [answers.invalid_value(f"{at}.key", key, text) for text in labels.qualified_name_problems(key)]
    return causes


def _changed(new: Item, old: Item) -> list[Cause]:
    """A pod's spec stays as it was, but for images, a deadline, more tolerations, and gates that open."""
    causes: list[Cause] = []
    before, after = _comparable(old), _comparable(new)
    if old.get("schedulingGates"):  # what gates hold back may still be narrowed
        left = {gate["name"] for gate in new.get("schedulingGates") or ()}
        had = {gate["name"] for gate in old["schedulingGates"]}
        for name in sorted(left - had):
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            causes.append(answers.forbidden_field("spec.schedulingGates", text))
        for side in (before, after):
            side.pop("nodeSelector", None)
            side.pop("affinity", None)
    elif new.get("schedulingGates"):
        text = f"only deletion is allowed, but found new scheduling gate '{new['schedulingGates'][0]['name']}'"
        causes.append(answers.forbidden_field("spec.schedulingGates", text))
    kept = new.get("tolerations") or []
    if any(toleration not in kept for toleration in old.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        if not all(_only_seconds_differ(t, kept) for t in old.get("tolerations") or ()):
            causes.append(answers.forbidden_field("spec.tolerations", text))
    if before != after:
        causes.append(answers.forbidden_field("spec", _IMMUTABLE))
    return causes


def _only_seconds_differ(toleration: Item, kept: list[Item]) -> bool:
    def bare(one: Item) -> Item:
        return {k: v for k, v in one.items() if k != "tolerationSeconds"}

    return any(bare(one) == bare(toleration) for one in kept)


def _comparable(spec: Item) -> Item:
    left_out = ("containers", "initContainers", "activeDeadlineSeconds", "tolerations", "schedulingGates")
    kept = {k: v for k, v in spec.items() if k not in left_out}
    if kept.get("terminationGracePeriodSeconds", 0) < 0:
        kept["terminationGracePeriodSeconds"] = 1
    for field in ("containers", "initContainers"):
        kept[field] = [{k: v for k, v in c.items() if k not in ("image", "imagePullPolicy")} for c in spec.get(field) or ()]
    return kept
