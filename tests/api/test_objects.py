"""Creating, reading, changing and deleting: what every controller builds on."""

import re

import pytest

from kubewright.api.core import Namespace, Node, NodeSpec, Pod
from kubewright.api.meta import ObjectMeta, OwnerReference
from kubewright.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from kubewright.kube.client import JsonPatch, MergePatch
from tests.api.doors import Door, eventually
from tests.api.things import ConfigMap, configmap, pod


async def test_a_created_object_comes_back_with_what_the_server_adds(door: Door) -> None:
    made = await door.client.create(configmap(door))
    assert made.data == {"key": "value"}
    assert re.fullmatch(r"[0-9a-f-]{36}", made.metadata.uid)
    assert made.metadata.creation_timestamp is not None
    assert int(made.metadata.resource_version) > 0
    assert await door.client.get(ConfigMap, "one", door.namespace) == made


async def test_what_is_not_there_is_not_found_by_name(door: Door) -> None:
    with pytest.raises(NotFound, match=r'^configmaps "gone" not found$') as caught:
        await door.client.get(ConfigMap, "gone", door.namespace)
    assert caught.value.details is not None
    assert caught.value.details["name"] == "gone"
    for call in (
        lambda: door.client.patch(ConfigMap, "gone", MergePatch({}), door.namespace),
        lambda: door.client.delete(ConfigMap, "gone", door.namespace),
    ):
        with pytest.raises(NotFound):
            await call()


async def test_a_second_object_of_the_same_name_already_exists(door: Door) -> None:
    await door.client.create(configmap(door))
    with pytest.raises(AlreadyExists, match=r'^configmaps "one" already exists$'):
        await door.client.create(configmap(door))


async def test_a_namespace_that_is_not_there_takes_nothing(door: Door) -> None:
    with pytest.raises(NotFound, match=r'^namespaces "nowhere" not found$'):
        await door.client.create(ConfigMap(metadata=ObjectMeta(name="one", namespace="nowhere")))


async def test_generated_names_keep_their_prefix_and_differ(door: Door) -> None:
    made = [
        await door.client.create(ConfigMap(metadata=ObjectMeta(generate_name="one-", namespace=door.namespace))) for _ in range(5)
    ]
    assert all(re.fullmatch(r"one-[bcdfghjklmnpqrstvwxz2456789]{5}", m.name) for m in made)
    assert len({m.name for m in made}) == 5
    assert {m.metadata.generate_name for m in made} == {"one-"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Upper", 'metadata.name: Invalid value: "Upper": a lowercase RFC 1123 subdomain must consist of'),
        ("", "metadata.name: Required value: name or generateName is required"),
        ("under_score", "a lowercase RFC 1123 subdomain must consist of"),
        ("x" * 254, "must be no more than 253 characters"),
    ],
)
async def test_a_bad_name_is_invalid(door: Door, name: str, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        await door.client.create(configmap(door, name))
    assert text in caught.value.message
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"a/b/c": "d"}, "a valid label key must consist of"),
        ({"a": "no spaces"}, "a valid label must be an empty string or consist of"),
    ],
)
async def test_a_bad_label_is_invalid(door: Door, labels: dict[str, str], text: str) -> None:
    with pytest.raises(Invalid) as caught:
        await door.client.create(configmap(door, labels=labels))
    assert caught.value.message.startswith('ConfigMap "one" is invalid: metadata.labels: Invalid value: ')
    assert text in caught.value.message
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["field"] == "metadata.labels"


async def test_a_merge_patch_changes_adds_and_removes(door: Door) -> None:
    await door.client.create(configmap(door, labels={"a": "1", "b": "2"}))
    patch = MergePatch({"metadata": {"labels": {"a": None, "c": "3"}}, "data": {"more": "text"}})
    changed = await door.client.patch(ConfigMap, "one", patch, door.namespace)
    assert changed.metadata.labels == {"b": "2", "c": "3"}
    assert changed.data == {"key": "value", "more": "text"}


async def test_a_patch_that_changes_nothing_keeps_the_version(door: Door) -> None:
    made = await door.client.create(configmap(door))
    same = await door.client.patch(ConfigMap, "one", MergePatch({"data": {"key": "value"}}), door.namespace)
    assert same.metadata.resource_version == made.metadata.resource_version


