"""Custom kinds: pruned, filled and checked by the schema of their CustomResourceDefinition."""

from typing import Any

from kubewright.sim.apiserver.kinds import Kind

Item = dict[str, Any]


def prune(kind: Kind, obj: Item) -> list[str]:
    """Drop what the schema does not know, in place, and return the dropped paths."""
    kept = ("apiVersion", "kind", "metadata")
    root = kind.schema or {}
    pruned, unknown = _pruned(root, {k: v for k, v in obj.items() if k not in kept}, "")
    for name in [k for k in obj if k not in kept]:
        del obj[name]
    obj.update(pruned)
    return unknown


def _pruned(schema: Any, value: Any, path: str) -> tuple[Any, list[str]]:
    if not isinstance(schema, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value, []
    unknown: list[str] = []
    if isinstance(value, dict) and ("properties" in schema or schema.get("type") == "object"):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        kept: Item = {}
        for name, written in value.items():
            at = f"{path}.{name}" if path else name
            part = known.get(name, others if isinstance(others, dict) else None)
            if part is None and not others:
                unknown.append(at)
                continue
            kept[name], more = _pruned(part, written, at)
            unknown += more
        return kept, unknown
    if isinstance(value, list) and "items" in schema:
        items = []
        for n, one in enumerate(value):
            item, more = _pruned(schema["items"], one, f"{path}[{n}]")
            items.append(item)
            unknown += more
        return items, unknown
    return value, unknown


def fill(kind: Kind, obj: Item) -> None:
    """Put the schema's defaults into `obj`, in place."""
    filled = _filled(kind.schema or {}, obj)
    obj.update(filled)


def _filled(schema: Any, value: Any) -> Any:
    if not isinstance(schema, dict):
        return value
    if isinstance(value, dict):
        result = dict(value)
        for name, part in schema.get("properties", {}).items():
            if name in result and result[name] is None and not part.get("nullable") and "default" in part:
                del result[name]
            if name not in result and "default" in part:
                result[name] = part["default"]
            if name in result:
                result[name] = _filled(part, result[name])
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            result |= {n: _filled(others, v) for n, v in result.items() if n not in schema.get("properties", {})}
        return result
    if isinstance(value, list) and "items" in schema:
        return [_filled(schema["items"], one) for one in value]
    return value
