"""What runs the pretend controllers: one task, one queue each, keys in the order in which they came.

A reconciler is synchronous: it reads the view, decides, writes to the store, and is done before anybody else runs. Between two
keys the loop gets a turn, so that whoever is being simulated against sees every intermediate state.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

from kubewright.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubewright.sim.apiserver.store import Store
from kubewright.sim.events import Events
from kubewright.sim.objects import Item, Key, key_of
from kubewright.sim.view import View

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
_LEAST_DELAY_S = 1e-6


class Reconciler:
    """Brings one thing, named by a key, nearer to what is wanted. Level-triggered: called once too often, it does nothing."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.view = runtime.view
        self._queue: dict[Key, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self.start()
        runtime.add(self)

    def start(self) -> None:
        """Say what to watch, by `self.view.on(...)`."""

    def reconcile(self, key: Key) -> None:
        """Do what there is to do for `key` now. A KubeError that leaves here is retried with back-off."""
        raise NotImplementedError

    def enqueue(self, key: Key) -> None:
        self._queue.setdefault(key)
        self.runtime.wake()

    def enqueue_object(self, before: Item | None, after: Item | None) -> None:
        """A handler for `View.on`: the object's own key."""
        obj = after or before
        assert obj is not None
        self.enqueue(key_of(obj))

    def enqueue_owner(self, kind: str) -> Callable[[Item | None, Item | None], None]:
        """A handler for `View.on`: the keys of the objects of `kind` that own this one, before and after."""

        def handler(before: Item | None, after: Item | None) -> None:
            for obj in (before, after):
                for reference in (obj or {}).get("metadata", {}).get("ownerReferences") or ():
                    if reference["kind"] == kind and obj is not None:
                        self.enqueue((key_of(obj)[0], reference["name"]))

        return handler

    def after(self, delay_s: float, key: Key) -> None:
        """Have `key` looked at again in `delay_s` at the latest; an earlier appointment stays."""
        loop = asyncio.get_running_loop()
        # A timer may ring a rounding error early. Without a least delay, whoever then finds a billionth of a second left would be
        # rung again in the same instant, for ever.
        when = loop.time() + (max(delay_s, _LEAST_DELAY_S) if delay_s > 0 else 0.0)
        old = self._timers.get(key)
        if old is not None:
            if old.when() <= when:
                return
            old.cancel()
        self._timers[key] = loop.call_at(when, self._ring, key)

    def _ring(self, key: Key) -> None:
        del self._timers[key]
        self.enqueue(key)

    def backlog(self) -> int:
        """How many keys wait."""
        return len(self._queue)

    def step(self) -> None:
        """Reconcile the first key that waits."""
        key = next(iter(self._queue))
        del self._queue[key]
        try:
            self.reconcile(key)
        except KubeError as error:
            self._back_off(key, error)
        else:
            self._failures.pop(key, None)

    def _back_off(self, key: Key, error: KubeError) -> None:
        if isinstance(error, (Conflict, NotFound, AlreadyExists)) and key not in self._failures:
            self._failures[key] = 0  # somebody was faster; the view knows by now
            self.enqueue(key)
            return
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.after(min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (failures - 1)), key)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class Runtime:
    """Holds what reconcilers share, and runs them until cancelled."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.view = View(store)
        self.events = Events(store)
        self._reconcilers: list[Reconciler] = []
        self._wake = asyncio.Event()
        self._armed: set[tuple[str, str]] = set()

    def now(self) -> datetime:
        return self.store.clock.now()

    def now_s(self) -> float:
        """The loop's time; for delays, which want more than the wire's whole seconds."""
        return asyncio.get_running_loop().time()

    def add(self, reconciler: Reconciler) -> None:
        self._reconcilers.append(reconciler)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Reconcile whatever changes, until cancelled.

        Raises:
            Exception: a reconciler's own fault; only the server's refusals are retried.
        """
        try:
            while True:
                self._wake.clear()
                self.view.catch_up()
                self._arm()
                if not await self._round(self._reconcilers):
                    await self._wake.wait()
        finally:
            for reconciler in self._reconcilers:
                reconciler.stop()

    async def _round(self, reconcilers: Iterable[Reconciler]) -> bool:
        """Every key that waits now, one reconciler after the other; whether there was any.

        A whole queue at a time, so that what watches many objects is asked once for all their changes.
        """
        worked = False
        for reconciler in reconcilers:
            for _ in range(reconciler.backlog()):
                reconciler.step()
                worked = True
                await asyncio.sleep(0)
                self.view.catch_up()
        return worked

    def _arm(self) -> None:
        """Be woken by the next change of every kind."""
        for kind in self.view.kinds():
            name = (kind.group, kind.plural)
            if name not in self._armed:
                self._armed.add(name)
                self.store.table(kind).next_change().add_done_callback(lambda _, name=name: self._changed(name))  # type: ignore[misc]

    def _changed(self, name: tuple[str, str]) -> None:
        self._armed.discard(name)
        self._wake.set()
