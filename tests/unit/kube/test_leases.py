"""At most one leads, whatever clocks, servers and candidates do; in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api.core import Lease, LeaseSpec
from kubewright.api.meta import ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import ServerUnavailable
from kubewright.kube.leases import LeaderElector, LeaseLost
from kubewright.sim.loop import run
from tests.unit.kube.memory import MemoryClient

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "kube-system/karpenter-leader-election"


def now() -> float:
    return asyncio.get_running_loop().time()


def elector(client: Any, identity: str, skew: timedelta = timedelta(0)) -> LeaderElector:
    return LeaderElector(
        client, Clock(EPOCH + skew), namespace="kube-system", name="karpenter-leader-election", identity=identity
    )


class Doors:
    """One candidate's way to the shared server; it can be shut."""

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self.shut = False

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.01)
            if self.shut:
                raise ServerUnavailable(0, "NoAnswer", "no route to host")
            return await getattr(self._client, verb)(*args, **kwargs)

        return call

    async def watch(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0.01)
        async for event in self._client.watch(*args, **kwargs):
            if self.shut:
                raise ServerUnavailable(0, "NoAnswer", "no route to host")
            yield event


def test_a_standby_that_watches_takes_over_at_once_when_the_lease_is_handed_on() -> None:
    async def main() -> None:
        client = MemoryClient()
        started: dict[str, float] = {}

        async def lead(name: str) -> None:
            started[name] = now()
            await asyncio.sleep(3600)

        first = asyncio.create_task(elector(client, "a").run(lambda: lead("a")))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(elector(client, "b").run(lambda: lead("b")))
        await asyncio.sleep(100.5)
        ended = now()
        first.cancel()
        await asyncio.wait([first])
        await asyncio.sleep(0.2)
        assert started["b"] - ended <= 0.1
        second.cancel()
        await asyncio.wait([second])

    run(main())


def test_after_a_crash_the_standby_leads_within_twenty_seconds() -> None:
    async def main() -> None:
        client = MemoryClient()
        doors = Doors(client)
        started: dict[str, float] = {}

        async def lead(name: str) -> None:
            started[name] = now()
            await asyncio.sleep(3600)

        first = asyncio.create_task(elector(doors, "a").run(lambda: lead("a")))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(elector(client, "b").run(lambda: lead("b")))
        await asyncio.sleep(100.5)
        doors.shut = True  # what a killed process does to its lease: nothing
        crashed = now()
        await asyncio.sleep(20)
        assert 15 - 2 <= started["b"] - crashed <= 20
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])

    run(main())


def test_the_first_leads_and_the_second_takes_over_within_two_seconds_of_a_clean_end() -> None:
    async def main() -> None:
        client = MemoryClient()
        log: list[tuple[float, str]] = []

        async def lead(name: str) -> None:
            log.append((now(), f"{name} starts"))
            try:
                await asyncio.sleep(3600)
            finally:
                log.append((now(), f"{name} ends"))

        first = asyncio.create_task(elector(client, "a").run(lambda: lead("a")))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(elector(client, "b").run(lambda: lead("b")))
        await asyncio.sleep(100)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert client.objects[Lease, KEY].spec.holder_identity is None
        await asyncio.sleep(2.5)
        assert [what for _, what in log] == ["a starts", "a ends", "b starts"]
        assert log[2][0] - log[1][0] <= 2
        spec = client.objects[Lease, KEY].spec
        assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("b", 15, 1)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    run(main())


@settings(deadline=None, max_examples=60)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=12),
    skews=st.tuples(*[st.integers(-100_000, 100_000)] * 3),
)
def test_never_do_two_lead_whoever_is_cut_off_and_whatever_their_clocks_say(
    cuts: list[tuple[int, int]], skews: tuple[int, int, int]
) -> None:
    async def main() -> None:
        client = MemoryClient()
        doors = [Doors(client) for _ in range(3)]
        leading: set[int] = set()
        terms = 0

        async def candidate(index: int) -> None:
            nonlocal terms
            while True:
                # A new identity each time, as a new process has.
                terms += 1
                me = elector(doors[index], f"{index}-{terms}", timedelta(seconds=skews[index]))

                async def lead() -> None:
                    assert not leading, f"{index} begins while {leading} leads"
                    leading.add(index)
                    try:
                        await asyncio.sleep(10**6)
                    finally:
                        leading.discard(index)

                try:
                    await me.run(lead)
                except LeaseLost:
                    await asyncio.sleep(1)

        tasks = [asyncio.create_task(candidate(index)) for index in range(3)]
        for index, seconds in cuts:
            doors[index].shut = not doors[index].shut
            await asyncio.sleep(seconds)
            for task in tasks:
                assert not task.done(), task.exception()
        for door in doors:
            door.shut = False
        await asyncio.sleep(60)
        assert len(leading) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


def test_a_holder_that_dies_is_followed_after_its_lease_by_the_followers_own_watch() -> None:
    async def main() -> float:
        client = MemoryClient()
        # The dead holder's clock was a year ahead; nobody compares it with anything.
        client.put(
            Lease(
                metadata=ObjectMeta(name="karpenter-leader-election", namespace="kube-system"),
                spec=LeaseSpec(
                    holder_identity="karpenter-7d_x", lease_duration_seconds=15, renew_time="2027-01-01T00:00:00.000000Z"
                ),
            )
        )
        await asyncio.sleep(1000)
        started = now()
        me = elector(client, "b")
        await me.acquire()
        assert me.leads()
        return now() - started

    assert 15 <= run(main()) <= 17


def test_a_leader_that_cannot_renew_stops_before_another_may_start() -> None:
    async def main() -> None:
        client = MemoryClient()
        door = Doors(client)
        me = elector(door, "a")

        async def lead() -> None:
            await asyncio.sleep(20)
            door.shut = True
            await asyncio.sleep(10**6)

        with pytest.raises(LeaseLost, match="could not be renewed for 10 s"):
            await me.run(lead)
        assert 28 <= now() <= 31
        assert not me.leads()

    run(main())


def test_a_leader_whose_lease_was_taken_stops_and_names_who_has_it() -> None:
    async def main() -> None:
        client = MemoryClient()

        async def lead() -> None:
            await asyncio.sleep(5)
            lease = client.objects[Lease, KEY]
            client.put(Lease(metadata=lease.metadata, spec=LeaseSpec(holder_identity="thief", lease_duration_seconds=15)))
            await asyncio.sleep(10**6)

        with pytest.raises(LeaseLost, match="held by thief"):
            await elector(client, "a").run(lead)
        assert now() <= 7
        assert client.objects[Lease, KEY].spec.holder_identity == "thief"

    run(main())


def test_what_the_leader_raises_comes_out_and_the_lease_is_free() -> None:
    async def main() -> None:
        client = MemoryClient()

        async def lead() -> None:
            raise RuntimeError("bug")

        with pytest.raises(RuntimeError, match="bug"):
            await elector(client, "a").run(lead)
        assert client.objects[Lease, KEY].spec.holder_identity is None

    run(main())


def test_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="retry_period < renew_deadline < lease_duration"):
        LeaderElector(MemoryClient(), Clock(EPOCH), namespace="n", name="n", identity="i", renew_deadline=timedelta(seconds=15))
