"""Label and field selectors on wire objects.

Which fields may be selected depends on the kind, and the server refuses the others. Source: the `AddFieldLabelConversionFunc`s
of k8s.io/kubernetes v1.36 pkg/apis/*/v1/conversion.go.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kubewright.api import selectors
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind

Item = Mapping[str, Any]
Test = Callable[[Item], bool]

_FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "Node"): ("spec.unschedulable",),
    ("", "Event"): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("", "Namespace"): ("status.phase",),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP", "spec.type"),
    ("apps", "ReplicaSet"): ("status.replicas",),
    ("batch", "Job"): ("status.successful",),
}

_PATHS = {"source": "source.component", "status.successful": "status.succeeded"}
_BLANK = {"spec.unschedulable": "false", "status.replicas": "0", "status.successful": "0", "spec.hostNetwork": "false"}


def everything(_: Item) -> bool:
    return True


def selecting(kind: Kind, labels: str, fields: str) -> Test:
    """A test for the objects that both selectors pick.

    Raises:
        KubeError: 400, a selector cannot be read or names a field that this kind does not offer.
    """
    tests = [*_label_tests(labels), *_field_tests(kind, fields)]
    if not tests:
        return everything
    if len(tests) == 1:
        return tests[0]
    return lambda item: all(test(item) for test in tests)


def _labels(item: Item) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _label_tests(text: str) -> list[Test]:
    if not text.strip():
        return []
    try:
        query = selectors.parse_labels(text)
    except ValueError as error:
        raise answers.bad_request(str(error)) from error
    return [lambda item: query.matches(_labels(item))] if query.terms else []


def _field_tests(kind: Kind, text: str) -> list[Test]:
    try:
        query = selectors.parse_fields(text)
    except ValueError as error:
        raise answers.bad_request(str(error)) from error
    offered = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()), *selectable(kind))
    for field in query.paths:
        if field not in offered:
            raise answers.bad_request(_unsupported_field(kind, field))
    return [_field_test(*term) for term in query.terms]


def _field_test(field: str, value: str, equal: bool) -> Test:
    path = _PATHS.get(field, field).split(".")
    blank = _BLANK.get(field, "")
    return lambda item: (_text_at(item, path, blank) == value) == equal


def selectable(kind: Kind) -> tuple[str, ...]:
    """The fields beside metadata.name and metadata.namespace that a field selector may name."""
    return _FIELDS.get((kind.group, kind.kind), ()) if not kind.custom else kind.selectable_fields


def _unsupported_field(kind: Kind, field: str) -> str:
    if kind.custom or kind.kind in ("Pod", "Node", "Event", "Namespace", "Secret", "Service", "ReplicaSet", "Job"):
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _text_at(item: Any, path: list[str], blank: str) -> str:
    for part in path:
        item = item.get(part) if isinstance(item, Mapping) else None
    if item is None:
        return blank
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item)
