"""Custom kinds: pruned, filled and checked by the schema of their CustomResourceDefinition."""

from typing import Any

from kubewright.api import schema
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.answers import Cause
from kubewright.sim.apiserver.kinds import Kind

Item = dict[str, Any]


def prune_and_fill(kind: Kind, obj: Item) -> list[str]:
    """Drop what the schema does not know and put its defaults in, in place; returns the dropped paths."""
    root = kind.schema or {}
    meta = obj.pop("metadata")
    unknown = schema.unknown_fields(obj, root)
    kept = schema.default_and_prune(obj, root)
    obj.clear()
    obj.update(kept)
    obj["metadata"] = meta
    return unknown


def problems(kind: Kind, obj: Item, old: Item | None) -> list[Cause]:
    """What the schema and its rules have against `obj`.

    Raises:
        ServerUnavailable: 500; the definition uses something that `api.schema` has no code for.
    """
    try:
        found = schema.validate(obj, old, kind.schema or {})
    except LookupError as error:
        raise answers.internal(f"{kind.kind}.{kind.group}: this in-memory API server cannot check it: {error}") from error
    return [Cause(problem.field, problem.reason, problem.message) for problem in found]
