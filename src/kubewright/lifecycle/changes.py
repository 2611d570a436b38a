"""The smallest patch that turns an object as it was read into the object as it should be.

Our structs hold only some fields of what the server has, so objects are never written whole; and a Node's taints carry a time we
do not read, so they are patched one by one, never as a list.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from kubewright.api.core import Node, Taint
from kubewright.api.meta import Condition, Object

Json = Mapping[str, object]
_LISTS = frozenset({"finalizers", "ownerReferences"})
"""Metadata that a patch replaces whole."""


class Change(msgspec.Struct, frozen=True):
    """One request: a merge patch (`body`) or a JSON patch (`operations`), without its lock."""

    subresource: str
    body: Json = {}
    operations: tuple[Json, ...] = ()
    guards: tuple[Json, ...] | None = ()
    """JSON patch tests that fail if somebody changed what this changes, and so may stand in for the lock; None: nothing can."""


def between(before: Object, after: Object) -> tuple[Change, ...]:
    """The requests, metadata first and status last; empty when nothing differs.

    Raises:
        ValueError: the two are different objects, or differ in something that is not ours to write.
    """
    if type(before) is not type(after) or (before.key, before.metadata.uid) != (after.key, after.metadata.uid):
        raise ValueError(f"{before.key} and {after.key} are not one object")
    found: list[Change] = []
    metadata = _metadata(before, after)
    taints = _taints(before, after)
    if taints or (isinstance(before, Node) and metadata.keys() & _LISTS):
        operations = (*_as_operations(before, metadata), *taints)
        found.append(Change("", operations=operations, guards=_guards(before, after, metadata)))
    elif metadata:
        found.append(Change("", body={"metadata": metadata}, guards=None if metadata.keys() & _LISTS else ()))
    status = _status(before, after)
    if status:
        found.append(Change("status", body={"status": status}))
    if not found and _without_versions(before) != _without_versions(after):
        raise ValueError(f"{before.key} differs in a field that is never written")
    return tuple(found)


def _without_versions(obj: Object) -> Object:
    """Two readings of one object may differ in what the server counts."""
    return replace(obj, metadata=replace(obj.metadata, resource_version="", generation=0))


def _metadata(before: Object, after: Object) -> dict[str, object]:
    old, new = before.metadata, after.metadata
    found: dict[str, object] = {}
    for name, was, now in (("labels", old.labels, new.labels), ("annotations", old.annotations, new.annotations)):
        if changed := _map(was, now):
            found[name] = changed
    if old.finalizers != new.finalizers:
        found["finalizers"] = list(new.finalizers)
    if old.owner_references != new.owner_references:
        found["ownerReferences"] = msgspec.to_builtins(new.owner_references)
    return found


def _map(was: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    gone: dict[str, object] = dict.fromkeys(sorted(was.keys() - now.keys()))
    return gone | {key: now[key] for key in sorted(now) if key not in was or was[key] != now[key]}


def _taints(before: Object, after: Object) -> list[Json]:
    if not isinstance(before, Node) or not isinstance(after, Node):
        return []
    old, new = list(before.spec.taints), list(after.spec.taints)
    gone = [index for index, taint in enumerate(old) if taint not in new]
    added = [taint for taint in new if taint not in old]
    found: list[Json] = [{"op": "remove", "path": f"/spec/taints/{index}"} for index in reversed(gone)]
    if added and not old:
        found.append({"op": "add", "path": "/spec/taints", "value": [_taint(t) for t in added]})
    else:
        found.extend({"op": "add", "path": "/spec/taints/-", "value": _taint(t)} for t in added)
    return found


def _guards(before: Object, after: Object, metadata: Json) -> tuple[Json, ...] | None:
    """Tests that what is replaced or removed by its place is still what was read there."""
    found: list[Json] = []
    for name in metadata:
        field = "owner_references" if name == "ownerReferences" else name
        was = getattr(before.metadata, field)
        if not was:
            found.append({"op": "test", "path": f"/metadata/{name}", "value": None})
        elif name == "finalizers":
            found.append({"op": "test", "path": f"/metadata/{name}", "value": list(was)})
        elif name in _LISTS:
            return None  # owners have fields that we do not read
    if isinstance(before, Node) and isinstance(after, Node) and before.spec.taints != after.spec.taints:
        if not before.spec.taints:
            found.append({"op": "test", "path": "/spec/taints", "value": None})
        for index, taint in enumerate(before.spec.taints):
            if taint not in after.spec.taints:
                found += (
                    {"op": "test", "path": f"/spec/taints/{index}/{k}", "value": getattr(taint, k)} for k in ("key", "effect")
                )
    return tuple(found)


def _taint(taint: Taint) -> Json:
    return cast("Json", msgspec.to_builtins(taint))


def _as_operations(before: Object, metadata: Json) -> list[Json]:
    """The same as a merge patch of metadata, for a request that must be a JSON patch because it also changes taints."""
    found: list[Json] = []
    for name, value in metadata.items():
        if not isinstance(value, dict):
            found.append({"op": "add", "path": f"/metadata/{name}", "value": value})
            continue
        if not getattr(before.metadata, name):
            found.append({"op": "add", "path": f"/metadata/{name}", "value": value})
            continue
        for key, item in value.items():
            path = f"/metadata/{name}/{key.replace('~', '~0').replace('/', '~1')}"
            found.append({"op": "remove", "path": path} if item is None else {"op": "add", "path": path, "value": item})
    return found


def _status(before: Object, after: Object) -> dict[str, object]:
    old, new = getattr(before, "status", None), getattr(after, "status", None)
    if old == new or isinstance(before, Node):
        return {}
    assert isinstance(old, msgspec.Struct)
    assert isinstance(new, msgspec.Struct)
    plain = cast("dict[str, object]", msgspec.to_builtins(new))
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(new):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was == now:
            continue
        if field.name == "conditions":
            found["conditions"] = [condition(c) for c in cast("Sequence[Condition]", now)]
        elif isinstance(now, dict):
            found[field.encode_name] = _map(cast("Mapping[str, object]", was), cast("Mapping[str, object]", now))
        else:
            found[field.encode_name] = plain.get(field.encode_name)
    return found


def condition(value: Condition) -> Json:
    """A condition as the wire wants it: an empty reason or message is written, since some CRDs require both."""
    found: dict[str, object] = {"type": value.type, "status": value.status, "reason": value.reason, "message": value.message}
    if value.last_transition_time is not None:
        found["lastTransitionTime"] = msgspec.to_builtins(value.last_transition_time.replace(microsecond=0))
    if value.observed_generation:
        found["observedGeneration"] = value.observed_generation
    return found
