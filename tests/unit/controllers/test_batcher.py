import asyncio
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from kubewright.controllers.batcher import Batcher
from kubewright.sim.loop import run

IDLE, LONGEST = timedelta(seconds=1), timedelta(seconds=10)


def batches(arrivals):
    """When batches end, and how large they are, if elements arrive at these seconds."""

    async def main():
        batcher = Batcher(IDLE, LONGEST)
        loop = asyncio.get_running_loop()
        for when, name in arrivals:
            loop.call_at(when, batcher.trigger, name)
        ends = []
        for _ in range(sum(1 for _ in arrivals)):
            try:
                async with asyncio.timeout(100):
                    ends.append((await batcher.wait(), loop.time()))
            except TimeoutError:
                break
        return ends

    return run(main())


def test_a_batch_ends_a_second_after_its_last_element():
    assert batches([(5, "a"), (5.5, "b"), (6.2, "c")]) == [(3, 7.2)]


def test_a_batch_never_lasts_longer_than_ten_seconds():
    steady = [(1 + i * 0.5, f"p{i}") for i in range(40)]
    assert batches(steady)[0][1] == 11


def test_the_same_element_does_not_make_a_batch_longer():
    assert batches([(1, "a"), (1.5, "a"), (2.5, "a")]) == [(1, 2), (1, 3.5)]


@given(st.lists(st.tuples(st.integers(0, 400).map(lambda i: i / 10), st.sampled_from("abcdefgh")), min_size=1, max_size=30))
def test_every_element_is_in_a_batch_that_ends_within_the_longest_wait(arrivals):
    ends = [end for _, end in batches(sorted(arrivals))]
    for when, _ in arrivals:
        assert any(when <= end <= when + LONGEST.total_seconds() + 1e-6 for end in ends)
