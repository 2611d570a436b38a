"""Laws of the work queue, in virtual time."""

import asyncio
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.kube.queue import WorkQueue
from kubewright.sim.loop import run

SECOND = timedelta(seconds=1)


def now() -> float:
    return asyncio.get_running_loop().time()


ACTION = st.tuples(
    st.sampled_from(["add", "after", "retry", "sleep"]), st.sampled_from("abcd"), st.integers(min_value=0, max_value=20)
)


@settings(deadline=None, max_examples=200)
@given(actions=st.lists(ACTION, max_size=40), workers=st.integers(1, 3), work=st.integers(0, 5))
def test_every_add_is_followed_by_a_run_and_no_key_runs_twice_at_a_time(
    actions: list[tuple[str, str, int]], workers: int, work: int
) -> None:
    async def main() -> list[tuple[float, str]]:
        queue = WorkQueue()
        wanted: list[tuple[float, str]] = []
        runs: list[tuple[float, str]] = []
        working: set[str] = set()

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in working
                working.add(key)
                runs.append((now(), key))
                await asyncio.sleep(work)
                working.remove(key)
                queue.done(key)

        tasks = [asyncio.create_task(worker()) for _ in range(workers)]
        for verb, key, amount in actions:
            match verb:
                case "add":
                    queue.add(key)
                    wanted.append((now(), key))
                case "after":
                    queue.add_after(key, timedelta(seconds=amount))
                    wanted.append((now(), key))
                case "retry":
                    queue.retry(key)
                    wanted.append((now(), key))
                case _:
                    await asyncio.sleep(amount / 7)
        await asyncio.sleep(1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for at, key in wanted:
            assert any(ran >= at and name == key for ran, name in runs), (at, key, runs)
        assert len(runs) <= len(wanted)
        return runs

    assert run(main()) == run(main())


def test_of_several_delays_the_earliest_wins_and_the_later_do_not_run() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add_after("a", 30 * SECOND)
        queue.add_after("a", 10 * SECOND)
        queue.add_after("a", 20 * SECOND)
        assert await queue.get() == "a"
        assert now() == 10
        queue.done("a")
        await asyncio.sleep(100)
        assert len(queue) == 0

    run(main())


def test_a_plain_add_does_not_lose_a_delay() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add_after("a", 30 * SECOND)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        assert await queue.get() == "a"
        assert now() == 30

    run(main())


def test_back_off_doubles_to_its_cap_and_starts_anew_after_success() -> None:
    async def main() -> None:
        queue = WorkQueue()
        delays = [queue.retry("a").total_seconds() for _ in range(9)]
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert queue.retry("b") == SECOND
        queue.forget("a")
        assert queue.retry("a") == SECOND
        queue.close()

    run(main())


def test_the_thousandth_failure_still_has_a_delay() -> None:
    async def main() -> None:
        queue = WorkQueue()
        for _ in range(1000):
            delay = queue.retry("a")
        assert delay == timedelta(minutes=1)
        queue.close()

    run(main())


def test_first_come_first_served_and_a_busy_key_goes_behind() -> None:
    async def main() -> None:
        queue = WorkQueue()
        for key in "ab":
            queue.add(key)
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("c")
        queue.done("a")
        assert [await queue.get() for _ in range(3)] == ["b", "c", "a"]

    run(main())


def test_a_cancelled_worker_takes_no_key_along() -> None:
    async def main() -> None:
        queue = WorkQueue()
        worker = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert await asyncio.wait_for(queue.get(), 1) == "a"

    run(main())
