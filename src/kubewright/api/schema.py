"""Structural schemas as the API server uses them: defaults, pruning, checks in its own wording, and the CRDs' rules.

The walker knows what our CRDs and Karpenter's use; a schema that says more is refused when it is walked, never half-checked.
Source: k8s.io/apiextensions-apiserver as of 1.36 (texts are wire-visible and were compared with the real server).
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from kubewright.api import crds
from kubewright.api.rules.rule import EvaluationError, Rule

Schema = Mapping[str, Any]

NOT_ALL_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)

_KNOWN = frozenset(
    [
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ]
)
_META_FIELDS = frozenset(
    [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ]
)
_WIDTH = {"int32": 2**31, "int64": 2**63}


class Problem(msgspec.Struct, frozen=True):
    """One thing the API server has against an object.

    `reason` is a cause's reason on the wire; `message` includes its lead ("Invalid value: …"); `found` is the value at fault.
    `blocking` problems keep the rules from being asked.
    """

    field: str
    reason: str
    message: str
    found: Any = None
    blocking: bool = False
    allowed: tuple[str, ...] = ()
    """For an enum: what would do."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def default_and_prune(obj: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """A new object without fields that the schema does not know, with the schema's defaults filled in."""
    pruned = _prune(dict(obj), schema, root=True)
    _default(pruned, schema)
    assert isinstance(pruned, dict)
    return pruned


def unknown_fields(obj: Mapping[str, Any], schema: Schema) -> list[str]:
    """Paths of the fields that pruning would drop, in document order."""
    found = list(_unknown(obj, schema, ""))
    meta = obj.get("metadata")
    if isinstance(meta, dict):
        found = [f"metadata.{name}" for name in meta if name not in _META_FIELDS] + found
    return found


def validate(obj: Mapping[str, Any], old: Mapping[str, Any] | None, schema: Schema) -> list[Problem]:
    """What the API server would refuse `obj` for, once defaulted and pruned; `old` is the stored object on an update.

    What has not changed since `old` is not checked again, as on a server from Kubernetes 1.33 on.

    Raises:
        LookupError: the schema has a CEL rule or a keyword that we have no code for.
    """
    problems = list(_check(obj, old, schema, ""))
    if any(p.blocking for p in problems):
        problems.append(Problem("<nil>", "FieldValueInvalid", f"Invalid value: null: {NOT_ALL_CHECKED}"))
        return problems
    return problems + list(_ask_rules(obj, old, schema, ""))


def _prune(value: Any, schema: Schema, *, root: bool = False) -> Any:
    if isinstance(value, list):
        return [_prune(item, schema["items"]) for item in value] if "items" in schema else copy.deepcopy(value)
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, held in value.items():
        child = _child(schema, name)
        if root and name == "metadata":
            result[name] = {k: copy.deepcopy(v) for k, v in held.items() if k in _META_FIELDS} if isinstance(held, dict) else held
        elif root and name in ("apiVersion", "kind"):
            result[name] = held
        elif child is None:
            if schema.get("x-kubernetes-preserve-unknown-fields"):
                result[name] = copy.deepcopy(held)
        elif held is not None or child.get("nullable"):
            result[name] = _prune(held, child)
    return result


def _default(value: Any, schema: Schema) -> None:
    if isinstance(value, list) and "items" in schema:
        for item in value:
            _default(item, schema["items"])
    if not isinstance(value, dict):
        return
    for name, child in schema.get("properties", {}).items():
        if name not in value and "default" in child:
            value[name] = copy.deepcopy(child["default"])
    for name, held in value.items():
        child = _child(schema, name)
        if child is not None:
            _default(held, child)


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown(item, schema["items"], f"{path}[{index}]")
    if not isinstance(value, dict) or path == "metadata":
        return
    for name, held in value.items():
        here = f"{path}.{name}" if path else name
        child = _child(schema, name)
        if child is not None:
            yield from _unknown(held, child, here)
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and _is_object(schema):
            yield here


def _is_object(schema: Schema) -> bool:
    return "properties" in schema or "additionalProperties" in schema or schema.get("type") == "object"


def _child(schema: Schema, name: str) -> Schema | None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if name in properties:
        return properties[name]
    more = schema.get("additionalProperties")
    if more is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return more if isinstance(more, dict) else None


def _check(value: Any, old: Any, schema: Schema, path: str) -> Iterator[Problem]:
    foreign = schema.keys() - _KNOWN
    if foreign:
        raise LookupError(f"schema of {path or 'the object'}: keywords {sorted(foreign)} are not supported")
    if old is not None and value == old:
        return
    if value is None and schema.get("nullable"):
        return
    # a wrong type does not end the checks: the server goes on to ask the others that fit the value
    yield from _wrong_type(value, schema, path)
    if "enum" in schema and value not in schema["enum"]:
        allowed = tuple(str(e) for e in schema["enum"])
        listed = ", ".join(json.dumps(a) for a in allowed)
        text = f"Unsupported value: {show(value)}: supported values: {listed}"
        yield Problem(path, "FieldValueNotSupported", text, value, True, allowed)
    if isinstance(value, str):
        yield from _check_string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)
    elif isinstance(value, list):
        yield from _check_list(value, old, schema, path)
    elif isinstance(value, dict):
        yield from _check_object(value, old, schema, path)


