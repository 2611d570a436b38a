"""The production client against a server that answers what the test says. The semantics are the contract suite's."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api import core, karpenter
from kubewright.api.core import Node, Pod
from kubewright.api.meta import Object, ObjectMeta
from kubewright.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
)
from kubewright.kube import http, wire
from kubewright.kube.client import EventType, JsonPatch, MergePatch
from kubewright.kube.config import Connection
from kubewright.kube.http import HttpClient
from kubewright.kube.instruments import ClientMetrics
from kubewright.metrics import Registry
from tests.unit.kube.server import Asked, Server, client_of, status, stream

NODE = {"metadata": {"name": "n", "resourceVersion": "7", "uid": "u"}}


def asked_once(call: Any, answer: Any = (200, NODE)) -> Asked:
    """What the server was asked by `call(client)`."""

    async def main() -> Asked:
        server = Server(answer)
        async with client_of(server) as client:
            await call(client)
        (asked,) = server.asked
        return asked

    return asyncio.run(main())


def raised_by(answer: Any) -> KubeError:
    async def main() -> KubeError:
        async with client_of(Server(answer)) as client:
            with pytest.raises(KubeError) as caught:
                await client.get(Node, "n")
            return caught.value

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Forbidden),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", Invalid),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (410, "Gone", Gone),
        (415, "UnsupportedMediaType", Invalid),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerUnavailable),
        (503, "ServiceUnavailable", ServerUnavailable),
        (504, "Timeout", ServerUnavailable),
    ],
)
def test_every_answer_becomes_one_of_our_errors_with_the_servers_words(code: int, reason: str, kind: type[KubeError]) -> None:
    error = raised_by(status(code, reason, f"what {reason} says", retryAfterSeconds=10))
    assert type(error) is kind
    assert (error.status, error.reason, str(error)) == (code, reason, f"what {reason} says")
    assert error.details == {"retryAfterSeconds": 10}


def test_an_answer_that_is_no_status_is_quoted() -> None:
    error = raised_by((502, b"<html>Bad Gateway</html>"))
    assert type(error) is ServerUnavailable
    assert str(error) == "<html>Bad Gateway</html>"


def test_no_answer_at_all_is_server_unavailable() -> None:
    async def main() -> None:
        client = HttpClient(Connection(server="http://127.0.0.1:9", verify=True))
        with pytest.raises(ServerUnavailable, match=r"GET api/v1/nodes/n"):
            await client.get(Node, "n")
        with pytest.raises(ServerUnavailable):
            async for _ in client.watch(Node, resource_version="1"):
                pass
        await client.close()

    asyncio.run(main())


def test_an_object_that_does_not_decode_is_named_with_the_place() -> None:
    error = raised_by((200, {"metadata": {"name": "n", "generation": "seven"}}))
    assert str(error).startswith("Node n is not what this version reads")
    assert "$.metadata.generation" in str(error)


def test_the_item_that_spoils_a_list_is_named() -> None:
    async def main() -> None:
        bad = {"metadata": {"name": "b", "namespace": "shop", "labels": {"a": 1}}}
        async with client_of(Server((200, {"items": [{"metadata": {"name": "a"}}, bad]}))) as client:
            with pytest.raises(ServerUnavailable, match=r"Pod shop/b is not what this version reads.*\$\.metadata\.labels"):
                await client.list(Pod)

    asyncio.run(main())


def test_a_list_is_read_in_pages_of_one_snapshot() -> None:
    async def main() -> None:
        pages = [
            (200, {"metadata": {"resourceVersion": "9", "continue": more}, "items": [{"metadata": {"name": name}}]})
            for name, more in (("a", "one"), ("b", "two"), ("c", ""))
        ]
        server = Server(*pages)
        async with client_of(server, page=1) as client:
            listing = await client.list(Pod, labels="a=b", fields="spec.nodeName=n")
        assert [pod.name for pod in listing.items] == ["a", "b", "c"]
        assert listing.resource_version == "9"
        common = {"limit": "1", "labelSelector": "a=b", "fieldSelector": "spec.nodeName=n"}
        assert [asked.query for asked in server.asked] == [common, common | {"continue": "one"}, common | {"continue": "two"}]

    asyncio.run(main())


def test_a_list_whose_snapshot_expires_between_pages_is_read_whole() -> None:
    async def main() -> None:
        server = Server(
            (200, {"metadata": {"resourceVersion": "9", "continue": "x"}, "items": [{"metadata": {"name": "gone"}}]}),
            status(410, "Expired", "continue token too old"),
            (200, {"metadata": {"resourceVersion": "12"}, "items": [{"metadata": {"name": "a"}}]}),
        )
        async with client_of(server) as client:
            listing = await client.list(Pod)
        assert ([pod.name for pod in listing.items], listing.resource_version) == (["a"], "12")
        assert "limit" not in server.asked[-1].query

    asyncio.run(main())


def test_an_empty_list_may_be_null() -> None:
    async def main() -> None:
        async with client_of(Server((200, {"metadata": {"resourceVersion": "1"}, "items": None}))) as client:
            assert list((await client.list(Pod)).items) == []

    asyncio.run(main())


def test_requests_have_the_wires_shape() -> None:
    asked = asked_once(lambda c: c.create(Pod(metadata=ObjectMeta(generate_name="web-", namespace="shop"))))
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/shop/pods")
    assert asked.body == {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", "namespace": "shop"}}

    asked = asked_once(lambda c: c.patch(karpenter.NodeClaim, "x", MergePatch({"status": {"a": None}}), subresource="status"))
    assert (asked.method, asked.path) == ("PATCH", "/apis/karpenter.sh/v1/nodeclaims/x/status")
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == {"status": {"a": None}}

    operations = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "f"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    asked = asked_once(lambda c: c.patch(Node, "n", JsonPatch(operations)))
    assert asked.headers["Content-Type"] == "application/json-patch+json"
    assert asked.body == operations

    asked = asked_once(
        lambda c: c.delete(Pod, "p", "shop", uid="u", resource_version="5", grace_period_s=0, propagation="Background")
    )
    assert (asked.method, asked.path) == ("DELETE", "/api/v1/namespaces/shop/pods/p")
    assert asked.body == {
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    assert asked_once(lambda c: c.delete(Node, "n")).body is None

    asked = asked_once(lambda c: c.evict("p", "shop", uid="u"))
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/shop/pods/p/eviction")
    assert asked.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }


def test_a_server_under_a_path_keeps_its_path() -> None:
    async def main() -> None:
        server = Server((200, NODE))
        async with server.running():
            client = HttpClient(Connection(server=f"{server.url}/k8s/clusters/c-1", verify=True))
            await client.get(Node, "n")
            await client.close()
        assert server.asked[0].path == "/k8s/clusters/c-1/api/v1/nodes/n"

    asyncio.run(main())


def test_a_namespace_in_the_wrong_place_is_the_callers_bug() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        wire.path(Node, "default", "n")
    with pytest.raises(ValueError, match="no namespace was given"):
        wire.path(Pod, "", "p")


KINDS = [
    kind
    for module in (core, karpenter)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Object) and hasattr(kind, "RESOURCE")
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_bookmark_of_every_kind_can_be_shown(kind: type[Object]) -> None:
    line = json.dumps(
        {
            "type": "BOOKMARK",
            "object": {"metadata": {"resourceVersion": "77", "creationTimestamp": None}, "spec": {"containers": None}},
        }
    )
    event = wire.decode_event(kind, line.encode())
    assert event.type is EventType.BOOKMARK
    assert event.object.metadata.resource_version == "77"


def line(type_: str, name: str) -> bytes:
    return json.dumps({"type": type_, "object": {"metadata": {"name": name, "resourceVersion": "1"}}}).encode() + b"\n"


@settings(deadline=None, max_examples=50)
@given(cuts=st.lists(st.integers(1, 300), max_size=12), count=st.integers(0, 6))
def test_events_are_whole_however_the_bytes_arrive(cuts: list[int], count: int) -> None:
    whole = b"".join(line("ADDED", f"n{i}") for i in range(count))
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(whole[at : at + cut])
        at += cut
    chunks.append(whole[at:])

    class Response:
        async def aiter_raw(self) -> Any:
            for chunk in chunks:
                yield chunk

    async def main() -> list[bytes]:
        return [text + b"\n" async for text in http._lines(Response())]  # type: ignore[arg-type]

    assert b"".join(asyncio.run(main())) == whole


def test_a_watch_asks_for_bookmarks_from_its_version_and_ends_with_the_server() -> None:
    async def main() -> None:
        server = Server(stream(line("ADDED", "a") + line("MODIFIED", "a"), line("DELETED", "a")))
        async with client_of(server) as client:
            events = [(e.type, e.object.name) async for e in client.watch(Pod, "shop", resource_version="5", labels="a")]
        assert events == [(EventType.ADDED, "a"), (EventType.MODIFIED, "a"), (EventType.DELETED, "a")]
        query = server.asked[0].query
        assert query["watch"] == "1"
        assert query["allowWatchBookmarks"] == "true"
        assert query["resourceVersion"] == "5"
        assert query["labelSelector"] == "a"
        assert 300 <= int(query["timeoutSeconds"]) < 600

    asyncio.run(main())


@pytest.mark.parametrize("inside", [True, False], ids=["inside the stream", "as the answer"])
def test_a_version_that_is_too_old_is_gone(inside: bool) -> None:
    async def main() -> None:
        code, body = status(410, "Expired", "too old resource version: 5 (9)")
        answer = stream(json.dumps({"type": "ERROR", "object": body}).encode() + b"\n") if inside else (code, body)
        async with client_of(Server(answer)) as client:
            with pytest.raises(Gone, match="too old resource version"):
                async for _ in client.watch(Pod, resource_version="5"):
                    pass

    asyncio.run(main())


def test_a_watch_that_breaks_off_says_so() -> None:
    async def cut(request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()

    async def main() -> None:
        async with client_of(Server(stream(line("ADDED", "a"), then=cut))) as client:
            watch = client.watch(Pod, resource_version="5")
            assert (await anext(watch)).object.name == "a"
            with pytest.raises(ServerUnavailable):
                await anext(watch)

    asyncio.run(main())


def test_a_watch_that_is_silent_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WATCH_SILENCE_S", 0.05)

    async def hang(_: web.Request) -> None:
        await asyncio.sleep(30)

    async def main() -> None:
        async with client_of(Server(stream(line("ADDED", "a"), then=hang))) as client:
            with pytest.raises(ServerUnavailable, match="no answer in time"):
                async for _ in client.watch(Pod, resource_version="5"):
                    pass

    asyncio.run(main())


def test_leaving_a_watch_closes_its_connection() -> None:
    async def main() -> None:
        left = asyncio.Event()

        async def until_left(request: web.Request) -> None:
            while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            left.set()

        async with client_of(Server(stream(line("ADDED", "a"), then=until_left))) as client:
            watch = client.watch(Pod, resource_version="5")
            await anext(watch)
            await watch.aclose()  # type: ignore[attr-defined]
            await asyncio.wait_for(left.wait(), 10)

    asyncio.run(main())


def test_requests_beyond_the_burst_wait_for_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones wait, not how long: sleeping is replaced by noting."""
    waited: list[float] = []

    async def main() -> None:
        async with client_of(Server((200, NODE)), qps=1, burst=2) as client:
            sleep = asyncio.sleep

            async def note(seconds: float) -> None:
                waited.append(seconds)
                await sleep(0)

            monkeypatch.setattr("kubewright.kube.ratelimit.asyncio.sleep", note)
            for _ in range(4):
                await client.get(Node, "n")

    asyncio.run(main())
    assert len([s for s in waited if s > 0.5]) == 2


def test_every_request_is_counted_by_its_answer() -> None:
    registry = Registry()

    async def main() -> None:
        server = Server((200, NODE), status(404, "NotFound", "x"), stream(line("ADDED", "a")))
        async with client_of(server, hooks=ClientMetrics(registry)) as client:
            await client.get(Node, "n")
            with pytest.raises(NotFound):
                await client.evict("p", "shop")
            async for _ in client.watch(Node, resource_version="1"):
                pass
        client = HttpClient(Connection(server="http://127.0.0.1:9", verify=True), hooks=ClientMetrics(registry))
        with pytest.raises(ServerUnavailable):
            await client.get(Node, "n")
        await client.close()

    asyncio.run(main())
    for code, method in (("200", "GET"), ("404", "POST"), ("200", "WATCH"), ("<error>", "GET")):
        assert registry.value("client_go_request_total", code=code, method=method) == 1
    labels = {"verb": "POST", "group": "", "version": "v1", "kind": "Pod", "subresource": "eviction"}
    assert registry.value("client_go_request_duration_seconds", **labels) == 1
