"""The production client, informer, election and recorder against a real kube-apiserver."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubewright.api import core, karpenter
from kubewright.api.core import Event, Lease, Pod
from kubewright.api.meta import Object, ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from kubewright.kube import config
from kubewright.kube.client import EventType, JsonPatch, MergePatch
from kubewright.kube.events import Recorder
from kubewright.kube.http import HttpClient
from kubewright.kube.informer import Informer
from kubewright.kube.leases import LeaderElector
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go

CORE_KINDS = [
    kind for kind in vars(core).values() if isinstance(kind, type) and issubclass(kind, Object) and hasattr(kind, "RESOURCE")
]


def on(plane: Plane, body: Callable[[HttpClient], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        client = HttpClient(config.load(str(plane.kubeconfig()), environment={}), **options)
        try:
            await body(client)
        finally:
            await client.close()

    asyncio.run(main())


def pod(plane: Plane, namespace: str, name: str, **metadata: Any) -> None:
    """A pod that no node takes."""
    plane.create(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"name": name, **metadata},
            "spec": {
                "containers": [{"name": "c", "image": "pretend"}],
                "nodeSelector": {"kubewright.sh/test": "nobody"},
            },
        },
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 — what it waits for is another process
            await asyncio.sleep(0.01)


async def refusal(call: Awaitable[Any]) -> type[KubeError]:
    with pytest.raises(KubeError) as caught:
        await call
    return type(caught.value)


def test_every_refusal_is_the_kind_that_callers_expect(plane: Plane, namespace: str) -> None:
    async def body(client: HttpClient) -> None:
        pod(plane, namespace, "web")
        assert await refusal(client.get(Pod, "no", namespace)) is NotFound
        assert await refusal(client.delete(Pod, "web", namespace, uid="other")) is Conflict
        assert await refusal(client.delete(Pod, "web", namespace, resource_version="1")) is Conflict
        assert await refusal(client.evict("web", namespace, uid="other")) is Conflict
        stale = MergePatch({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}})
        assert await refusal(client.patch(Pod, "web", stale, namespace)) is Conflict
        wrong = JsonPatch([{"op": "test", "path": "/metadata/name", "value": "other"}])
        assert await refusal(client.patch(Pod, "web", wrong, namespace)) is Invalid
        assert await refusal(client.patch(Pod, "web", MergePatch({"spec": {"priority": "x"}}), namespace)) is Invalid
        lease = Lease(metadata=ObjectMeta(name="l", namespace=namespace))
        await client.create(lease)
        assert await refusal(client.create(lease)) is AlreadyExists

    on(plane, body)


def test_an_informer_sees_an_object_come_change_and_go(plane: Plane, namespace: str) -> None:
    async def body(client: HttpClient) -> None:
        told: list[tuple[bool, bool]] = []
        pod(plane, namespace, "before")
        informer = Informer(client, Pod, namespace=namespace)
        informer.subscribe(lambda old, new: told.append((old is not None, new is not None)))
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        assert list(informer.objects) == [f"{namespace}/before"]
        pod(plane, namespace, "web", finalizers=["kubewright.sh/test"])
        await until(lambda: f"{namespace}/web" in informer.objects)
        await client.evict("web", namespace, uid=informer.objects[f"{namespace}/web"].metadata.uid)
        await until(lambda: informer.objects[f"{namespace}/web"].metadata.deletion_timestamp is not None)
        await client.patch(Pod, "web", MergePatch({"metadata": {"finalizers": None}}), namespace)
        await client.delete(Pod, "before", namespace, grace_period_s=0)
        await until(lambda: not informer.objects)
        assert told[0] == (False, True)
        assert told.count((True, False)) == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    on(plane, body)


def test_pages_make_one_list_and_a_watch_goes_on_from_it(plane: Plane, namespace: str) -> None:
    async def body(client: HttpClient) -> None:
        for index in range(7):
            pod(plane, namespace, f"web-{index}", labels={"app": "web"})
        pod(plane, namespace, "other")
        listing = await client.list(Pod, namespace, labels="app=web")
        assert sorted(p.name for p in listing.items) == [f"web-{index}" for index in range(7)]
        await client.delete(Pod, "web-3", namespace, grace_period_s=0)
        watch = client.watch(Pod, namespace, resource_version=listing.resource_version, labels="app=web")
        seen = [(event.type, event.object.name) async for event in _until_deleted(watch)]
        assert seen[-1] == (EventType.DELETED, "web-3")
        assert {name for _, name in seen} == {"web-3"}

    on(plane, body, page=2)


async def _until_deleted(watch: Any) -> Any:
    async for event in watch:
        yield event
        if event.type is EventType.DELETED:
            return


@pytest.mark.parametrize("kind", CORE_KINDS, ids=lambda kind: kind.__name__)
def test_what_a_real_server_has_of_every_kind_can_be_read(plane: Plane, kind: type[Object]) -> None:
    async def body(client: HttpClient) -> None:
        await client.list(kind)

    on(plane, body)


def test_the_lease_passes_on_and_its_shape_is_accepted(plane: Plane, namespace: str) -> None:
    async def body(client: HttpClient) -> None:
        clock = Clock()
        one, two = (LeaderElector(client, clock, namespace=namespace, name="leader", identity=i) for i in ("one", "two"))
        started = asyncio.Event()

        async def lead() -> None:
            started.set()

        await one.run(lead)
        assert started.is_set()
        await asyncio.wait_for(two.acquire(), 5)
        spec = (await client.get(Lease, "leader", namespace)).spec
        assert (spec.holder_identity, spec.lease_transitions) == ("two", 1)

    on(plane, body)


def test_events_are_accepted_and_counted(plane: Plane, namespace: str) -> None:
    async def body(client: HttpClient) -> None:
        pod(plane, namespace, "web")
        about = await client.get(Pod, "web", namespace)
        recorder = Recorder(client, Clock())
        for _ in range(3):
            recorder.publish(about, "Warning", "FailedScheduling", "Failed to schedule pod, x")
        recorder.publish(karpenter.NodePool(metadata=ObjectMeta(name="default", uid="u")), "Normal", "Ready", "x")
        await recorder.flush()
        (event,) = (await client.list(Event, namespace, fields="source=karpenter")).items
        assert (event.count, event.type, event.involved_object.uid) == (3, "Warning", about.metadata.uid)

    on(plane, body)
