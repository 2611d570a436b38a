"""The runtime under every reconciler: keys in, errors logged with their object, counted, and tried again later."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from kubewright.api.meta import Object
from kubewright.errors import Conflict, KubewrightError
from kubewright.kube.queue import BASE_DELAY, MAX_DELAY, QueueHooks, WorkQueue

CONFLICT_DELAY = timedelta(milliseconds=50)
"""A conflict is the news that somebody else wrote; the watch brings their write within this time as a rule."""

_RUNS = uuid.UUID("1b6b4e2c-5f0e-5d4e-9f43-0c6a5d3c8f10")


class ControllerHooks(QueueHooks):
    """What a controller tells a listener; override what you want to hear."""

    def started(self, key: str) -> None:
        """Called when a reconcile begins."""

    def succeeded(self, key: str, took_s: float, again: timedelta | None) -> None:
        """Called when a reconcile returns; `again` is when it wants to be called next, None if it does not."""

    def failed(self, key: str, took_s: float, error: Exception) -> None:
        """Called when a reconcile raises."""


class Controller:
    """Calls `reconcile(key)` for every key enqueued, at most one call for a key at a time.

    `reconcile` returns when it wants to be called again, or None if only events matter; zero means at once, behind the
    keys that wait. If it raises, the key goes back with exponential back-off; a `Conflict` goes back after
    `CONFLICT_DELAY`, doubling as well. Cancelling `run` cancels the reconciles under way.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[timedelta | None]],
        *,
        workers: int = 1,
        base_delay: timedelta = BASE_DELAY,
        max_delay: timedelta = MAX_DELAY,
        hooks: ControllerHooks | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self.workers = workers
        self._hooks = hooks or ControllerHooks()
        self.queue = WorkQueue(base_delay=base_delay, max_delay=max_delay, hooks=self._hooks)
        self._log = structlog.get_logger("kubewright.controller")
        self._runs = 0

    def listen(self, hooks: ControllerHooks) -> None:
        """Tell `hooks` from now on, instead of those given before: for who wires metrics to controllers made elsewhere."""
        self._hooks = hooks
        self.queue.hooks = hooks

    def enqueue(self, key: str) -> None:
        self.queue.add(key)

    def enqueue_after(self, key: str, delay: timedelta) -> None:
        self.queue.add_after(key, delay)

    def enqueue_object(self, old: Object | None, new: Object | None) -> None:
        """Enqueue the object's own key; fits `Informer.subscribe`."""
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    async def run(self) -> None:
        """Work until cancelled. Workers are tasks made when there is work, so a high `workers` costs nothing idle."""
        slots = asyncio.Semaphore(self.workers)
        running: dict[asyncio.Task[None], None] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    while True:
                        await slots.acquire()
                        key = await self.queue.get()
                        task = tasks.create_task(self._work(key, slots), name=f"{self.name} {key}")
                        running[task] = None
                        task.add_done_callback(running.pop)
                except asyncio.CancelledError:
                    # In the order they began; the group alone would go by address, differently in every process.
                    for task in list(running):
                        task.cancel()
                    raise
        finally:
            self.queue.close()

    async def _work(self, key: str, slots: asyncio.Semaphore) -> None:
        try:
            await self.reconcile_once(key)
        finally:
            self.queue.done(key)
            slots.release()

    async def reconcile_once(self, key: str) -> None:
        """One reconcile of `key` with its consequences for the queue; `run` calls it."""
        self._runs += 1
        namespace, _, name = key.rpartition("/")
        started = _time()
        with structlog.contextvars.bound_contextvars(
            controller=self.name,
            **({"namespace": namespace} if namespace else {}),
            name=name,
            reconcileID=str(uuid.uuid5(_RUNS, f"{self.name} {key} {self._runs} {started}")),
        ):
            self._hooks.started(key)
            try:
                again = await self._reconcile(key)
            except Exception as error:  # noqa: BLE001 — whatever it is: it is logged, counted, and the key comes back
                self._hooks.failed(key, _time() - started, error)
                self._failed(key, error)
            else:
                self._hooks.succeeded(key, _time() - started, again)
                self.queue.forget(key)
                if again is not None:
                    self.queue.add_after(key, again)

    def _failed(self, key: str, error: Exception) -> None:
        if isinstance(error, Conflict):
            delay = self.queue.retry(key, base_delay=CONFLICT_DELAY)
            self._log.debug("reconciling met a conflict", error=str(error), retry_after_s=delay.total_seconds())
            return
        delay = self.queue.retry(key)
        self._log.error(
            "Reconciler error",
            error=str(error) or repr(error),
            error_kind=type(error).__name__,
            retry_after_s=delay.total_seconds(),
            exc_info=None if isinstance(error, KubewrightError) else error,
        )


class Singleton:
    """A controller with one key: `step` runs at the start, when triggered, and again when it asks to."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[timedelta | None]],
        *,
        base_delay: timedelta = BASE_DELAY,
        max_delay: timedelta = MAX_DELAY,
        hooks: ControllerHooks | None = None,
    ) -> None:
        async def reconcile(_: str) -> timedelta | None:
            return await step()

        self.name = name
        self.workers = 1
        self._controller = Controller(name, reconcile, base_delay=base_delay, max_delay=max_delay, hooks=hooks)

    def listen(self, hooks: ControllerHooks) -> None:
        """As `Controller.listen`."""
        self._controller.listen(hooks)

    def trigger(self) -> None:
        """Run `step` as soon as possible, once more if it runs now."""
        self._controller.enqueue("")

    def trigger_after(self, delay: timedelta) -> None:
        self._controller.enqueue_after("", delay)

    async def run(self) -> None:
        self.trigger()
        await self._controller.run()


def _time() -> float:
    return asyncio.get_running_loop().time()