def _wrong_type(value: Any, schema: Schema, path: str) -> list[Problem]:
    found = _type_of(value)
    if schema.get("x-kubernetes-int-or-string"):
        if found in ("integer", "string"):
            return []
        problems = [
            _type_problem(path, "integer,string", found, value),
            Problem("<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'),
            _type_problem(path, "integer", found, value),
        ]
        return problems + ([_not_whole(path, "(default format)")] if found == "number" else [])
    wanted = schema.get("type")
    width = schema.get("format", "")
    if wanted == "integer" and width in _WIDTH and found in ("integer", "number"):
        if found == "integer" and -_WIDTH[width] <= value < _WIDTH[width]:
            return []
        whole = found == "integer" and -_WIDTH["int64"] <= value < _WIDTH["int64"]
        return [_type_problem(path, width, "int64" if whole else "float64", value), _not_whole(path, f"with format {width}")]
    if wanted == "integer" and width in _WIDTH and found in ("object", "boolean"):
        # the server names neither the value nor its type here
        return [_type_problem(path, width, "", value)]
    if wanted is None or wanted == found or (wanted == "number" and found == "integer"):
        return []
    problems = [_type_problem(path, wanted, found, value)]
    return problems + ([_not_whole(path, "(default format)")] if wanted == "integer" and found == "number" else [])


def _not_whole(path: str, form: str) -> Problem:
    return Problem("<nil>", "FieldValueInvalid", f'Invalid value: "": Checked value must be of type integer {form} in {path}')


def _type_problem(path: str, wanted: str, found: str, value: Any) -> Problem:
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Problem(path, "FieldValueTypeInvalid", text, value, True)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) < 2**53 else "number"
    names = {str: "string", int: "integer", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def _check_string(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Problem(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes", value, True)
    elif "minLength" in schema and len(value) < schema["minLength"]:
        yield _invalid(path, value, f"should be at least {schema['minLength']} chars long")
    elif "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        yield _invalid(path, value, f"should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_moment(value):
        text = f"Invalid value: {show(value)}: {path} in body must be of type date-time: {show(value)}"
        yield Problem(path, "FieldValueTypeInvalid", text, value, True)


def _check_number(value: float, schema: Schema, path: str) -> Iterator[Problem]:
    if "minimum" in schema and value < schema["minimum"]:
        yield _invalid(path, value, f"should be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        yield _invalid(path, value, f"should be less than or equal to {schema['maximum']}")


def _check_list(value: list[Any], old: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield _too_many(path, value, schema["maxItems"])
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield _invalid(path, len(value), f"should have at least {schema['minItems']} items")
    kind = schema.get("x-kubernetes-list-type", "atomic")
    seen: list[Any] = []
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        key = _key_of(item, schema) if kind == "map" else item
        if kind in ("map", "set") and key in seen:
            yield Problem(here, "FieldValueDuplicate", f"Duplicate value: {show(key)}", item)
        seen.append(key)
        if "items" in schema:
            yield from _check(item, _old_item(item, old, schema), schema["items"], here)


def _check_object(value: dict[str, Any], old: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield _too_many(path, value, schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        yield _invalid(path, len(value), f"should have at least {schema['minProperties']} properties")
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value", None, True)
    before = old if isinstance(old, dict) else {}
    for name in sorted(value):
        child = _child(schema, name)
        if child is not None and not (path == "" and name == "metadata"):
            yield from _check(value[name], before.get(name), child, f"{path}.{name}" if path else name)


def _ask_rules(value: Any, old: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if old is not None and value == old:
        return
    for written in schema.get("x-kubernetes-validations", ()):
        problem = _ask(_rule(written), value, old, path)
        if problem is not None:
            yield problem
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _ask_rules(item, _old_item(item, old, schema), schema["items"], f"{path}[{index}]")
    elif isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name in sorted(value):
            child = _child(schema, name)
            if child is not None and not (path == "" and name == "metadata"):
                yield from _ask_rules(value[name], before.get(name), child, f"{path}.{name}" if path else name)


def _rule(written: Mapping[str, Any]) -> Rule:
    rule = crds.RULES.get((written["rule"], written.get("message", "")))
    if rule is None:
        raise LookupError(f"CEL rule {written['rule']!r} is not one of ours, and CEL is not evaluated here")
    return rule


def _ask(rule: Rule, value: Any, old: Any, path: str) -> Problem | None:
    if rule.is_transition and old is None:
        return None
    simple = not isinstance(value, dict | list)
    try:
        if rule.check(value, old):
            return None
    except EvaluationError as error:
        text = f'Invalid value: "{_type_of(value)}": {error} evaluating rule: {rule.message}'
    else:
        text = f"Invalid value: {show(value)}: {rule.message}" if simple else f"Invalid value: {rule.message}"
    return Problem(path, "FieldValueInvalid", text, value)


def _old_item(item: Any, old: Any, schema: Schema) -> Any:
    """The same item of the old list; only lists that are maps say which it is."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return None
    key = _key_of(item, schema)
    return next((o for o in old if _key_of(o, schema) == key), None)


def _key_of(item: Any, schema: Schema) -> Any:
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return {key: item.get(key) for key in keys} if isinstance(item, dict) else item


def _too_many(path: str, value: Any, most: int) -> Problem:
    return Problem(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", value, True)


def _invalid(path: str, value: Any, what: str) -> Problem:
    return Problem(path, "FieldValueInvalid", f"Invalid value: {show(value)}: {path} in body {what}", value)


def show(value: Any) -> str:
    """A value as error texts quote it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=512)
def _pattern(written: str) -> re.Pattern[str]:
    # Go's $ is the end of the text only; Python's also stands before a last newline
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", written), re.ASCII)


def _is_moment(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value.upper()
    except ValueError:
        return False
