"""What the core kinds' fields are, read off lightkube's generated models, and wire objects brought into that form.

The real server decodes into Go structs, so fields it does not know vanish, nulls mean absent, quantities and dates come back
in one spelling, and a wrong type is refused. This does the same to dicts.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubewright.api import quantity
from kubewright.api.fields import Field, fields_of
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind

_QUANTITY_MAPS = {
    ("ResourceRequirements", "requests"),
    ("ResourceRequirements", "limits"),
    ("VolumeResourceRequirements", "requests"),
    ("VolumeResourceRequirements", "limits"),
    ("NodeStatus", "capacity"),
    ("NodeStatus", "allocatable"),
    ("PersistentVolumeSpec", "capacity"),
    ("PersistentVolumeClaimStatus", "capacity"),
    ("PersistentVolumeClaimStatus", "allocatedResources"),
    ("PodSpec", "overhead"),
    ("ContainerStatus", "allocatedResources"),
    ("PodStatus", "allocatedResources"),
    ("Overhead", "podFixed"),
}

_TEXT_MAPS = {"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "selector", "parameters"}

_BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Decoder:
    """One pass over one object. `unknown` lists the paths that were dropped."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.unknown: list[str] = []

    def struct(self, model: Any, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        known = fields_of(model)
        result: dict[str, Any] = {}
        for name, written in value.items():
            field = known.get(name)
            at = f"{path}.{name}" if path else name
            if field is None:
                self.unknown.append(at)
            elif written is not None:
                kept = self._field(model, name, field, written, at)
                if kept is not None:
                    result[name] = kept
        return result

    def _field(self, model: Any, name: str, field: Field, written: Any, path: str) -> Any:
        if field.many:
            if not isinstance(written, list):
                raise self._wrong_type(model, path, written, f"[]{_go_type(field)}")
            return [self._leaf(model, name, field, one, f"{path}[{n}]") for n, one in enumerate(written)] or None
        return self._leaf(model, name, field, written, path)

    def _leaf(self, model: Any, name: str, field: Field, written: Any, path: str) -> Any:
        match field.leaf:
            case "model":
                if not isinstance(written, dict):
                    raise self._wrong_type(model, path, written, _go_type(field))
                return self.struct(field.model, written, path)
            case "dict":
                return self._map(model, name, written, path)
            case "Quantity":
                return self._quantity(written)
            case "Time" | "MicroTime":
                return self._time(written, micro=field.leaf == "MicroTime")
            case "any":
                return written
            case leaf:
                if not _is_a(leaf, written):
                    raise self._wrong_type(model, path, written, _go_type(field))
                return written

    def _map(self, model: Any, name: str, written: Any, path: str) -> Any:
        if not isinstance(written, dict):
            raise self._wrong_type(model, path, written, "map[string]string")
        if (model.__name__, name) in _QUANTITY_MAPS:
            return {key: self._quantity(value) for key, value in written.items()} or None
        if name in _TEXT_MAPS:
            for value in written.values():
                if value is not None and not isinstance(value, str):
                    raise self._wrong_type(model, path, value, "string")
            return {key: "" if value is None else value for key, value in written.items()} or None
        return written or None

    def _quantity(self, written: Any) -> str:
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            raise self._cannot(_BAD_QUANTITY)
        try:
            return quantity.canonical(written if isinstance(written, str) else repr(written))
        except ValueError as error:
            raise self._cannot(_BAD_QUANTITY) from error

    def _time(self, written: Any, *, micro: bool) -> str:
        try:
            moment = datetime.fromisoformat(written).astimezone(UTC)
        except (TypeError, ValueError) as error:
            layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
            shown = answers.go_value(written)
            raise self._cannot(f'parsing time {shown} as "{layout}": cannot parse {shown} as "2006"') from error
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")

    def _wrong_type(self, model: Any, path: str, written: Any, wanted: str) -> Exception:
        plain = ".".join(part.partition("[")[0] for part in path.split("."))
        shown = _json_type(written)
        return self._cannot(f"json: cannot unmarshal {shown} into Go struct field {model.__name__}.{plain} of type {wanted}")

    def _cannot(self, why: str) -> Exception:
        return answers.bad_request(
            f'{self._kind.kind} in version "{self._kind.version}" cannot be handled as a {self._kind.kind}: {why}'
        )


def _is_a(leaf: str, value: Any) -> bool:
    match leaf:
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _go_type(field: Field) -> str:
    if field.leaf == "model":
        return f"v1.{field.model.__name__}"
    return {"str": "string", "int": "int32", "bool": "bool", "float": "float64", "IntOrString": "intstr.IntOrString"}.get(
        field.leaf, field.leaf
    )


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"
