"""Kubernetes events for people who type `kubectl describe`: deduplicated, rate-limited, and never in anybody's way.

`publish` is a plain function that only decides and queues; `run` writes. An event that cannot be written is counted and
dropped: losing one costs a reader a line, waiting for one would cost a node.

Source: spec/scheduling 12.2; the shape of a repeat (patch of count and lastTimestamp) is client-go's.
"""

import asyncio
from collections import OrderedDict, deque
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from kubewright.api.core import Event, EventSource, ObjectReference
from kubewright.api.meta import Object, ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import KubeError, NotFound
from kubewright.kube.client import KubeClient, MergePatch
from kubewright.kube.ratelimit import TokenBucket

DEDUPE_WINDOW = timedelta(minutes=2)
COMPONENT = "karpenter"
"""The name that `kubectl describe` shows under From; scripts filter on it."""

QUEUE_LIMIT = 1000
MEMORY_LIMIT = 4096
"""Of dedupe keys and of events whose repeats are counted; the oldest are forgotten first."""

REPEAT_WINDOW = timedelta(minutes=10)
"""A repeat within this time is a count on the first event; later ones make a new event (events live an hour)."""


class EventHooks:
    """What the recorder tells a listener; override what you want to hear."""

    def created(self, reason: str) -> None:
        """Called when an event or its repeat was written."""

    def dropped(self, reason: str, why: str) -> None:
        """Called when one was not: `why` is "duplicate", "rate-limited", "queue-full" or "refused"."""


class _Waiting(msgspec.Struct, frozen=True):
    about: ObjectReference
    type: str
    reason: str
    message: str
    at: datetime


class _Written(msgspec.Struct, frozen=True):
    name: str
    count: int
    last: datetime


class Recorder:
    """Writes events about objects. Start `run` once; without it events only fill the queue."""

    def __init__(self, client: KubeClient, clock: Clock, *, component: str = COMPONENT, hooks: EventHooks | None = None) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._hooks = hooks or EventHooks()
        self._seen: OrderedDict[tuple[str, ...], datetime] = OrderedDict()
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._written: OrderedDict[tuple[ObjectReference, str, str, str], _Written] = OrderedDict()
        self._serial = 0
        self._log = structlog.get_logger("kubewright.events")

    def publish(
        self,
        obj: Object,
        type: str,  # noqa: A002 — the field's word
        reason: str,
        message: str,
        dedupe: tuple[str, ...] = (),
        *,
        window: timedelta = DEDUPE_WINDOW,
        limiter: TokenBucket | None = None,
    ) -> bool:
        """Queue an event about `obj`; `type` is "Normal" or "Warning". Returns whether it will be written.

        The same reason and `dedupe` values are written once in `window`; no values, no dedupe. The values are remembered
        before `limiter` is asked, so an event that the limiter stops stays away for the whole window.
        """
        now = self._clock.now()
        if dedupe and self._is_repeat((reason.lower(), *dedupe), now, window):
            self._hooks.dropped(reason, "duplicate")
            return False
        if limiter is not None and not limiter.try_take():
            self._hooks.dropped(reason, "rate-limited")
            return False
        if len(self._queue) >= QUEUE_LIMIT:
            self._hooks.dropped(reason, "queue-full")
            return False
        self._queue.append(_Waiting(reference(obj), type, reason, message, now))
        self._wake.set()
        return True

    async def run(self) -> None:
        """Write what is queued until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what is queued now."""
        while self._queue:
            waiting = self._queue.popleft()
            try:
                await self._write(waiting)
            except KubeError as error:
                self._hooks.dropped(waiting.reason, "refused")
                self._log.warning(
                    "event was not written",
                    reason=waiting.reason,
                    about=f"{waiting.about.kind} {waiting.about.namespace}/{waiting.about.name}",
                    error=str(error),
                )
            else:
                self._hooks.created(waiting.reason)

    def _is_repeat(self, key: tuple[str, ...], now: datetime, window: timedelta) -> bool:
        until = self._seen.get(key)
        if until is not None and now < until:
            return True
        self._seen[key] = now + window
        self._seen.move_to_end(key)
        while len(self._seen) > MEMORY_LIMIT:
            self._seen.popitem(last=False)
        return False

    async def _write(self, waiting: _Waiting) -> None:
        key = (waiting.about, waiting.type, waiting.reason, waiting.message)
        # Events about cluster-scoped objects live in "default"; the API server insists.
        namespace = waiting.about.namespace or "default"
        before = self._written.get(key)
        if before is not None and waiting.at - before.last < REPEAT_WINDOW:
            repeat = _Written(before.name, before.count + 1, waiting.at)
            try:
                await self._client.patch(
                    Event,
                    before.name,
                    MergePatch({"count": repeat.count, "lastTimestamp": _rfc3339(waiting.at)}),
                    namespace,
                )
            except NotFound:
                pass  # it outlived the API server's memory: write a new one
            else:
                self._remember(key, repeat)
                return
        self._serial += 1
        name = f"{waiting.about.name}.{_nanoseconds(waiting.at) + self._serial:x}"
        await self._client.create(
            Event(
                metadata=ObjectMeta(name=name, namespace=namespace),
                involved_object=waiting.about,
                reason=waiting.reason,
                message=waiting.message[:1024],
                type=waiting.type,
                count=1,
                first_timestamp=waiting.at.replace(microsecond=0),
                last_timestamp=waiting.at.replace(microsecond=0),
                source=EventSource(component=self._component),
                reporting_component=self._component,
            )
        )
        self._remember(key, _Written(name, 1, waiting.at))

    def _remember(self, key: tuple[ObjectReference, str, str, str], written: _Written) -> None:
        self._written[key] = written
        self._written.move_to_end(key)
        while len(self._written) > MEMORY_LIMIT:
            self._written.popitem(last=False)


def reference(obj: Object) -> ObjectReference:
    """The involvedObject that points to `obj`."""
    resource = obj.RESOURCE
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, name=obj.name, namespace=obj.namespace, uid=obj.metadata.uid
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000
