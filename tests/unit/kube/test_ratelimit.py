import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.kube.ratelimit import TokenBucket
from kubewright.sim.loop import run


@settings(deadline=None)
@given(waits=st.lists(st.floats(0, 3), max_size=60), burst=st.integers(1, 5), rate=st.integers(1, 10))
def test_no_window_lets_through_more_than_burst_and_rate(waits: list[float], burst: int, rate: int) -> None:
    async def main() -> None:
        bucket = TokenBucket(rate, burst)
        loop = asyncio.get_running_loop()
        passed = []
        for wait in waits:
            await asyncio.sleep(wait)
            if bucket.try_take():
                passed.append(loop.time())
        for i, start in enumerate(passed):
            for j in range(i, len(passed)):
                assert j - i + 1 <= burst + rate * (passed[j] - start) + 1e-6

    run(main())


def test_takers_wait_their_turn() -> None:
    async def main() -> list[float]:
        bucket = TokenBucket(2, 3)
        loop = asyncio.get_running_loop()

        async def taker() -> float:
            await bucket.take()
            return loop.time()

        return list(await asyncio.gather(*(taker() for _ in range(6))))

    assert run(main()) == [0, 0, 0, 0.5, 1.0, 1.5]


def test_a_taker_that_gives_up_gives_its_token_back() -> None:
    async def main() -> float:
        bucket = TokenBucket(1, 1)
        await bucket.take()
        waiting = asyncio.create_task(bucket.take())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await bucket.take()

    assert run(main()) == 1.0


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_bucket_that_never_gives_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="token bucket"):
        TokenBucket(rate, burst)
