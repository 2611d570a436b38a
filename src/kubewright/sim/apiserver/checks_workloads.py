"""What the server refuses of workloads, budgets and services. Source: k8s.io/kubernetes v1.36 pkg/apis/{apps,batch,policy}."""

import re
from typing import Any

import msgspec

from kubewright.api import selectors
from kubewright.api.meta import LabelSelector
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.answers import Cause
from kubewright.sim.apiserver.checks_pods import pod_spec

Item = dict[str, Any]

_PERCENT = re.compile(r"[0-9]+%")
_NOT_NEGATIVE = "must be greater than or equal to 0"
_FROZEN_SET = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def deployment(obj: Item, old: Item | None) -> list[Cause]:
    causes = _workload(obj, old)
    strategy = obj["spec"].get("strategy", {})
    if strategy.get("type") not in ("Recreate", "RollingUpdate"):
        causes.append(answers.unsupported("spec.strategy.type", strategy.get("type"), ("Recreate", "RollingUpdate")))
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate"):
        text = "may not be specified when strategy `type` is 'Recreate'"
        causes.append(answers.forbidden_field("spec.strategy.rollingUpdate", text))
    return causes


def replica_set(obj: Item, old: Item | None) -> list[Cause]:
    return _workload(obj, old)


def daemon_set(obj: Item, old: Item | None) -> list[Cause]:
    return _workload(obj, old)


def stateful_set(obj: Item, old: Item | None) -> list[Cause]:
    causes = _workload(obj, None)
    if old is not None:
        free = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds")
        kept = (*free, "persistentVolumeClaimRetentionPolicy")
        before = {k: v for k, v in old["spec"].items() if k not in kept}
        if {k: v for k, v in obj["spec"].items() if k not in kept} != before:
            causes.append(answers.forbidden_field("spec", _FROZEN_SET))
    return causes


def job(obj: Item, old: Item | None) -> list[Cause]:
    spec = obj["spec"]
    causes = _counts(spec, ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"))
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy == "Always":
        text = 'valid values: "OnFailure", "Never"'
        causes.append(answers.required("spec.template.spec.restartPolicy", text))
    causes += pod_spec(spec["template"]["spec"], "spec.template.spec")
    if old is not None:
        before = old["spec"]
        for field in ("selector", "completionMode", "completions"):
            if spec.get(field) != before.get(field) and not (field == "completions" and spec.get("completionMode") == "Indexed"):
                causes.append(answers.invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
        if spec["template"] != before["template"] and not before.get("suspend"):
            causes.append(answers.invalid_value("spec.template", spec["template"], "field is immutable"))
    return causes


def budget(obj: Item, old: Item | None) -> list[Cause]:
    del old
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "minAvailable and maxUnavailable cannot be both set"
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(answers.invalid_value("spec", shown, text))
    for field in ("minAvailable", "maxUnavailable"):
        causes += _count_or_percent(spec.get(field), f"spec.{field}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "AlwaysAllow", "IfHealthyBudget"):
        allowed = ("AlwaysAllow", "IfHealthyBudget")
        causes.append(answers.unsupported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    causes += _selector(spec.get("selector"), "spec.selector")
    return causes


def service(obj: Item, old: Item | None) -> list[Cause]:
    spec = obj["spec"]
    causes: list[Cause] = []
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        causes.append(answers.required("spec.ports"))
    for n, port in enumerate(spec.get("ports") or ()):
        if not 1 <= port.get("port", 0) <= 65535:
            text = "must be between 1 and 65535, inclusive"
            causes.append(answers.invalid_value(f"spec.ports[{n}].port", port.get("port", 0), text))
    kinds = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if spec.get("type") not in kinds:
        causes.append(answers.unsupported("spec.type", spec.get("type"), kinds))
    if old is not None and old["spec"].get("clusterIP") and spec.get("clusterIP") != old["spec"]["clusterIP"]:
        shown = [spec["clusterIP"]] if spec.get("clusterIP") else None
        causes.append(answers.invalid_value("spec.clusterIPs", shown, "may not change once set"))
    return causes


def _workload(obj: Item, old: Item | None) -> list[Cause]:
    spec = obj["spec"]
    causes = _counts(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"))
    selector = spec.get("selector")
    if selector is None:
        causes.append(answers.required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(answers.invalid_value("spec.selector", selector, "empty selector is invalid for deployment"))
    else:
        causes += _selector(selector, "spec.selector")
    template = spec["template"]
    labels = template["metadata"].get("labels") or {}
    broken = any(cause.field.startswith("spec.selector.") for cause in causes)  # such a selector cannot be asked
    empty = selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")
    picked = not broken and selectors.matches(None if selector is None else msgspec.convert(selector, LabelSelector), labels)
    if not picked and not broken and not empty:
        text = "`selector` does not match template `labels`"
        causes.append(answers.invalid_value("spec.template.metadata.labels", labels, text))
    policy = template["spec"].get("restartPolicy")
    if policy != "Always":
        causes.append(answers.unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    causes += pod_spec(template["spec"], "spec.template.spec")
    if old is not None and selector != old["spec"].get("selector"):
        causes.append(answers.invalid_value("spec.selector", selector, "field is immutable"))
    return causes


def _counts(spec: Item, fields: tuple[str, ...]) -> list[Cause]:
    return [answers.invalid_value(f"spec.{field}", spec[field], _NOT_NEGATIVE) for field in fields if spec.get(field, 0) < 0]


def _count_or_percent(value: Any, path: str) -> list[Cause]:
    if value is None:
        return []
    if isinstance(value, int):
        return [] if value >= 0 else [answers.invalid_value(path, value, _NOT_NEGATIVE)]
    if not _PERCENT.fullmatch(value):
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        return [answers.invalid_value(path, value, text)]
    return [] if int(value[:-1]) <= 100 else [answers.invalid_value(path, value, "must not be greater than 100%")]


def _selector(selector: Item | None, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for n, term in enumerate((selector or {}).get("matchExpressions") or ()):
        operator, values = term.get("operator", ""), term.get("values") or []
        at = f"{path}.matchExpressions[{n}]"
        if operator in ("In", "NotIn") and not values:
            causes.append(answers.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(answers.forbidden_field(f"{at}.values", text))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            causes.append(answers.invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
    return causes
