"""The machinery under the pretend controllers: nothing is missed, refusals are retried with back-off, faults are not hidden."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.clock import Clock
from kubewright.errors import ServerUnavailable
from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.objects import Item, Key
from kubewright.sim.runtime import Reconciler, Runtime
from kubewright.sim.view import View


class Counting(Reconciler):
    """Notes when it was called; refuses as long as `refuse` says."""

    def start(self) -> None:
        self.calls: list[tuple[float, Key]] = []
        self.refuse = 0
        self.view.on("ConfigMap", self.enqueue_object)

    def reconcile(self, key: Key) -> None:
        self.calls.append((self.runtime.now_s(), key))
        if self.refuse:
            self.refuse -= 1
            raise ServerUnavailable(503, "ServiceUnavailable", "not now")


def note(name: str) -> Item:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def test_refusals_are_retried_ever_more_slowly_and_success_starts_anew() -> None:
    async def story() -> tuple[list[float], list[float]]:
        runtime = Runtime(Store(Clock(loop.EPOCH)))
        counting = Counting(runtime)
        task = asyncio.create_task(runtime.run())
        counting.refuse = 4
        runtime.store.create(note("a"))
        await loop.at(100)
        first = [when for when, _ in counting.calls]
        counting.calls.clear()
        counting.refuse = 1
        runtime.store.patch("v1", "ConfigMap", "default", "a", {"data": {"x": "y"}})
        await loop.at(200)
        task.cancel()
        return first, [when - 100 for when, _ in counting.calls]

    assert loop.run(story()) == ([0, 1, 3, 7, 15], [0, 1])


def test_many_changes_of_one_object_are_one_call() -> None:
    async def story() -> list[Key]:
        runtime = Runtime(Store(Clock(loop.EPOCH)))
        counting = Counting(runtime)
        task = asyncio.create_task(runtime.run())
        for name in ("b", "a"):
            runtime.store.create(note(name))
        for value in "xyz":
            runtime.store.patch("v1", "ConfigMap", "default", "a", {"data": {"x": value}})
        await loop.at(1)
        task.cancel()
        return [key for _, key in counting.calls]

    assert loop.run(story()) == [("default", "a"), ("default", "b")]


def test_an_earlier_appointment_wins() -> None:
    async def story() -> list[float]:
        runtime = Runtime(Store(Clock(loop.EPOCH)))
        counting = Counting(runtime)
        task = asyncio.create_task(runtime.run())
        counting.after(50, ("default", "a"))
        counting.after(10, ("default", "a"))
        counting.after(30, ("default", "a"))
        await loop.at(100)
        task.cancel()
        return [when for when, _ in counting.calls]

    assert loop.run(story()) == [10]


def test_a_fault_is_not_hidden() -> None:
    class Broken(Counting):
        def reconcile(self, key: Key) -> None:
            raise ZeroDivisionError(str(key))

    async def story() -> None:
        runtime = Runtime(Store(Clock(loop.EPOCH)))
        Broken(runtime)
        runtime.store.create(note("a"))
        await runtime.run()

    with pytest.raises(ZeroDivisionError):
        loop.run(story())


def test_a_view_that_lost_the_history_lists_again_and_tells_only_the_differences() -> None:
    async def story() -> list[tuple[str, str]]:
        store = Store(Clock(loop.EPOCH), window=5)
        view, told = View(store), []

        def handler(before: Item | None, after: Item | None) -> None:
            what = "added" if before is None else "gone" if after is None else "changed"
            told.append((what, (after or before or {})["metadata"]["name"]))

        view.on("ConfigMap", handler)
        for name in ("a", "b", "c"):
            store.create(note(name))
        view.catch_up()
        told.clear()
        for value in range(40):
            store.patch("v1", "ConfigMap", "default", "a", {"data": {"x": str(value)}})
        store.delete("v1", "ConfigMap", "default", "b")
        store.create(note("d"))
        store.compact()
        view.catch_up()
        return sorted(told)

    assert loop.run(story()) == [("added", "d"), ("changed", "a"), ("gone", "b")]


class Deadline(Reconciler):
    """Asks to be called again until a moment has come, as whoever waits for a deadline does."""

    def start(self) -> None:
        self.moment = 0.0
        self.calls = 0

    def reconcile(self, key: Key) -> None:
        self.calls += 1
        left_s = self.moment - self.runtime.now_s()
        if left_s > 0:
            self.after(left_s, key)


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_a_timer_that_rings_a_rounding_error_early_does_not_ring_for_ever(start: float, wait: float) -> None:
    async def story() -> int:
        runtime = Runtime(Store(Clock(loop.EPOCH)))
        deadline = Deadline(runtime)
        task = asyncio.create_task(runtime.run())
        await loop.at(start)
        deadline.moment = start + wait
        deadline.enqueue(("", "x"))
        await loop.at(start + wait + 1)
        task.cancel()
        return deadline.calls

    assert loop.run(story()) <= 3