async def test_a_stale_version_in_a_patch_is_a_conflict(door: Door) -> None:
    made = await door.client.create(configmap(door))
    stale = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"key": "2"}})
    await door.client.patch(ConfigMap, "one", stale, door.namespace)
    with pytest.raises(Conflict) as caught:
        await door.client.patch(ConfigMap, "one", stale, door.namespace)
    assert caught.value.message == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_a_uid_does_not_change(door: Door) -> None:
    made = await door.client.create(configmap(door))
    other = MergePatch({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}})
    with pytest.raises(Invalid) as caught:
        await door.client.patch(ConfigMap, "one", other, door.namespace)
    assert caught.value.message == (
        'ConfigMap "one" is invalid: metadata.uid: Invalid value: "11111111-2222-3333-4444-555555555555": field is immutable'
    )
    assert (await door.client.get(ConfigMap, "one", door.namespace)).metadata.uid == made.metadata.uid


async def test_a_json_patch_applies_whole_or_not_at_all(door: Door) -> None:
    await door.client.create(configmap(door, labels={"a/b": "1"}))
    good = JsonPatch(
        [
            {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
            {"op": "add", "path": "/metadata/labels/c", "value": "2"},
            {"op": "replace", "path": "/data/key", "value": "new"},
            {"op": "remove", "path": "/metadata/labels/a~1b"},
        ]
    )
    changed = await door.client.patch(ConfigMap, "one", good, door.namespace)
    assert (changed.metadata.labels, changed.data) == ({"c": "2"}, {"key": "new"})
    bad = JsonPatch([{"op": "add", "path": "/data/x", "value": "y"}, {"op": "test", "path": "/data/key", "value": "old"}])
    with pytest.raises(Invalid) as caught:
        await door.client.patch(ConfigMap, "one", bad, door.namespace)
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert (await door.client.get(ConfigMap, "one", door.namespace)).data == {"key": "new"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/data/missing"},
        {"op": "add", "path": "/nowhere/at/all", "value": "x"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
    ],
)
async def test_a_json_patch_whose_path_is_not_there_is_invalid(door: Door, operation: dict[str, str]) -> None:
    await door.client.create(configmap(door))
    with pytest.raises(Invalid):
        await door.client.patch(ConfigMap, "one", JsonPatch([operation]), door.namespace)


async def test_a_json_patch_may_replace_or_test_a_key_that_is_not_there(door: Door) -> None:
    """The server's library is laxer than RFC 6902 here, and code that relies on a failing `replace` would be wrong."""
    await door.client.create(configmap(door))
    patch = JsonPatch(
        [{"op": "test", "path": "/data/missing", "value": None}, {"op": "replace", "path": "/data/missing", "value": "x"}]
    )
    changed = await door.client.patch(ConfigMap, "one", patch, door.namespace)
    assert changed.data == {"key": "value", "missing": "x"}


async def test_a_patch_cannot_rename(door: Door) -> None:
    await door.client.create(configmap(door))
    with pytest.raises(Invalid) as caught:
        await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"name": "two"}}), door.namespace)
    assert caught.value.status == 400
    assert "the name of the object (two) does not match the name on the URL (one)" in caught.value.message


async def test_deletion_waits_for_finalizers(door: Door) -> None:
    await door.client.create(configmap(door, finalizers=("example.com/hold",)))
    await door.client.delete(ConfigMap, "one", door.namespace)
    held = await door.client.get(ConfigMap, "one", door.namespace)
    assert held.metadata.deletion_timestamp is not None
    before = held.metadata.resource_version
    await door.client.delete(ConfigMap, "one", door.namespace)
    assert (await door.client.get(ConfigMap, "one", door.namespace)).metadata.resource_version == before
    last = await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"finalizers": None}}), door.namespace)
    assert int(last.metadata.resource_version) >= int(before)
    with pytest.raises(NotFound):
        await door.client.get(ConfigMap, "one", door.namespace)


async def test_no_finalizer_joins_late(door: Door) -> None:
    await door.client.create(configmap(door, finalizers=("example.com/hold",)))
    await door.client.delete(ConfigMap, "one", door.namespace)
    late = MergePatch({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}})
    with pytest.raises(Invalid) as caught:
        await door.client.patch(ConfigMap, "one", late, door.namespace)
    assert caught.value.message == (
        'ConfigMap "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being '
        'deleted, found new finalizers []string{"example.com/late"}'
    )
    await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"finalizers": None}}), door.namespace)


