"""Who is told why a pod waits, how often, and what that costs."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api.core import Pod
from kubewright.api.meta import OwnerReference
from kubewright.clock import Clock
from kubewright.controllers.failures import MOST_EXPLAINED, WINDOW, Failures
from kubewright.lifecycle.effects import Publish
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.sim import loop
from kubewright.solver.problem import Plan, Problem
from tests.builders import ask, node_pool, pod


class Told:
    """An actor that only listens."""

    def __init__(self) -> None:
        self.events: list[Publish] = []

    def publish(self, event: Publish, **_: Any) -> None:
        self.events.append(event)


class Explainer:
    def __init__(self, fails: bool = False) -> None:
        self.asked: list[str] = []
        self.fails = fails

    def __call__(self, problem: Problem, plan: Plan, key: str) -> str:
        self.asked.append(key)
        if self.fails:
            raise ZeroDivisionError
        return f"because of {key}"


def say(key: str, refusals: tuple[Refusal, ...]) -> str:
    return "; ".join(r.found for r in refusals)


def of(app: str, i: int) -> Pod:
    one = pod(f"{app}-{i}", app=app)
    maker = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=app, uid=f"rs-{app}", controller=True)
    meta = msgspec.structs.replace(one.metadata, uid=f"uid-{app}-{i}", owner_references=(maker,))
    return msgspec.structs.replace(one, metadata=meta)


def pass_of(failures: Failures, refused: list[tuple[Pod, str]]) -> None:
    plan = Plan(unplaced={p.key: (Refusal(Because.RESOURCES, "", "", text),) for p, text in refused})
    failures.unplaced({p.key: p for p, _ in refused}, ask([p for p, _ in refused], [node_pool()]), plan)


def play(story: Any, explainer: Explainer) -> list[Publish]:
    told = Told()

    async def main() -> None:
        failures = Failures(told, Clock(loop.EPOCH), say, explainer)  # type: ignore[arg-type]
        task = asyncio.create_task(failures.run())
        await story(failures)
        await asyncio.sleep(1)
        assert not task.done()
        task.cancel()

    loop.run(main())
    return told.events


passes = st.lists(
    st.tuples(st.integers(1, 400), st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.sampled_from("xyz"))),
    max_size=12,
)


@given(passes)
@settings(max_examples=60, deadline=None)
def test_every_reason_is_told_once_in_its_window_and_a_new_one_at_once(history: list[Any]) -> None:
    explainer = Explainer()
    expected: list[tuple[str, str]] = []
    last: dict[tuple[str, str], timedelta] = {}

    async def story(failures: Failures) -> None:
        now = timedelta()
        for pause_s, refused in history:
            await asyncio.sleep(pause_s)
            now += timedelta(seconds=pause_s)
            pods = [(of(app, i), text) for (app, i), text in refused.items()]
            pass_of(failures, pods)
            for one, text in pods:
                mark = (one.metadata.uid, text)
                if mark not in last or now - last[mark] >= WINDOW:
                    last[mark] = now
                    expected.append(mark)
            await asyncio.sleep(0)

    events = play(story, explainer)
    assert sorted((e.about.metadata.uid, e.dedupe[1]) for e in events) == sorted(expected)
    for event in events:
        assert event.dedupe == (event.about.metadata.uid, event.dedupe[1])
        assert event.message.startswith(f"Failed to schedule pod, {event.dedupe[1]}; kubewright: because of ")
    assert len(explainer.asked) <= len(events), "nobody asks for what is not told"


def test_a_workload_is_explained_once_however_many_its_pods() -> None:
    explainer = Explainer()

    async def story(failures: Failures) -> None:
        for _ in range(20):
            pass_of(failures, [(of(app, i), "too big") for app in "ab" for i in range(50)])
            await asyncio.sleep(10)

    events = play(story, explainer)
    assert len(events) == 100
    assert sorted(explainer.asked) == ["default/a-0", "default/b-0"]


def test_counts_that_change_are_no_new_reason() -> None:
    async def story(failures: Failures) -> None:
        for i in range(5):
            pass_of(failures, [(of("a", 0), f"unsatisfiable topology constraint (counts = zone-1: {i})")])
            await asyncio.sleep(10)
        pass_of(failures, [(of("a", 0), "no instance type has enough resources")])

    assert len(play(story, Explainer())) == 2


def test_a_pass_explains_some_workloads_and_the_others_have_their_turn() -> None:
    explainer = Explainer()
    wanted = [(of(f"app{'x' * i}", 0), "too big") for i in range(MOST_EXPLAINED + 5)]

    async def story(failures: Failures) -> None:
        for _ in range(2):
            pass_of(failures, wanted)
            await asyncio.sleep(WINDOW.total_seconds() + 1)

    events = play(story, explainer)
    assert len(events) == 2 * len(wanted), "everybody is told"
    told = [e.message for e in events if "kubewright: " in e.message]
    assert len(explainer.asked) == len(set(explainer.asked)) == len(wanted)
    assert len(told) == MOST_EXPLAINED + len(wanted)


def test_the_event_comes_without_words_where_explaining_fails() -> None:
    async def story(failures: Failures) -> None:
        pass_of(failures, [(of("a", 0), "too big")])

    (event,) = play(story, Explainer(fails=True))
    assert event.message == "Failed to schedule pod, too big"


def test_what_a_pass_has_not_found_the_words_for_is_left_to_the_next() -> None:
    explainer = Explainer()

    async def story(failures: Failures) -> None:
        pass_of(failures, [(of("a", 0), "too big"), (of("b", 0), "too big")])
        pass_of(failures, [(of("b", 0), "too big")])

    (event,) = play(story, explainer)
    assert event.about.metadata.name == "b-0"
    assert explainer.asked == ["default/b-0"]


def test_pods_left_out_of_the_pass_are_told_of_at_once_and_unexplained() -> None:
    explainer = Explainer()
    one = of("a", 0)

    async def story(failures: Failures) -> None:
        for text in ("no class", "no class", "", "no volume"):
            failures.ignored({one.key: one}, {one.key: (Refusal(Because.INVALID, "", "", text),)})

    events = play(story, explainer)
    assert [e.message for e in events] == ["Failed to schedule pod, no class", "Failed to schedule pod, no volume"]
    assert explainer.asked == []
