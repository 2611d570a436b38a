"""The patches a server takes: merge (RFC 7386), JSON (RFC 6902); strategic merge is in `strategic`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubewright.kube.client import JsonPatch, MergePatch
from kubewright.sim.apiserver import answers, strategic
from kubewright.sim.apiserver.kinds import Kind


class StrategicPatch(msgspec.Struct, frozen=True):
    """What kubectl sends for core kinds: a merge patch that knows lists with keys."""

    body: Mapping[str, Any]


def merge(target: Any, patch: Any) -> Any:
    """`target` with RFC 7386 `patch` applied; neither is changed."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def apply_json(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """`document` after all `operations`; the caller owns it, it may be changed.

    Raises:
        KubeError: 400 for what is no operation at all.
        Invalid: a path is not there, or a test does not hold.
    """
    for operation in operations:
        if not isinstance(operation, Mapping) or "op" not in operation or "path" not in operation:
            raise answers.bad_request('error decoding patch: an operation needs "op" and "path"')
        document = _apply_one(document, operation)
    return document


def _apply_one(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if _found(document, path) != operation.get("value"):
                raise answers.patch_rejected()
            return document
        case "add":
            return _add(document, path, operation.get("value"))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            return _replace(document, path, operation.get("value"))
        case "copy":
            return _add(document, path, _copied(_found(document, _pointer(operation["from"]))))
        case "move":
            document, value = _remove(document, _pointer(operation["from"]))
            return _add(document, path, value)
        case _:
            raise answers.patch_rejected()


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise answers.patch_rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _copied(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _lookup(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise answers.patch_rejected()
    return document


def _found(document: Any, path: Sequence[str]) -> Any:
    """As `_lookup`, but a missing last step is null, as the server's library has it."""
    if not path:
        return document
    parent = _lookup(document, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _lookup(parent, path[-1:])


def _replace(document: Any, path: Sequence[str], value: Any) -> Any:
    """The server's library lets a missing key be replaced, though RFC 6902 does not."""
    if path and isinstance(parent := _lookup(document, path[:-1]), dict):
        parent[path[-1]] = value
        return document
    document, _ = _remove(document, path)
    return _add(document, path, value)


def _index(part: str, last: int) -> int:
    if not part.isdigit() or int(part) > last:
        raise answers.patch_rejected()
    return int(part)


def _add(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent = _lookup(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        at = len(parent) if path[-1] == "-" else _index(path[-1], len(parent))
        parent.insert(at, value)
    else:
        raise answers.patch_rejected()
    return document


def _remove(document: Any, path: Sequence[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent = _lookup(document, path[:-1])
    if isinstance(parent, dict) and path[-1] in parent:
        return document, parent.pop(path[-1])
    if isinstance(parent, list):
        return document, parent.pop(_index(path[-1], len(parent) - 1))
    raise answers.patch_rejected()


def apply(kind: Kind, old: Mapping[str, Any], patch: Any) -> Any:
    """`old` after `patch`, whichever kind of patch it is; `old` stays as it was."""
    match patch:
        case MergePatch(body=body):
            return merge(old, body)
        case JsonPatch(operations=operations):
            return apply_json(_copied(old), operations)
        case StrategicPatch(body=body):
            if kind.custom:
                raise answers.unsupported_media(
                    "the body of the request was in an unknown format - accepted media types include: "
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                )
            return strategic.merge(kind, old, body)
        case Mapping():
            return merge(old, patch)
        case _:
            return apply_json(_copied(old), patch)
