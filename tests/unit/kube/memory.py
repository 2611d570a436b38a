"""A tiny `KubeClient` with a switchboard of faults, for tests of what is built on one. The contract suite has the real thing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from kubewright.api.meta import ObjectMeta
from kubewright.errors import AlreadyExists, Conflict, Gone, NotFound
from kubewright.kube import wire
from kubewright.kube.client import EventType, Listing, MergePatch, Patch, WatchEvent


class MemoryClient:
    """Objects of any kind in dicts, a global version, a watch history that can be compacted.

    `before` is called with verb and key before each call and may raise. `delay_s` is what a call takes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[tuple[type, str], Any] = {}
        self.history: list[tuple[int, EventType, Any]] = []
        self.compacted = 0
        self.changed = asyncio.Event()
        self.before: Callable[[str, str], None] = lambda verb, key: None
        self.calls: list[tuple[str, str]] = []
        self.delay_s = 0.0
        self.epoch = 0

    async def _call(self, verb: str, key: str) -> None:
        self.calls.append((verb, key))
        await asyncio.sleep(self.delay_s)
        self.before(verb, key)

    def put(self, obj: Any) -> Any:
        """Write without a call; returns what is stored."""
        kind, key = type(obj), obj.key
        self.version += 1
        old = self.objects.get((kind, key))
        uid = old.metadata.uid if old is not None else obj.metadata.uid or f"uid-{self.version}"
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version), uid=uid)
        stored = msgspec.structs.replace(obj, metadata=meta)
        self.objects[kind, key] = stored
        self._record(EventType.MODIFIED if old is not None else EventType.ADDED, stored)
        return stored

    def drop(self, kind: type, key: str) -> None:
        old = self.objects.pop((kind, key))
        self.version += 1
        meta = msgspec.structs.replace(old.metadata, resource_version=str(self.version))
        self._record(EventType.DELETED, msgspec.structs.replace(old, metadata=meta))

    def bookmark(self, kind: Any) -> None:
        self._record(EventType.BOOKMARK, kind(metadata=ObjectMeta(resource_version=str(self.version))))

    def compact(self) -> None:
        """Forget the history: watches from before now get 410. Those that run still tell what they have; hang up on them."""
        self.compacted = self.version
        self.history = []

    def hang_up(self) -> None:
        """End all watches, as a server does after some minutes."""
        self.epoch += 1
        self._wake()

    def _record(self, type_: EventType, obj: Any) -> None:
        self.history.append((self.version, type_, obj))
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def get(self, kind: type, name: str, namespace: str = "") -> Any:
        key = f"{namespace}/{name}" if namespace else name
        await self._call("get", key)
        try:
            return self.objects[kind, key]
        except KeyError:
            raise NotFound(404, "NotFound", f"{key} not found") from None

    async def list(self, kind: type, namespace: str = "", *, labels: str = "", fields: str = "") -> Any:
        await self._call("list", kind.__name__)
        return Listing([o for (k, _), o in self.objects.items() if k is kind], str(self.version))

    async def watch(
        self, kind: type, namespace: str = "", *, resource_version: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Any]:
        await self._call("watch", kind.__name__)
        at, epoch, sent = int(resource_version), self.epoch, 0
        if at < self.compacted:
            raise Gone(410, "Expired", f"too old resource version: {at} ({self.compacted})")
        history = self.history
        while True:
            self.before("watching", kind.__name__)
            while sent < len(history):
                version, type_, obj = history[sent]
                sent += 1
                if isinstance(obj, kind) and (version > at or (type_ is EventType.BOOKMARK and version >= at)):
                    yield WatchEvent(type_, obj)
            if self.epoch != epoch:
                return
            await self.changed.wait()

    async def create(self, obj: Any) -> Any:
        await self._call("create", obj.key)
        if (type(obj), obj.key) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{obj.key} already exists")
        return self.put(wire.decode(type(obj), wire.encode(wire.body(obj))))

    async def patch(self, kind: type, name: str, patch: Patch, namespace: str = "", *, subresource: str = "") -> Any:
        key = f"{namespace}/{name}" if namespace else name
        await self._call("patch", key)
        if (kind, key) not in self.objects:
            raise NotFound(404, "NotFound", f"{key} not found")
        assert isinstance(patch, MergePatch)
        assert patch.body.get("spec", {}).get("holderIdentity") != "", "a real API server refuses an empty holder"
        now = self.objects[kind, key]
        wanted = patch.body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != now.metadata.resource_version:
            raise Conflict(409, "Conflict", f"{key} was modified")
        return self.put(msgspec.convert(_merge(msgspec.to_builtins(now), patch.body), kind))

    async def delete(self, kind: type, name: str, namespace: str = "", **_: Any) -> None:
        key = f"{namespace}/{name}" if namespace else name
        await self._call("delete", key)
        self.drop(kind, key)

    async def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
