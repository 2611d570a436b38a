"""Our own kinds, by the schema of their definitions."""

import pytest

from kubewright.api.karpenter import Budget, Disruption, NodePool
from kubewright.errors import Conflict, Invalid
from kubewright.kube.client import MergePatch
from tests.api.doors import Door
from tests.api.things import nodepool


async def test_defaults_come_from_the_schema(door: Door) -> None:
    made = await door.client.create(nodepool(door))
    try:
        assert made.spec.disruption == Disruption()
        assert made.spec.disruption.budgets == (Budget(nodes="10%"),)
        assert made.spec.template.spec.expire_after == "720h"
        assert made.metadata.generation == 1
    finally:
        await door.client.delete(NodePool, made.name)


async def test_what_the_schema_does_not_know_is_pruned(door: Door) -> None:
    made = await door.client.create(nodepool(door))
    try:
        same = await door.client.patch(NodePool, made.name, MergePatch({"spec": {"nonsense": {"a": 1}}}))
        assert same.metadata.resource_version == made.metadata.resource_version
    finally:
        await door.client.delete(NodePool, made.name)


@pytest.mark.parametrize(
    ("patch", "texts"),
    [
        ({"weight": 101}, ["spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100"]),
        ({"weight": "heavy"}, ['spec.weight: Invalid value: "string": spec.weight in body must be of type integer: "string"']),
        (
            {"disruption": {"consolidationPolicy": "Never"}},
            ['spec.disruption.consolidationPolicy: Unsupported value: "Never": supported values: "WhenEmpty"'],
        ),
        (
            {"disruption": {"budgets": [{"nodes": "10%", "schedule": "@daily"}]}},
            ["'schedule' must be set with 'duration'"],
        ),
    ],
)
async def test_a_bad_pool_is_refused_with_the_field(door: Door, patch: dict[str, object], texts: list[str]) -> None:
    made = await door.client.create(nodepool(door))
    try:
        with pytest.raises(Invalid) as caught:
            await door.client.patch(NodePool, made.name, MergePatch({"spec": patch}))
        for text in texts:
            assert text in caught.value.message
        assert caught.value.message.startswith(f'NodePool.karpenter.sh "{made.name}" is invalid: ')
        assert caught.value.details is not None
        assert all(cause["field"] for cause in caught.value.details["causes"])
    finally:
        await door.client.delete(NodePool, made.name)


async def test_status_is_written_apart_and_touches_nothing_else(door: Door) -> None:
    made = await door.client.create(nodepool(door))
    try:
        both = MergePatch({"spec": {"weight": 7}, "status": {"nodes": 3}, "metadata": {"labels": {"a": "b"}}})
        changed = await door.client.patch(NodePool, made.name, both)
        assert (changed.spec.weight, changed.status.nodes, changed.metadata.generation) == (7, 0, 2)
        both = MergePatch({"spec": {"weight": 8}, "status": {"nodes": 4}, "metadata": {"labels": {"c": "d"}}})
        changed = await door.client.patch(NodePool, made.name, both, subresource="status")
        assert (changed.spec.weight, changed.status.nodes, changed.metadata.generation) == (7, 4, 2)
        assert changed.metadata.labels == {"a": "b"}
    finally:
        await door.client.delete(NodePool, made.name)


async def test_a_stale_status_patch_is_a_conflict(door: Door) -> None:
    made = await door.client.create(nodepool(door))
    try:
        stale = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "status": {"nodes": 1}})
        await door.client.patch(NodePool, made.name, stale, subresource="status")
        with pytest.raises(Conflict, match=f'^Operation cannot be fulfilled on nodepools.karpenter.sh "{made.name}"'):
            await door.client.patch(NodePool, made.name, stale, subresource="status")
    finally:
        await door.client.delete(NodePool, made.name)


async def test_a_pool_with_a_finalizer_is_marked_and_its_generation_moves(door: Door) -> None:
    made = await door.client.create(nodepool(door))
    await door.client.patch(NodePool, made.name, MergePatch({"metadata": {"finalizers": ["karpenter.sh/termination"]}}))
    await door.client.delete(NodePool, made.name)
    held = await door.client.get(NodePool, made.name)
    assert held.metadata.deletion_timestamp is not None
    assert held.metadata.generation == 2
    await door.client.patch(NodePool, made.name, MergePatch({"metadata": {"finalizers": []}}))
