"""Carries out effects, in order, and decides nothing.

Every write may be the last before a crash, and every effect may have been done before: what is gone is deleted, what equals is
not written, what another has changed meanwhile is a Conflict, which brings the key back.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from kubewright.api.meta import Object
from kubewright.errors import Conflict, Invalid, NotFound
from kubewright.kube.client import JsonPatch, KubeClient, MergePatch, Patch
from kubewright.kube.events import Recorder
from kubewright.kube.ratelimit import TokenBucket
from kubewright.lifecycle import changes
from kubewright.lifecycle.changes import Change
from kubewright.lifecycle.effects import Count, Delete, Effect, Evict, Publish, Step, Update

T = TypeVar("T", bound=Object)
Counter = Callable[[str, Mapping[str, str], int], None]
Measure = Callable[[str, float, Mapping[str, str]], None]


class Actor:
    """Hands for effects; `count` takes what counters hear, `measure` what gauges show, `observe` what histograms gather.

    `saw` hears what the server answered to each write, so that nobody else writes on what is known to be stale.
    """

    def __init__(
        self,
        client: KubeClient,
        recorder: Recorder,
        count: Counter,
        measure: Measure,
        observe: Measure = lambda *_: None,
        saw: Callable[[Object], None] = lambda _: None,
    ) -> None:
        self.measure = measure
        self.observe = observe
        self._client = client
        self._recorder = recorder
        self._count = count
        self._saw = saw

    async def act(self, step: Step | tuple[Effect, ...]) -> Mapping[str, Object]:
        """Do the step's effects one after another; the answer has, by UID, what the server made of what was updated.

        Raises:
            Conflict: an object changed since it was read; what came before has been done.
        """
        fresh: dict[str, Object] = {}
        for effect in step.effects if isinstance(step, Step) else step:
            match effect:
                case Update(before=before, after=after, locked=locked):
                    fresh[before.metadata.uid] = await self.update(before, after, locked=locked)
                case Delete(target=target, grace_period_s=grace):
                    await self.delete(target, grace_period_s=grace)
                case Evict(target=target):
                    await self._client.evict(target.name, target.namespace, uid=target.metadata.uid)
                case Publish():
                    self.publish(effect)
                case Count(name=name, labels=labels, amount=amount):
                    self._count(name, labels, amount)
        return fresh

    async def update(self, before: T, after: T, *, locked: bool = True) -> T:
        """Write the difference and return the object as the server has it then; `before` itself when there is none.

        Raises:
            Conflict: `locked`, and the object changed since `before` was read.
            NotFound: it is gone.
        """
        current = before
        for change in changes.between(before, after):
            current = await self._send(current, change, locked=locked)
            self._saw(current)
        return current

    async def delete(self, target: Object, *, grace_period_s: int | None = None) -> None:
        """Delete exactly this object. One that is gone, or replaced by another of its name, is a success."""
        try:
            await self._client.delete(
                type(target), target.name, target.namespace, uid=target.metadata.uid, grace_period_s=grace_period_s
            )
        except (NotFound, Conflict):
            return

    def publish(self, event: Publish, *, limiter: TokenBucket | None = None) -> None:
        self._recorder.publish(
            event.about, event.kind.value, event.reason, event.message, event.dedupe, window=event.window, limiter=limiter
        )

    async def _send(self, current: T, change: Change, *, locked: bool) -> T:
        version = current.metadata.resource_version
        patch: Patch
        if change.operations:
            lock = ({"op": "test", "path": "/metadata/resourceVersion", "value": version},)
            guards = lock if locked or change.guards is None else change.guards
            patch = JsonPatch(cast("tuple[Mapping[str, Any], ...]", (*guards, *change.operations)))
        else:
            patch = MergePatch(_guarded(change.body, version) if locked or change.guards is None else change.body)
        try:
            return await self._client.patch(type(current), current.name, patch, current.namespace, subresource=change.subresource)
        except Invalid as refused:
            if not change.operations:
                raise
            # A failed `test` and an index that does not exist any more both come back as 422: ask whether it was that.
            now = await self._client.get(type(current), current.name, current.namespace)
            if now.metadata.resource_version == version:
                raise
            raise Conflict(409, "Conflict", f"{current.key} changed since it was read") from refused


def _guarded(body: Mapping[str, object], version: str) -> Mapping[str, Any]:
    metadata = cast("Mapping[str, object]", body.get("metadata", {}))
    return {**body, "metadata": {**metadata, "resourceVersion": version}}
