"""A mirror of one kind: list once, then watch; what subscribers hear is always a difference from what they heard before.

Objects are frozen and shared, never copied. Nothing here decides: an error of the server is waited out, with
exponential back-off and no jitter, so that two runs in virtual time are equal.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Generic, TypeVar

import structlog

from kubewright.api.meta import Object
from kubewright.errors import Gone, KubeError, NotFound
from kubewright.kube.client import EventType, KubeClient, WatchEvent

T = TypeVar("T", bound=Object)
Callback = Callable[[T | None, T | None], None]

BASE_DELAY_S = 1.0
MAX_DELAY_S = 30.0
SHORT_WATCH_S = 1.0
"""A watch that ends sooner without an event counts as a failure, or a server that hangs up at once would be hammered."""


class Informer(Generic[T]):
    """All objects of `kind` that the selectors allow, kept current by `run`.

    `transform` is applied to every object before it is kept or shown: return a smaller one to save memory, or None to
    keep nothing of it (subscribers then see it as absent). It must be a function of the object alone.

    Callbacks are plain functions called in the order of the changes; if one raises, `run` raises: a mirror that lost a
    change must not go on.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: type[T],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        transform: Callable[[T], T | None] | None = None,
        optional: bool = False,
    ) -> None:
        """`optional` is for kinds that the server need not serve: one it does not know has no objects, and is asked for again."""
        self._optional = optional
        self.kind = kind
        self._client = client
        self._namespace = namespace
        self._fields = fields
        self._labels = labels
        self._transform = transform
        self._objects: dict[str, T] = {}
        self.objects: Mapping[str, T] = MappingProxyType(self._objects)
        """Key → object, live. The order is that of arrival: sort before a decision depends on it."""
        self._ahead: dict[str, int] = {}
        """Key → version of an object that the answer to a write brought before the watch did."""
        self._callbacks: list[Callback[T]] = []
        self._synced = asyncio.Event()
        self._version = ""
        self._failures = 0
        self.last_seen: float | None = None
        """Loop time, in seconds, of the server's last word (a list, an event, a bookmark); None before the first."""
        self._log = structlog.get_logger("kubewright.informer").bind(kind=kind.RESOURCE.kind)

    @property
    def synced(self) -> bool:
        """Whether the first list has been told to all subscribers."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """How far the mirror has come; "" when the next thing to do is a list."""
        return self._version

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def silence(self) -> timedelta | None:
        """How long the server has said nothing; None before its first word. Long silence means a stale watch."""
        return None if self.last_seen is None else timedelta(seconds=_time() - self.last_seen)

    def subscribe(self, callback: Callback[T]) -> None:
        """Call `callback(old, new)` for every change from now on: (None, new) appeared, (old, None) went.

        What is there already is told at once, as appeared, in order of key.
        """
        self._callbacks.append(callback)
        for key in sorted(self._objects):
            callback(None, self._objects[key])

    def saw(self, obj: T) -> None:
        """Take over what the server answered to a write of ours, which the watch will bring a moment later.

        Who reads the mirror then does not write on what is known to be stale. Only an object that is there, and older, is
        replaced: what has gone meanwhile does not come back.
        """
        key = obj.key
        old = self._objects.get(key)
        if old is None or old.metadata.uid != obj.metadata.uid or not self._version:
            return
        version, known = obj.metadata.resource_version, old.metadata.resource_version
        if not (version.isdecimal() and known.isdecimal()) or int(version) <= int(known):
            return
        self._ahead[key] = int(version)
        self._put(obj)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone as gone:
                # The history is shorter than our absence: list again, at once if it is the first time in a row.
                self._version = ""
                self._log.info("watch is too old, listing again", error=str(gone))
                await self._back_off()
            except KubeError as error:
                if self._optional and isinstance(error, NotFound):
                    await self._none_of_it()
                    continue
                self._failures += 1
                self._log.warning(
                    "watch broke off, trying again",
                    error=str(error),
                    error_kind=type(error).__name__,
                    failures=self._failures,
                    retry_after_s=self._delay_s(),
                )
                await asyncio.sleep(self._delay_s())

    async def _none_of_it(self) -> None:
        """The server does not know the kind: its CustomResourceDefinition is not there, or no longer."""
        if not self._failures:
            self._log.error(
                "the API server does not serve this kind: install its CRD (kubewright crds), or turn its feature gate off"
            )
        self._failures += 1
        self._version = ""
        self.last_seen = _time()
        for key in sorted(self._objects):
            self._drop(key)
        self._synced.set()
        await asyncio.sleep(MAX_DELAY_S)

    async def _list(self) -> None:
        listing = await self._client.list(self.kind, self._namespace, labels=self._labels, fields=self._fields)
        self.last_seen = _time()
        self._ahead.clear()
        seen = set[str]()
        for obj in sorted(listing.items, key=lambda o: o.key):
            seen.add(obj.key)
            self._put(obj)
        for key in sorted(self._objects.keys() - seen):
            self._drop(key)
        self._version = listing.resource_version
        self._synced.set()

    async def _watch(self) -> None:
        started = _time()
        heard = False
        watch = self._client.watch(
            self.kind, self._namespace, resource_version=self._version, labels=self._labels, fields=self._fields
        )
        try:
            async for event in watch:
                heard = True
                self.last_seen = _time()
                self._failures = 0
                self._apply(event)
        finally:
            # Free the connection now and not when the collector comes by.
            if isinstance(watch, AsyncGenerator):
                await watch.aclose()
        # The server ends every watch after some minutes; going on from the last version is the normal case.
        if heard or _time() - started >= SHORT_WATCH_S:
            self._failures = 0
        else:
            await self._back_off()

    def _apply(self, event: WatchEvent[T]) -> None:
        match event.type:
            case EventType.ADDED | EventType.MODIFIED:
                if not self._is_behind(event.object):
                    self._put(event.object)
            case EventType.DELETED:
                self._ahead.pop(event.object.key, None)
                self._drop(event.object.key)
            case EventType.BOOKMARK:
                pass
        self._version = event.object.metadata.resource_version

    def _is_behind(self, obj: T) -> bool:
        """Whether the watch tells what a later answer to a write has told already."""
        if not self._ahead:
            return False
        ahead = self._ahead.get(obj.key)
        if ahead is None:
            return False
        if int(obj.metadata.resource_version) < ahead:
            return True
        del self._ahead[obj.key]
        return False

    def _put(self, obj: T) -> None:
        key = obj.key
        old = self._objects.get(key)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            # Deleted and created again while nobody looked: two different objects must not look like a change of one.
            self._drop(key)
            old = None
        if old is not None and old.metadata.resource_version == obj.metadata.resource_version:
            return
        new = obj if self._transform is None else self._transform(obj)
        if new is None:
            self._drop(key)
            return
        self._objects[key] = new
        self._tell(old, new)

    def _drop(self, key: str) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._tell(old, None)

    def _tell(self, old: T | None, new: T | None) -> None:
        for callback in self._callbacks:
            callback(old, new)

    async def _back_off(self) -> None:
        """Count a failure and wait, but not for the first in a row."""
        if self._failures:
            await asyncio.sleep(self._delay_s())
        self._failures += 1

    def _delay_s(self) -> float:
        return float(min(BASE_DELAY_S * 2 ** min(max(self._failures - 1, 0), 10), MAX_DELAY_S))


def _time() -> float:
    return asyncio.get_running_loop().time()
