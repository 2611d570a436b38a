"""The virtual clock: it jumps, it never hangs, and it does the same thing every time."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.clock import Clock
from kubewright.sim import loop


def test_a_week_passes_at_once() -> None:
    async def week() -> float:
        await asyncio.sleep(7 * 24 * 3600)
        return asyncio.get_running_loop().time()

    assert loop.run(week()) == 604_800


def test_the_clock_follows_the_loop() -> None:
    async def story() -> None:
        clock = Clock(loop.EPOCH)
        await asyncio.sleep(90)
        assert clock.now() == loop.EPOCH + timedelta(seconds=90)

    loop.run(story())


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_sleepers_wake_in_the_order_of_their_times_and_never_early(delays: list[float]) -> None:
    async def story() -> list[tuple[float, float]]:
        woken: list[tuple[float, float]] = []

        async def sleeper(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            woken.append((delay_s, asyncio.get_running_loop().time()))

        await asyncio.gather(*(sleeper(d) for d in delays))
        return woken

    woken = loop.run(story())
    assert [at for _, at in woken] == sorted(at for _, at in woken)
    assert all(abs(asked - at) < 1e-6 for asked, at in woken)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30))
def test_the_same_program_runs_in_the_same_order_twice(delays: list[int]) -> None:
    async def story() -> list[int]:
        order: list[int] = []

        async def sleeper(index: int, delay_s: int) -> None:
            for _ in range(3):
                await asyncio.sleep(delay_s)
                order.append(index)

        await asyncio.gather(*(sleeper(i, d) for i, d in enumerate(delays)))
        return order

    assert loop.run(story()) == loop.run(story())


def test_waiting_for_what_can_never_come_is_told_with_the_name_of_the_waiter() -> None:
    async def hopeless() -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        await asyncio.create_task(hopeless(), name="poor-soul")

    with pytest.raises(loop.Deadlock, match=r"poor-soul in .*hopeless"):
        loop.run(story())


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def story() -> float:
        running = asyncio.get_running_loop()
        running.call_later(3600, lambda: None).cancel()
        await asyncio.sleep(1)
        return running.time()

    assert loop.run(story()) == 1


def test_an_endless_run_ends_at_its_limit() -> None:
    async def forever() -> None:
        while True:  # noqa: ASYNC110  # the endless timer is the point
            await asyncio.sleep(10)

    with pytest.raises(loop.OutOfTime, match="3600"):
        loop.run(forever(), limit_s=3600)


def test_work_for_a_thread_runs_inline_and_takes_no_time() -> None:
    async def story() -> tuple[int, float]:
        answer = await asyncio.to_thread(sum, [1, 2, 3])
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return answer, asyncio.get_running_loop().time()

    assert loop.run(story()) == (6, 0.0)


def test_sockets_are_refused_with_the_way_out() -> None:
    async def story(descriptor: int) -> None:
        asyncio.get_running_loop().add_reader(descriptor, lambda: None)

    with Path(os.devnull).open() as file, pytest.raises(RuntimeError, match="real_time=True"):
        loop.run(story(file.fileno()))


def test_until_returns_when_the_condition_holds_and_says_what_it_missed() -> None:
    async def story() -> float:
        running = asyncio.get_running_loop()
        came = await loop.until(lambda: running.time() >= 42, within_s=60, every_s=1)
        with pytest.raises(loop.OutOfTime, match="after 5 s for: snow"):
            await loop.until(lambda: False, within_s=5, what="snow")
        await loop.at(100)
        return came

    assert loop.run(story()) == 42


def test_the_wall_clock_has_the_same_face() -> None:
    async def story() -> str:
        await asyncio.sleep(0)
        return "done"

    assert loop.run(story(), real_time=True) == "done"
