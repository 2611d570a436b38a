"""The server's refusals, with the server's texts: people and programs match on both.

Source: k8s.io/apimachinery v0.36 pkg/api/errors; each text was compared with a real kube-apiserver by tests/api.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubewright.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
)
from kubewright.sim.apiserver.kinds import Kind

_REGISTRY = {"nodes": "minions", "services": "services/specs", "endpoints": "services/endpoints"}
"""Where etcd keeps kinds that have another name there."""


class Cause(msgspec.Struct, frozen=True):
    """One field that is wrong; `text` is the whole sentence after the field's path."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def required(field: str, text: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {text}" if text else "Required value")


def invalid_value(field: str, value: Any, text: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {text}")


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    listed = ", ".join(f'"{one}"' for one in allowed)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {go_value(value)}: supported values: {listed}")


def forbidden_field(field: str, text: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {text}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {go_value(value)}")


def go_value(value: Any) -> str:
    """`value` as the server quotes it: strings in Go's quotes, everything else as JSON."""
    return msgspec.json.encode(_maps_sorted(value)).decode()


def _maps_sorted(value: Any) -> Any:
    """Go writes maps by key and structs by field; of our dicts, those that hold only text are maps."""
    if isinstance(value, list):
        return [_maps_sorted(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_map = all(isinstance(one, str) for one in value.values())
    return {key: _maps_sorted(value[key]) for key in (sorted(value) if is_map else value)}


def not_found(kind: Kind, name: str) -> NotFound:
    return NotFound(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def no_such_resource() -> NotFound:
    return NotFound(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    return AlreadyExists(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    text = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Conflict(409, "Conflict", text, _details(kind, name))


def binding_conflict(name: str, why: str) -> Conflict:
    text = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return Conflict(409, "Conflict", text, {"name": name, "kind": "pods/binding"})


def deletion_conflict(kind: Kind, name: str, why: str) -> Conflict:
    """As `conflict`, but a failed deletion names the kind and not the resource."""
    named = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    text = f'Operation cannot be fulfilled on {named} "{name}": {why}'
    return Conflict(409, "Conflict", text, _details(kind, name) | {"kind": kind.kind})


def other_uid(kind: Kind, old: Mapping[str, Any], asked: str) -> Conflict:
    """What a PUT gets whose UID is another object's."""
    meta = old["metadata"]
    place = "/".join(part for part in (meta.get("namespace", ""), meta["name"]) if part)
    stored = _REGISTRY.get(kind.plural, f"{kind.group}/{kind.plural}" if kind.custom else kind.plural)
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{stored}/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {asked}, UID in object meta: {meta['uid']}"
    )
    return conflict(kind, meta["name"], why)


def modified(kind: Kind, name: str) -> Conflict:
    return conflict(kind, name, "the object has been modified; please apply your changes to the latest version and try again")


def gone(text: str) -> Gone:
    return Gone(410, "Expired", text)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Invalid:
    texts = list(dict.fromkeys(str(cause) for cause in causes))  # the same thing found twice is told once
    shown = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    named = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = _details(kind, name) | {
        "kind": kind.kind,
        "causes": [{"reason": c.reason, "message": c.text, "field": c.field} for c in causes],
    }
    return Invalid(422, "Invalid", f'{named} "{name}" is invalid: {shown}', details)


def bad_propagation(asked: str) -> Invalid:
    cause = unsupported("propagationPolicy", asked, ("Foreground", "Background", "Orphan", "nil"))
    details = {
        "group": "meta.k8s.io",
        "kind": "DeleteOptions",
        "causes": [{"reason": cause.reason, "message": cause.text, "field": cause.field}],
    }
    return Invalid(422, "Invalid", f'DeleteOptions.meta.k8s.io "" is invalid: {cause}', details)


def bad_scale(name: str, cause: Cause) -> Invalid:
    details = {
        "name": name,
        "group": "autoscaling",
        "kind": "Scale",
        "causes": [{"reason": cause.reason, "message": cause.text, "field": cause.field}],
    }
    return Invalid(422, "Invalid", f'Scale.autoscaling "{name}" is invalid: {cause}', details)


def patch_rejected() -> Invalid:
    """What a JSON patch gets whose test, path or result does not hold; the server keeps the reason to itself."""
    return Invalid(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(text: str) -> Invalid:
    return Invalid(400, "BadRequest", text)


def forbidden(kind: Kind, name: str, why: str) -> Forbidden:
    return Forbidden(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', _details(kind, name))


def too_many_requests(text: str, causes: Sequence[dict[str, str]] = (), retry_after_s: int = 0) -> TooManyRequests:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return TooManyRequests(429, "TooManyRequests", text, details or None)


def internal(text: str) -> ServerUnavailable:
    return ServerUnavailable(500, "InternalError", text)


def not_allowed(kind: Kind, verb: str) -> Invalid:
    text = f"the server does not allow this method on the requested resource: {verb} on {kind.resource}"
    return Invalid(405, "MethodNotAllowed", text, {"kind": kind.plural} | ({"group": kind.group} if kind.group else {}))


def unsupported_media(text: str) -> Invalid:
    return Invalid(415, "UnsupportedMediaType", text)


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details
