"""Whatever the server does, what subscribers were told adds up to what is there."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api.core import Node, NodeSpec
from kubewright.api.meta import ObjectMeta
from kubewright.errors import NotFound, ServerUnavailable
from kubewright.kube.informer import Informer
from kubewright.sim.loop import run
from tests.unit.kube.memory import MemoryClient

Told = list[tuple[str, str]]


def now() -> float:
    return asyncio.get_running_loop().time()


def node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


class Listener:
    """Keeps its own mirror from what it is told, and refuses to be told nonsense."""

    def __init__(self) -> None:
        self.mirror: dict[str, Node] = {}
        self.told: Told = []

    def __call__(self, old: Node | None, new: Node | None) -> None:
        changed = new or old
        assert changed is not None
        assert self.mirror.get(changed.key) is old
        if new is None:
            del self.mirror[changed.key]
        else:
            assert old is None or old.metadata.uid == new.metadata.uid
            self.mirror[changed.key] = new
        self.told.append((("-" if new is None else "+" if old is None else "~"), changed.key))


def watching(body: Callable[[MemoryClient, Informer[Node], Listener], object], **options: object) -> Listener:
    """Run `body` beside an informer; returns who listened from the start."""

    async def main() -> Listener:
        client = MemoryClient()
        informer = Informer(client, Node, **options)  # type: ignore[arg-type]
        listener = Listener()
        informer.subscribe(listener)
        task = asyncio.create_task(informer.run())
        try:
            await body(client, informer, listener)  # type: ignore[misc]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return listener

    return run(main())


STEP = st.sampled_from(["put", "drop", "replace", "compact", "hang up", "break", "bookmark", "sleep", "subscribe"])


@settings(deadline=None, max_examples=300)
@given(steps=st.lists(st.tuples(STEP, st.sampled_from("abc")), max_size=40))
def test_after_any_history_the_mirror_is_the_server(steps: list[tuple[str, str]]) -> None:
    late: list[Listener] = []

    async def body(client: MemoryClient, informer: Informer[Node], listener: Listener) -> None:
        broken = False

        def before(verb: str, _: str) -> None:
            if broken:
                raise ServerUnavailable(503, "", "down")

        client.before = before
        for step, name in steps:
            match step:
                case "put":
                    client.put(node(name))
                case "drop" if (Node, name) in client.objects:
                    client.drop(Node, name)
                case "replace" if (Node, name) in client.objects:
                    client.drop(Node, name)
                    client.put(node(name))
                case "compact":
                    client.compact()
                    client.hang_up()
                case "hang up":
                    client.hang_up()
                case "break":
                    broken = not broken
                    client.hang_up()
                case "bookmark":
                    client.bookmark(Node)
                case "subscribe":
                    late.append(Listener())
                    informer.subscribe(late[-1])
                case _:
                    await asyncio.sleep(2)
        broken = False
        await asyncio.sleep(120)
        there = {key: obj for (_, key), obj in client.objects.items()}
        for told in (listener, *late):
            assert told.mirror == there
        assert informer.objects == there
        assert informer.synced
        # Another server's restart from the same history must not be told as changes.
        before_again = len(listener.told)
        client.compact()
        client.hang_up()
        await asyncio.sleep(120)
        assert len(listener.told) == before_again

    watching(body)


def test_what_vanished_while_nobody_looked_is_told_on_the_next_list() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], listener: Listener) -> None:
        client.put(node("a"))
        client.put(node("b"))
        await informer.wait_synced()
        client.drop(Node, "a")
        client.compact()
        client.hang_up()
        await asyncio.sleep(5)

    assert watching(body).told == [("+", "a"), ("+", "b"), ("-", "a")]


def test_an_object_made_anew_under_the_same_name_is_another_object() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], listener: Listener) -> None:
        client.put(node("a"))
        await informer.wait_synced()
        client.drop(Node, "a")
        client.put(node("a"))
        client.compact()
        client.hang_up()
        await asyncio.sleep(5)

    assert watching(body).told == [("+", "a"), ("-", "a"), ("+", "a")]


def test_a_watch_that_ends_goes_on_from_the_last_bookmark_without_a_list() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        await informer.wait_synced()
        client.version = 500
        client.bookmark(Node)
        await asyncio.sleep(300)
        assert informer.resource_version == "500"
        client.compact()
        client.hang_up()
        await asyncio.sleep(1)
        assert [verb for verb, _ in client.calls] == ["list", "watch", "watch"]

    watching(body)


def test_a_server_that_is_down_is_asked_less_and_less_often() -> None:
    async def main() -> list[float]:
        client = MemoryClient()
        at: list[float] = []

        def before(verb: str, _: str) -> None:
            at.append(now())
            raise ServerUnavailable(0, "NoAnswer", "connection refused")

        client.before = before
        task = asyncio.create_task(Informer(client, Node).run())
        await asyncio.sleep(100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return at

    assert run(main()) == [0, 1, 3, 7, 15, 31, 61, 91]


@pytest.mark.parametrize("optional", [True, False])
def test_a_kind_that_need_not_be_there_has_no_objects_until_it_is(optional: bool) -> None:
    async def body(client: MemoryClient, informer: Informer[Node], listener: Listener) -> None:
        unknown = True

        def before(verb: str, _: str) -> None:
            if unknown:
                raise NotFound(404, "NotFound", "the server could not find the requested resource")

        client.before = before
        client.put(node("a"))
        await asyncio.sleep(100)
        assert informer.synced is optional
        assert (informer.silence() is not None) is optional
        assert listener.told == []
        unknown = False
        await asyncio.sleep(60)
        assert listener.told == [("+", "a")]
        unknown = True
        client.hang_up()
        await asyncio.sleep(60)
        assert (listener.mirror == {}) is optional, "its definition was taken away, and its objects with it"

    watching(body, optional=optional)


def test_a_server_that_hangs_up_at_once_is_not_hammered() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        def before(verb: str, _: str) -> None:
            client.epoch += verb == "watching"

        client.before = before
        await asyncio.sleep(3600)
        assert len(client.calls) < 150

    # `before` runs before the watch compares epochs, so that each watch ends as it begins.
    watching(body)


def test_silence_is_measured_from_the_servers_last_word() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        assert informer.silence() is None
        await informer.wait_synced()
        await asyncio.sleep(40)
        silence = informer.silence()
        assert silence is not None
        assert silence.total_seconds() == 40
        client.bookmark(Node)
        await asyncio.sleep(2)
        silence = informer.silence()
        assert silence is not None
        assert silence.total_seconds() == 2

    watching(body)


def test_a_transform_narrows_and_leaves_out() -> None:
    def transform(obj: Node) -> Node | None:
        if "skip" in obj.metadata.labels:
            return None
        return msgspec.structs.replace(obj, spec=NodeSpec())

    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        client.put(msgspec.structs.replace(node("a"), spec=NodeSpec(provider_id="aws:///a")))
        client.put(node("b", skip="yes"))
        await informer.wait_synced()
        assert informer.objects["a"].spec == NodeSpec()
        client.put(node("a", skip="yes"))
        await asyncio.sleep(1)

    assert watching(body, transform=transform).told == [("+", "a"), ("-", "a")]


def test_a_late_subscriber_hears_what_is_there_in_order_of_key() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        for name in "cab":
            client.put(node(name))
        await informer.wait_synced()
        late = Listener()
        informer.subscribe(late)
        assert late.told == [("+", "a"), ("+", "b"), ("+", "c")]

    watching(body)


def test_a_listener_that_breaks_breaks_the_informer_and_is_not_hidden() -> None:
    async def main() -> None:
        client = MemoryClient()
        client.put(node("a"))
        informer = Informer(client, Node)

        def broken(old: Node | None, new: Node | None) -> None:
            raise RuntimeError("bug")

        informer.subscribe(broken)
        with pytest.raises(RuntimeError, match="bug"):
            await informer.run()

    run(main())


@settings(deadline=None, max_examples=80)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "answer", "late answer", "drop", "wait", "hang up", "compact"]), st.sampled_from("ab")),
        max_size=25,
    )
)
def test_answers_to_writes_come_early_late_or_after_the_end_and_the_mirror_is_right_all_the_same(steps) -> None:
    async def body(client: MemoryClient, informer: Informer[Node], _: Listener) -> None:
        await informer.wait_synced()
        answers: dict[str, list[Node]] = {"a": [], "b": []}
        for step, name in steps:
            match step:
                case "put":
                    answers[name].append(client.put(node(name, at=str(client.version))))
                case "answer":
                    if answers[name]:
                        informer.saw(answers[name][-1])
                        known = informer.get(name)
                        assert known is None or int(known.metadata.resource_version) >= 0
                case "late answer":
                    if answers[name]:
                        informer.saw(answers[name][0])
                case "drop":
                    if (Node, name) in client.objects:
                        client.drop(Node, name)
                case "hang up":
                    client.hang_up()
                case "compact":
                    client.compact()
                    client.hang_up()
                case "wait":
                    await asyncio.sleep(2)
        client.hang_up()
        await asyncio.sleep(120)
        there = {o.key: o.metadata.resource_version for (kind, _), o in client.objects.items() if kind is Node}
        assert {key: o.metadata.resource_version for key, o in informer.objects.items()} == there

    listener = watching(body)
    del listener


def test_the_answer_to_a_write_is_known_at_once_and_told_once() -> None:
    async def body(client: MemoryClient, informer: Informer[Node], listener: Listener) -> None:
        client.put(node("a"))
        await asyncio.sleep(1)
        answer = client.put(node("a", x="y"))
        informer.saw(answer)
        assert informer.get("a") is answer
        await asyncio.sleep(1)
        assert listener.told == [("+", "a"), ("~", "a")]

    watching(body)