async def test_delete_preconditions_protect_a_successor(door: Door) -> None:
    made = await door.client.create(configmap(door))
    with pytest.raises(Conflict) as caught:
        await door.client.delete(ConfigMap, "one", door.namespace, uid="11111111-2222-3333-4444-555555555555")
    assert caught.value.message == (
        'Operation cannot be fulfilled on ConfigMap "one": the UID in the precondition (11111111-2222-3333-4444-555555555555) '
        f"does not match the UID in record ({made.metadata.uid}). The object might have been deleted and then recreated"
    )
    with pytest.raises(Conflict) as caught:
        await door.client.delete(ConfigMap, "one", door.namespace, resource_version="1")
    assert "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record" in caught.value.message
    await door.client.delete(
        ConfigMap, "one", door.namespace, uid=made.metadata.uid, resource_version=made.metadata.resource_version
    )
    with pytest.raises(NotFound):
        await door.client.get(ConfigMap, "one", door.namespace)


async def test_foreground_deletion_is_left_to_the_collector_by_a_finalizer(door: Door) -> None:
    await door.client.create(configmap(door, finalizers=("example.com/hold",)))
    await door.client.delete(ConfigMap, "one", door.namespace, propagation="Foreground")
    held = await door.client.get(ConfigMap, "one", door.namespace)
    assert "example.com/hold" in held.metadata.finalizers
    assert held.metadata.deletion_timestamp is not None
    await door.client.patch(ConfigMap, "one", MergePatch({"metadata": {"finalizers": None}}), door.namespace)


async def test_owners_are_kept_as_written(door: Door) -> None:
    owner = await door.client.create(configmap(door, "owner"))
    reference = OwnerReference(
        api_version="v1", kind="ConfigMap", name="owner", uid=owner.metadata.uid, controller=True, block_owner_deletion=True
    )
    made = await door.client.create(configmap(door, "owned", owner_references=(reference,)))
    assert made.metadata.owner_references == (reference,)
    second = OwnerReference(api_version="v1", kind="ConfigMap", name="other", uid="1", controller=True)
    with pytest.raises(Invalid, match="Only one reference can have Controller set to true"):
        await door.client.create(configmap(door, "both", owner_references=(reference, second)))


async def test_a_node_joins_with_its_status_and_keeps_its_provider(door: Door) -> None:
    name = f"node-{door.namespace}"
    made = await door.client.create(Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id="aws:///a/i-1")))
    try:
        with pytest.raises(Invalid) as caught:
            await door.client.patch(Node, name, MergePatch({"spec": {"providerID": "aws:///a/i-2"}}))
        assert (
            'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid' in caught.value.message
        )
        status = MergePatch({"status": {"capacity": {"cpu": "4000m", "memory": "1024Mi"}}, "spec": {"unschedulable": True}})
        changed = await door.client.patch(Node, name, status, subresource="status")
        assert changed.status.capacity == {"cpu": "4", "memory": "1Gi"}
        assert not changed.spec.unschedulable
        assert changed.spec.provider_id == made.spec.provider_id
    finally:
        await door.client.delete(Node, name)


async def test_a_deleted_namespace_takes_nothing_more(door: Door) -> None:
    made = await door.client.create(Namespace(metadata=ObjectMeta(generate_name="going-", finalizers=("example.com/hold",))))
    await door.client.delete(Namespace, made.name)

    async def refused() -> bool:
        try:
            await door.client.create(ConfigMap(metadata=ObjectMeta(generate_name="x-", namespace=made.name)))
        except Forbidden as error:
            return "because it is being terminated" in error.message
        return False

    await eventually(refused)
    await door.client.patch(Namespace, made.name, MergePatch({"metadata": {"finalizers": None}}))


async def test_a_pod_is_filled_in(door: Door) -> None:
    made = await door.client.create(pod(door))
    assert made.spec.scheduler_name == "nobody"
    assert made.spec.termination_grace_period_seconds == 30
    assert made.spec.priority == 0
    assert made.spec.preemption_policy == "PreemptLowerPriority"
    assert {(t.key, t.effect, t.toleration_seconds) for t in made.spec.tolerations} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    }
    assert (await door.client.get(Pod, "one", door.namespace)).status.phase == "Pending"
