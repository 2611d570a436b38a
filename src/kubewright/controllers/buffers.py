"""capacitybuffer: says what each CapacityBuffer stands for, and after every pass whether its room is there.

The rules are in `lifecycle.buffers`; the pods that stand in are the mirror's (`state.buffers`). Source: spec/scheduling 9.2.
"""

from collections.abc import Callable
from datetime import timedelta

from kubewright.api.buffers import CapacityBuffer
from kubewright.api.meta import Object
from kubewright.controllers.context import Context
from kubewright.errors import Conflict, NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle.buffers import Placed, Resolved, buffer_of, provisioned, resolved
from kubewright.solver.problem import Plan, Snapshot

AGAIN = timedelta(seconds=30)
WORKERS = 10


class BufferStatus:
    """Keyed by buffer. `passed` is called by the provisioner."""

    def __init__(self, context: Context, trigger: Callable[[str], None]) -> None:
        """`trigger` asks for a provisioning pass."""
        self._on = context
        self._trigger = trigger
        assert context.mirror.buffers is not None, "the gate that makes this controller also makes the mirror watch"
        self._known = context.mirror.buffers
        self.controller = Controller("capacitybuffer", self.reconcile, workers=WORKERS)
        self._known.objects.subscribe(self._buffer_changed)
        self._known.templates.subscribe(self._template_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, key: str) -> timedelta | None:
        buffer = self._known.objects.get(key)
        if buffer is None or buffer.metadata.deletion_timestamp is not None:
            self._trigger(key)  # its room is nobody's any more
            return None
        found = self._known.resolve(buffer)
        try:
            await self._on.actor.update(buffer, resolved(buffer, found, self._on.clock.now()))
        except NotFound:
            return None
        if isinstance(found, Resolved):
            self._trigger(buffer.metadata.uid)
        return AGAIN

    async def passed(self, snapshot: Snapshot, plan: Plan) -> None:
        """Note where a pass put the virtual pods, and say it on the buffers.

        Pods the pass did not see wait for a machine that was bought for them and is not launched yet.
        """
        buffer = {pod.key: buffer_of(pod) for pod in snapshot.virtual}
        on: dict[str, int] = {}
        counts: dict[str, Placed] = {}
        seen: set[str] = set()
        for name in sorted(plan.existing):
            here = [key for key in plan.existing[name] if key in buffer]
            seen.update(here)
            on[name] = len(here)
            for key in here:
                counts[buffer[key]] = _plus(counts.get(buffer[key]), existing=1)
        for key in plan.unplaced:
            if key in buffer:
                seen.add(key)
                counts[buffer[key]] = _plus(counts.get(buffer[key]), failed=1)
        for key in sorted(buffer.keys() - seen):
            counts[buffer[key]] = _plus(counts.get(buffer[key]), new=1)
        self._on.mirror.put_virtual(on)
        for key in sorted(counts):
            found = self._known.objects.get(key)
            if found is not None:
                await self._say(found, counts[key])

    async def _say(self, buffer: CapacityBuffer, placed: Placed) -> None:
        try:
            await self._on.actor.update(buffer, provisioned(buffer, placed, self._on.clock.now()))
        except (Conflict, NotFound):
            return  # the next pass says it

    def _buffer_changed(self, old: CapacityBuffer | None, new: CapacityBuffer | None) -> None:
        changed = new if new is not None else old
        assert changed is not None
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self.controller.enqueue(changed.key)

    def _template_changed(self, old: Object | None, new: Object | None) -> None:
        changed = new if new is not None else old
        assert changed is not None
        for key in self._known.pointing_at(changed):
            self.controller.enqueue(key)


def _plus(before: Placed | None, *, existing: int = 0, new: int = 0, failed: int = 0) -> Placed:
    was = before or Placed()
    return Placed(was.existing + existing, was.new + new, was.failed + failed)
