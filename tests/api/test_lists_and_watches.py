"""Lists, pages, selectors and watches: what informers build on."""

import asyncio
import contextlib

import pytest

from kubewright.api.core import Pod
from kubewright.api.karpenter import NodePool
from kubewright.errors import Gone, Invalid
from kubewright.kube.client import EventType, JsonPatch, MergePatch, WatchEvent
from tests.api.doors import Door
from tests.api.things import ConfigMap, configmap, pod

ROOT_CA = "kube-root-ca.crt"
ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


async def seen(door: Door, count: int, version: str, *, labels: str = "", fields: str = "") -> list[WatchEvent[ConfigMap]]:
    """The next `count` changes after `version`, without bookmarks and what a real controller manager puts into each namespace."""
    events = door.client.watch(ConfigMap, door.namespace, resource_version=version, labels=labels, fields=fields)
    found: list[WatchEvent[ConfigMap]] = []
    async with asyncio.timeout(20), contextlib.aclosing(events):  # type: ignore[type-var]
        async for event in events:
            if event.type is not EventType.BOOKMARK and event.object.name != ROOT_CA:
                found.append(event)
            if len(found) == count:
                break
    return found


async def test_a_list_reads_all_pages_in_key_order(door: Door) -> None:
    names = [f"cm-{n}" for n in range(8)]
    for name in reversed(names):
        await door.client.create(configmap(door, name, labels={"page": "yes"}))
    listing = await door.client.list(ConfigMap, door.namespace, labels="page=yes")
    assert [item.name for item in listing.items] == names
    assert int(listing.resource_version) >= max(int(item.metadata.resource_version) for item in listing.items)


async def test_a_list_over_all_namespaces_finds_this_one(door: Door) -> None:
    await door.client.create(configmap(door, labels={"only": door.namespace}))
    listing = await door.client.list(ConfigMap, labels=f"only={door.namespace}")
    assert [(item.namespace, item.name) for item in listing.items] == [(door.namespace, "one")]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier!=db", ["a"]),
        ("app in (web, batch)", ["a", "b", "c"]),
        ("app notin (web)", ["c", "d"]),
        ("tier", ["b"]),
        ("!app", ["d"]),
        ("app=web,!tier", ["a"]),
    ],
)
async def test_label_selectors(door: Door, selector: str, names: list[str]) -> None:
    marks: dict[str, dict[str, str]] = {"a": {"app": "web"}, "b": {"app": "web", "tier": "db"}, "c": {"app": "batch"}, "d": {}}
    for name, labels in marks.items():
        await door.client.create(configmap(door, name, labels={**labels, "mine": "yes"}))
    listing = await door.client.list(ConfigMap, door.namespace, labels=f"mine=yes,{selector}")
    assert [item.name for item in listing.items] == names


async def test_field_selectors(door: Door) -> None:
    for name in ("a", "b"):
        await door.client.create(pod(door, name))
    running = MergePatch({"status": {"phase": "Running"}})
    await door.client.patch(Pod, "b", running, door.namespace, subresource="status")

    async def names(fields: str) -> list[str]:
        return [item.name for item in (await door.client.list(Pod, door.namespace, fields=fields)).items]

    assert await names("metadata.name=a") == ["a"]
    assert await names("status.phase!=Pending") == ["b"]
    assert await names("spec.nodeName=") == ["a", "b"]
    assert await names("spec.schedulerName=nobody,status.phase=Pending") == ["a"]
    assert await names("spec.nodeName=other") == []


async def test_a_field_that_nobody_indexes_is_refused(door: Door) -> None:
    with pytest.raises(Invalid, match=r"field label not supported: spec\.priority") as caught:
        await door.client.list(Pod, door.namespace, fields="spec.priority=0")
    assert caught.value.status == 400


async def test_a_watch_goes_on_where_the_list_ended(door: Door) -> None:
    await door.client.create(configmap(door, "before"))
    version = (await door.client.list(ConfigMap, door.namespace)).resource_version
    await door.client.create(configmap(door, "after"))
    await door.client.patch(ConfigMap, "after", MergePatch({"data": {"key": "2"}}), door.namespace)
    await door.client.delete(ConfigMap, "after", door.namespace)
    events = await seen(door, 3, version)
    assert [(e.type, e.object.name) for e in events] == [(ADDED, "after"), (MODIFIED, "after"), (DELETED, "after")]
    versions = [int(e.object.metadata.resource_version) for e in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    assert events[1].object.data == {"key": "2"}


async def test_a_watch_resumes_after_any_event(door: Door) -> None:
    version = (await door.client.list(ConfigMap, door.namespace)).resource_version
    for name in ("a", "b", "c"):
        await door.client.create(configmap(door, name))
    first = await seen(door, 1, version)
    rest = await seen(door, 2, first[0].object.metadata.resource_version)
    assert [e.object.name for e in first + rest] == ["a", "b", "c"]


async def test_a_watch_hears_what_happens_while_it_waits(door: Door) -> None:
    version = (await door.client.list(ConfigMap, door.namespace)).resource_version
    waiting = asyncio.create_task(seen(door, 1, version))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await door.client.create(configmap(door))
    assert [e.object.name for e in await waiting] == ["one"]


async def test_leaving_a_selection_looks_like_a_deletion(door: Door) -> None:
    version = (await door.client.list(ConfigMap, door.namespace)).resource_version
    await door.client.create(configmap(door, labels={"app": "web"}))
    await door.client.patch(ConfigMap, "one", MergePatch({"data": {"key": "2"}}), door.namespace)
    await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"labels": {"app": "db"}}}), door.namespace)
    await door.client.patch(ConfigMap, "one", MergePatch({"data": {"key": "3"}}), door.namespace)
    back = await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"labels": {"app": "web"}}}), door.namespace)
    events = await seen(door, 4, version, labels="app=web")
    assert [e.type for e in events] == [ADDED, MODIFIED, DELETED, ADDED]
    assert events[2].object.metadata.labels == {"app": "web"}, "the state it had when it still belonged"
    assert events[3].object.metadata.resource_version == back.metadata.resource_version


async def test_a_watch_of_one_name_hears_of_no_other(door: Door) -> None:
    version = (await door.client.list(ConfigMap, door.namespace)).resource_version
    await door.client.create(configmap(door, "other"))
    await door.client.create(configmap(door, "mine"))
    events = await seen(door, 1, version, fields="metadata.name=mine")
    assert [e.object.name for e in events] == ["mine"]


async def test_a_version_from_before_the_history_is_gone(door: Door) -> None:
    """Of a custom kind: a real server's memory of it begins when the kind does, which is later than version 1."""
    await door.forget()
    events = door.client.watch(NodePool, resource_version="1")
    with pytest.raises(Gone) as caught:
        async with asyncio.timeout(20):
            await anext(events)
    assert caught.value.status == 410
    assert "too old resource version: 1" in caught.value.message


async def test_deleted_objects_carry_the_version_of_their_deletion(door: Door) -> None:
    made = await door.client.create(configmap(door))
    await door.client.patch(ConfigMap, "one", JsonPatch([{"op": "add", "path": "/data/x", "value": "y"}]), door.namespace)
    await door.client.delete(ConfigMap, "one", door.namespace)
    events = await seen(door, 2, made.metadata.resource_version)
    assert events[1].type is DELETED
    assert int(events[1].object.metadata.resource_version) > int(events[0].object.metadata.resource_version)
