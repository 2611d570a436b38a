"""The fields of lightkube's generated models: wire names and types, read off the texts of their annotations."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

_PLAIN = frozenset({"str", "int", "bool", "float", "dict", "Quantity", "IntOrString", "Time", "MicroTime"})


class Field(msgspec.Struct, frozen=True):
    """One field; `leaf` is "model", "any", or the name of a plain type in the models ("str", "Quantity", "Time")."""

    leaf: str
    model: Any = None
    many: bool = False
    required: bool = False


@cache
def fields_of(model: Any) -> Mapping[str, Field]:
    """Wire name → field, of one of lightkube's structs."""
    module = vars(sys.modules[model.__module__])
    hints: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__ == model.__module__:
            hints |= base.__annotations__
    wire_names = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
    return {wire_names[name]: _field(hint, module) for name, hint in hints.items() if name in wire_names}


def _field(hint: str, module: Mapping[str, Any]) -> Field:
    text = hint.strip("'")
    required = not text.startswith("Optional[")
    text = text if required else text.removeprefix("Optional[").removesuffix("]")
    many = text.startswith("List[")
    text = text.removeprefix("List[").removesuffix("]") if many else text
    owner, _, name = text.rpartition(".")
    if name in _PLAIN:
        return Field(name, None, many, required)
    found = getattr(module[owner], name) if owner else module[name]
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return Field("model", found, many, required)
    return Field("any", None, many, required)


def models_under(model: Any) -> Iterator[Any]:
    """`model` and every struct its fields lead to, each once."""
    seen = {model}
    waiting = [model]
    while waiting:
        current = waiting.pop()
        yield current
        for field in fields_of(current).values():
            if field.model is not None and field.model not in seen:
                seen.add(field.model)
                waiting.append(field.model)
