"""The direct door: `KubeClient` over the store in this process, without sockets, so that virtual time may jump."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from kubewright.api.meta import Object
from kubewright.kube import wire
from kubewright.kube.client import EventType, Listing, Patch, WatchEvent
from kubewright.sim.apiserver.store import Store

T = TypeVar("T", bound=Object)

Target = type[Object] | Object

CallHook = Callable[[str, str, str], None]
"""Called with verb, kind and `namespace/name`; what it raises is the call's answer."""


class DirectClient:
    """One client of the store. Each call lets the loop run once before it reaches the server, as a network would.

    `before` hooks are called as a write reaches the server: raise there, and nothing was written. `after` hooks are called when
    it has landed: raise there, and the caller never hears of its success. Writes of other clients do not reach these hooks.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: list[CallHook] = []
        self.after: list[CallHook] = []

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        wire.path(kind, namespace, name)  # refuses what the wire could not say
        await asyncio.sleep(0)
        resource = kind.RESOURCE
        served = self._store.kind(resource.api_version, resource.kind)
        return msgspec.convert(self._store.peek(served, namespace, name), kind)

    async def list(self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        await asyncio.sleep(0)
        resource = kind.RESOURCE
        items, version = self._store.list(resource.api_version, resource.kind, namespace, labels, fields)
        return Listing(items=[msgspec.convert(item, kind) for item in items], resource_version=version)

    async def watch(
        self, kind: type[T], namespace: str = "", *, resource_version: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.sleep(0)
        resource = kind.RESOURCE
        events = self._store.watch(resource.api_version, resource.kind, namespace, labels, fields, resource_version)
        async for name, item in events:
            yield WatchEvent(type=EventType(name), object=msgspec.convert(item, kind))

    async def create(self, obj: T) -> T:
        if obj.RESOURCE.namespaced and not obj.namespace:
            raise ValueError(f"{obj.RESOURCE.kind} {obj.name!r} is namespaced, but no namespace was given")
        wire.path(type(obj), obj.namespace)
        written = wire.body(obj)
        key = f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name or f"{obj.metadata.generate_name}?"
        return msgspec.convert(await self._write("create", obj, key, lambda: self._store.create(written)), type(obj))

    async def patch(self, kind: type[T], name: str, patch: Patch, namespace: str = "", *, subresource: str = "") -> T:
        wire.path(kind, namespace, name)
        resource = kind.RESOURCE

        def call() -> dict[str, Any]:
            return self._store.patch(resource.api_version, resource.kind, namespace, name, patch, subresource)

        return msgspec.convert(await self._write("patch", kind, _key(namespace, name), call), kind)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        wire.path(kind, namespace, name)
        resource = kind.RESOURCE

        def call() -> dict[str, Any]:
            return self._store.delete(
                resource.api_version,
                resource.kind,
                namespace,
                name,
                uid=uid,
                resource_version=resource_version,
                grace_period_s=grace_period_s,
                propagation=propagation,
            )

        await self._write("delete", kind, _key(namespace, name), call)

    async def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        await asyncio.sleep(0)
        _tell(self.before, "evict", "Pod", _key(namespace, name))
        self._store.evict(namespace, name, uid=uid)
        _tell(self.after, "evict", "Pod", _key(namespace, name))

    async def close(self) -> None:
        """Nothing to close: the store belongs to whoever made it."""

    async def _write(self, verb: str, kind: Target, key: str, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        await asyncio.sleep(0)
        _tell(self.before, verb, kind.RESOURCE.kind, key)
        answer = call()
        _tell(self.after, verb, kind.RESOURCE.kind, key)
        return answer


def _tell(hooks: list[CallHook], verb: str, kind: str, key: str) -> None:
    for hook in hooks:
        hook(verb, kind, key)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
