import asyncio
from datetime import UTC, datetime, timedelta

from kubewright.api.core import Event, Node, Pod
from kubewright.api.meta import ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import Forbidden, ServerUnavailable
from kubewright.kube.events import QUEUE_LIMIT, EventHooks, Recorder
from kubewright.kube.ratelimit import TokenBucket
from kubewright.sim.loop import run
from tests.unit.kube.memory import MemoryClient

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))


class Counts(EventHooks):
    def __init__(self) -> None:
        self.written = 0
        self.lost: list[str] = []

    def created(self, reason: str) -> None:
        self.written += 1

    def dropped(self, reason: str, why: str) -> None:
        self.lost.append(why)


class World:
    def __init__(self) -> None:
        self.client = MemoryClient()
        self.counts = Counts()
        self.recorder = Recorder(self.client, Clock(EPOCH), hooks=self.counts)

    def events(self) -> list[Event]:
        return [obj for (kind, _), obj in self.client.objects.items() if kind is Event]


def test_an_event_says_about_whom_of_what_kind_and_from_whom() -> None:
    async def main() -> None:
        world = World()
        world.recorder.publish(POD, "Warning", "FailedScheduling", "Failed to schedule pod, no instance type")
        await world.recorder.flush()
        (event,) = world.events()
        assert event.namespace == "shop"
        assert (event.type, event.reason, event.count) == ("Warning", "FailedScheduling", 1)
        about = event.involved_object
        assert (about.api_version, about.kind, about.namespace, about.name, about.uid) == ("v1", "Pod", "shop", "web", "u1")
        assert event.source.component == event.reporting_component == "karpenter"
        assert event.first_timestamp == event.last_timestamp == EPOCH

    run(main())


def test_events_about_cluster_scoped_objects_live_in_default() -> None:
    async def main() -> None:
        world = World()
        world.recorder.publish(Node(metadata=ObjectMeta(name="n")), "Normal", "DisruptionBlocked", "x")
        await world.recorder.flush()
        assert [(e.namespace, e.involved_object.namespace) for e in world.events()] == [("default", "")]

    run(main())


def test_a_repeat_counts_on_the_first_event_until_it_is_too_old() -> None:
    async def main() -> None:
        world = World()
        for _ in range(3):
            world.recorder.publish(POD, "Normal", "Nominated", "Pod should schedule on: node/a")
            await world.recorder.flush()
            await asyncio.sleep(60)
        (event,) = world.events()
        assert event.count == 3
        assert event.first_timestamp == EPOCH
        assert event.last_timestamp == EPOCH + timedelta(minutes=2)
        await asyncio.sleep(3600)
        world.recorder.publish(POD, "Normal", "Nominated", "Pod should schedule on: node/a")
        await world.recorder.flush()
        assert sorted(e.count for e in world.events()) == [1, 3]

    run(main())


def test_a_repeat_of_an_event_that_the_server_forgot_is_written_anew() -> None:
    async def main() -> None:
        world = World()
        for _ in range(2):
            world.recorder.publish(POD, "Normal", "Nominated", "x")
            await world.recorder.flush()
            (event,) = world.events()
            world.client.drop(Event, event.key)
        assert world.counts.written == 2

    run(main())


def test_dedupe_is_by_reason_without_case_and_values_for_two_minutes() -> None:
    async def main() -> list[bool]:
        recorder = World().recorder
        said = [recorder.publish(POD, "Normal", "Nominated", "a", ("u1",))]
        said.append(recorder.publish(POD, "Normal", "nominated", "b", ("u1",)))
        said.append(recorder.publish(POD, "Normal", "Nominated", "a", ("u2",)))
        await asyncio.sleep(119)
        said.append(recorder.publish(POD, "Normal", "Nominated", "a", ("u1",)))
        await asyncio.sleep(2)
        said.append(recorder.publish(POD, "Normal", "Nominated", "a", ("u1",)))
        return said

    assert run(main()) == [True, False, True, False, True]


def test_without_values_nothing_is_deduplicated() -> None:
    async def main() -> list[bool]:
        recorder = World().recorder
        return [recorder.publish(POD, "Normal", "Nominated", "a") for _ in range(3)]

    assert run(main()) == [True, True, True]


def test_an_event_that_the_limiter_stopped_stays_away_for_its_window() -> None:
    async def main() -> None:
        world = World()
        limiter = TokenBucket(5, 10)
        said = [world.recorder.publish(POD, "Normal", "Nominated", "a", (f"u{i}",), limiter=limiter) for i in range(12)]
        assert said == [True] * 10 + [False] * 2
        await asyncio.sleep(60)
        assert not world.recorder.publish(POD, "Normal", "Nominated", "a", ("u11",), limiter=limiter)
        assert world.counts.lost == ["rate-limited", "rate-limited", "duplicate"]

    run(main())


def test_a_full_queue_drops_and_counts_and_never_waits() -> None:
    async def main() -> None:
        world = World()
        said = [world.recorder.publish(POD, "Normal", "R", f"{i}") for i in range(QUEUE_LIMIT + 5)]
        assert said.count(False) == 5
        assert world.counts.lost == ["queue-full"] * 5

    run(main())


def test_a_server_that_refuses_costs_the_event_and_nothing_else() -> None:
    async def main() -> None:
        world = World()
        answers = [ServerUnavailable(503, "", "down"), Forbidden(403, "Forbidden", "no")]

        def before(verb: str, key: str) -> None:
            if answers:
                raise answers.pop()

        world.client.before = before
        task = asyncio.create_task(world.recorder.run())
        for index in range(3):
            world.recorder.publish(POD, "Normal", "R", f"{index}")
        await asyncio.sleep(1)
        assert world.counts.lost == ["refused", "refused"]
        assert [e.message for e in world.events()] == ["2"]
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_two_events_of_one_moment_have_two_names() -> None:
    async def main() -> None:
        world = World()
        for message in ("a", "b"):
            world.recorder.publish(POD, "Normal", "R", message)
        await world.recorder.flush()
        assert len({e.name for e in world.events()}) == 2

    run(main())
