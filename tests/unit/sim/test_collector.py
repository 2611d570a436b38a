"""Garbage collection: who goes when, by owner references."""

from typing import Any

import pytest

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.unit.sim.builders import Item, names, node, play, pods, ready, workload


def note(name: str, *owners: Item, blocks: bool = True, **meta: Any) -> Item:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for o in owners
    ]
    body: Item = {"name": name, "namespace": "default", **meta}
    if references:
        body["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": body}


def there(store: Store) -> list[str]:
    return names(store.list("v1", "ConfigMap")[0])


def test_a_dependent_goes_after_its_owner() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        owner = store.create(note("owner"))
        store.create(note("child", store.create(note("middle", owner))))
        await loop.at(1)
        store.delete("v1", "ConfigMap", "default", "owner")
        assert there(store) == ["child", "middle"]
        await loop.at(2)
        assert there(store) == []

    play(story)


def test_with_two_owners_the_last_one_takes_it() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        one, two = store.create(note("one")), store.create(note("two"))
        store.create(note("child", one, two))
        await loop.at(1)
        store.delete("v1", "ConfigMap", "default", "one")
        await loop.at(2)
        child = store.get("v1", "ConfigMap", "default", "child")
        assert [r["name"] for r in child["metadata"]["ownerReferences"]] == ["two"]
        store.delete("v1", "ConfigMap", "default", "two")
        await loop.at(3)
        assert there(store) == []

    play(story)


def test_an_owner_that_never_was_counts_as_gone() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(note("child", {"metadata": {"name": "ghost", "uid": "no-such-uid"}}))
        await loop.at(1)
        assert there(store) == []

    play(story)


def test_a_recreated_owner_is_another_owner() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        owner = store.create(note("owner"))
        store.delete("v1", "ConfigMap", "default", "owner")
        store.create(note("owner"))
        store.create(note("child", owner))
        await loop.at(1)
        assert there(store) == ["owner"]

    play(story)


@pytest.mark.parametrize(("blocks", "waits"), [(True, True), (False, False)])
def test_an_owner_in_foreground_deletion_waits_for_what_blocks_it(*, blocks: bool, waits: bool) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        owner = store.create(note("owner"))
        store.create(note("child", owner, blocks=blocks, finalizers=["example.com/hold"]))
        await loop.at(1)
        store.delete("v1", "ConfigMap", "default", "owner", propagation="Foreground")
        await loop.at(2)
        assert ("owner" in there(store)) == waits
        assert "deletionTimestamp" in store.get("v1", "ConfigMap", "default", "child")["metadata"]
        store.patch("v1", "ConfigMap", "default", "child", {"metadata": {"finalizers": None}})
        await loop.at(3)
        assert there(store) == []

    play(story)


def test_a_foreground_deletion_goes_from_the_leaves_to_the_root() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1"))
        store.create(workload("Deployment"))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        gone: list[str] = []
        store.on_written(lambda _verb, kind, _key: gone.append(kind.kind))
        store.delete("apps/v1", "Deployment", "default", "web", propagation="Foreground")

        def counts() -> tuple[int, int, int]:
            sets, _ = store.list("apps/v1", "ReplicaSet")
            deployments, _ = store.list("apps/v1", "Deployment")
            return len(pods(store)), len(sets), len(deployments)

        def over() -> bool:
            some, sets, deployments = counts()
            assert not some or (sets and deployments)
            assert not sets or deployments
            return counts() == (0, 0, 0)

        await loop.until(over, within_s=30, every_s=0.01)

    play(story)
