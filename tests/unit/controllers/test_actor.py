"""Effects on a real (in-memory) API server: done twice is done once, and what another changed is a Conflict."""

import pytest

from kubewright.api.core import Node, Taint
from kubewright.clock import Clock
from kubewright.controllers.actor import Actor
from kubewright.errors import Conflict
from kubewright.kube.client import MergePatch
from kubewright.kube.events import Recorder
from kubewright.lifecycle import nodes
from kubewright.lifecycle.effects import Count, Delete, Update
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store

OURS = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
TIMED = {"key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def with_node(story):
    async def main():
        clock = Clock(loop.EPOCH)
        store = Store(clock)
        store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}, "spec": {"taints": [TIMED]}})
        client = DirectClient(store)
        counted = []
        actor = Actor(client, Recorder(client, clock), lambda *count: counted.append(count), lambda *_: None)
        await story(store, client, actor)
        return counted

    return loop.run(main())


def test_an_update_writes_the_difference_and_leaves_the_time_of_another_taint_alone():
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        after = nodes.with_metadata(nodes.with_taints(before, (*before.spec.taints, OURS)), labels={"a/b": "c"})
        fresh = await actor.update(before, after)
        written = store.get("v1", "Node", "", "n-1")["spec"]["taints"]
        assert TIMED in written
        assert written[-1] == {"key": OURS.key, "effect": OURS.effect}
        assert fresh.metadata.labels == {"a/b": "c"}
        version = fresh.metadata.resource_version
        assert (await actor.update(fresh, after)).metadata.resource_version == version, "nothing is written twice"

    with_node(story)


@pytest.mark.parametrize("change_taints", [True, False])
def test_what_another_has_changed_is_a_conflict_whatever_the_kind_of_patch(change_taints):
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        store.patch("v1", "Node", "", "n-1", MergePatch({"metadata": {"labels": {"x": "y"}}, "spec": {"taints": None}}))
        after = nodes.with_taints(before, (OURS,)) if change_taints else nodes.with_metadata(before, labels={"a": "b"})
        with pytest.raises(Conflict):
            await actor.update(before, after)

    with_node(story)


def test_taints_are_not_written_over_a_change_that_left_them_in_their_places():
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        store.patch("v1", "Node", "", "n-1", MergePatch({"metadata": {"labels": {"x": "y"}}}))
        with pytest.raises(Conflict):
            await actor.update(before, nodes.with_taints(before, (*before.spec.taints, OURS)))

    with_node(story)


def test_without_the_lock_a_difference_is_written_over_what_others_did():
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        store.patch("v1", "Node", "", "n-1", MergePatch({"metadata": {"labels": {"x": "y"}}}))
        await actor.act((Update(before, nodes.with_metadata(before, labels={"a": "b"}), locked=False),))
        assert store.get("v1", "Node", "", "n-1")["metadata"]["labels"] == {"x": "y", "a": "b"}

    with_node(story)


def finished(node):
    """As registration leaves a Node: one taint less, a finalizer and a label more."""
    after = nodes.with_metadata(nodes.with_taints(node, ()), labels={**node.metadata.labels, "a/b": "c"})
    return nodes.with_metadata(after, finalizers=(*node.metadata.finalizers, "d/e"))


def test_without_the_lock_others_may_write_to_the_rest_of_a_node():
    async def story(store, client, actor):
        before = await client.patch(Node, "n-1", MergePatch({"metadata": {"labels": {"x": "y"}}}))
        await client.patch(Node, "n-1", MergePatch({"metadata": {"labels": {"z": "y"}}, "spec": {"unschedulable": True}}))
        fresh = await actor.update(before, finished(before), locked=False)
        assert fresh.metadata.labels == {"a/b": "c", "x": "y", "z": "y"}
        assert (fresh.spec.taints, fresh.metadata.finalizers) == ((), ("d/e",))

    with_node(story)


@pytest.mark.parametrize(
    "theirs",
    [
        {"spec": {"taints": [{"key": "new", "effect": "NoSchedule"}, TIMED]}},
        {"spec": {"taints": []}},
        {"metadata": {"finalizers": ["x/y"]}},
    ],
    ids=["a taint before it", "the taint is gone", "a finalizer"],
)
def test_without_the_lock_what_would_be_replaced_must_still_be_there(theirs):
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        await client.patch(Node, "n-1", MergePatch(theirs))
        with pytest.raises(Conflict):
            await actor.update(before, finished(before), locked=False)

    with_node(story)


def test_deleting_what_is_gone_or_what_only_has_its_name_is_a_success():
    async def story(store, client, actor):
        before = await client.get(Node, "n-1")
        await actor.act((Delete(before), Delete(before), Count("nodes_drained_total", {"nodepool": "a"})))
        store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}})
        await actor.act((Delete(before),))
        assert store.get("v1", "Node", "", "n-1"), "the successor stays"

    assert with_node(story) == [("nodes_drained_total", {"nodepool": "a"}, 1)]
