"""Claims, volumes, attachments, and what the scheduler makes of them, on a whole pretend cluster."""

import pytest

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.unit.sim.builders import ZONE, Item, names, node, nodes_of, play, pod, pods, ready, workload


def storage_class(name: str = "ebs", mode: str = "WaitForFirstConsumer", **more: Item) -> Item:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": mode,
        **more,
    }


def claim(name: str = "data", kind: str = "ebs", **spec: Item) -> Item:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}, "storageClassName": kind, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


def using(*claims: str) -> Item:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def volume(name: str, zone: str, size: str = "8Gi", kind: str = "") -> Item:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": kind,
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def said(store: Store, name: str = "p") -> str:
    conditions = store.get("v1", "Pod", "default", name)["status"].get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def test_a_claim_that_waits_is_provisioned_where_its_pod_goes() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class())
        store.create(claim())
        await loop.at(5)
        assert store.get("v1", "PersistentVolumeClaim", "default", "data")["status"]["phase"] == "Pending"
        store.create(node("n1", zone="a", taints=[{"key": "k", "effect": "NoSchedule"}]))
        store.create(node("n2", zone="b"))
        store.create(pod(**using("data")))
        await loop.until(lambda: nodes_of(ready(store)) == ["n2"], within_s=20)
        made = store.get("v1", "PersistentVolumeClaim", "default", "data")["spec"]["volumeName"]
        term = store.get("v1", "PersistentVolume", "", made)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
        assert term["matchExpressions"][0]["values"] == ["b"]
        [attachment] = store.list("storage.k8s.io/v1", "VolumeAttachment")[0]
        assert (attachment["spec"]["nodeName"], attachment["status"]["attached"]) == ("n2", True)
        store.delete("v1", "Pod", "default", "p")
        await loop.until(lambda: not store.list("storage.k8s.io/v1", "VolumeAttachment")[0], within_s=20)
        store.create(node("n3", zone="a"))
        store.create(pod("again", **using("data")))
        await loop.until(lambda: nodes_of(ready(store)) == ["n2"], within_s=20)

    play(story)


def test_a_bound_volume_ties_its_pod_to_its_zone() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(volume("pv", "z"))
        store.create(claim(kind=""))
        await loop.until(
            lambda: store.get("v1", "PersistentVolumeClaim", "default", "data")["status"]["phase"] == "Bound", within_s=5
        )
        store.create(node("n1", zone="a"))
        store.create(pod(**using("data")))
        await loop.at(10)
        assert said(store) == "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
        store.create(node("n2", zone="z"))
        await loop.until(lambda: nodes_of(ready(store)) == ["n2"], within_s=15)

    play(story)


@pytest.mark.parametrize(
    ("objects", "asked", "text"),
    [
        ([], using("data"), 'persistentvolumeclaim "data" not found'),
        ([claim(kind="none")], using("data"), "pod has unbound immediate PersistentVolumeClaims"),
    ],
)
def test_some_claims_keep_a_pod_from_every_node(objects: list[Item], asked: Item, text: str) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1"))
        for obj in objects:
            store.create(obj)
        store.create(pod(**asked))
        await loop.at(5)
        assert said(store) == f"0/1 nodes are available: {text}."

    play(story)


def test_a_class_that_allows_another_zone_leaves_nothing_to_bind() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z"]}]}]
        store.create(storage_class(allowedTopologies=allowed))
        store.create(node("n1", zone="a"))
        store.create(claim())
        store.create(pod(**using("data")))
        await loop.at(5)
        assert said(store) == "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."

    play(story)


def test_an_immediate_claim_is_provisioned_at_once() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class(mode="Immediate"))
        store.create(node("n1", zone="a"))
        store.create(claim())
        await loop.until(
            lambda: store.get("v1", "PersistentVolumeClaim", "default", "data")["status"]["phase"] == "Bound", within_s=5
        )

    play(story)


def test_no_node_gets_more_volumes_than_it_can_attach() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class())
        store.create(node("n1"))
        drivers = [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 2}}]
        store.create(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}}
        )
        for number in range(3):
            store.create(claim(f"data-{number}"))
            store.create(pod(f"p{number}", **using(f"data-{number}")))
        store.create(pod("sharing", **using("data-0")))
        await loop.at(30)
        assert names(ready(store)) == ["p0", "p1", "sharing"]
        assert said(store, "p2") == "0/1 nodes are available: 1 node(s) exceed max volume count."
        for name in ("p0", "sharing"):
            store.delete("v1", "Pod", "default", name)
        await loop.until(lambda: names(ready(store)) == ["p1", "p2"], within_s=20)

    play(story)


def test_a_claim_for_one_pod_only_serves_one() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class())
        store.create(node("n1"))
        store.create(claim(accessModes=["ReadWriteOncePod"]))
        store.create(pod("first", **using("data")))
        await loop.until(lambda: names(ready(store)) == ["first"], within_s=10)
        store.create(pod("second", **using("data")))
        await loop.at(20)
        assert "ReadWriteOncePod" in said(store, "second")
        store.delete("v1", "Pod", "default", "first")
        await loop.until(lambda: names(ready(store)) == ["second"], within_s=10)

    play(story)


def test_a_stateful_set_keeps_its_claims_and_goes_back_to_them() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class())
        for name, zone in (("n1", "a"), ("n2", "b")):
            store.create(node(name, zone=zone))
        templates = [{"metadata": {"name": "data"}, "spec": claim()["spec"]}]
        store.create(workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=templates))
        await loop.until(lambda: len(ready(store)) == 2, within_s=30)
        before = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(store)}
        store.patch("apps/v1", "StatefulSet", "default", "db", {"spec": {"replicas": 0}})
        await loop.until(lambda: not pods(store), within_s=30)
        assert names(store.list("v1", "PersistentVolumeClaim")[0]) == ["data-db-0", "data-db-1"]
        store.patch("apps/v1", "StatefulSet", "default", "db", {"spec": {"replicas": 2}})
        await loop.until(lambda: len(ready(store)) == 2, within_s=30)
        assert {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(store)} == before

    play(story)


def test_an_ephemeral_volume_lives_and_dies_with_its_pod() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(storage_class())
        store.create(node("n1"))
        ephemeral = {"volumeClaimTemplate": {"spec": claim()["spec"]}}
        store.create(pod(volumes=[{"name": "scratch", "ephemeral": ephemeral}]))
        await loop.until(lambda: len(ready(store)) == 1, within_s=20)
        assert names(store.list("v1", "PersistentVolumeClaim")[0]) == ["p-scratch"]
        store.delete("v1", "Pod", "default", "p")
        await loop.until(lambda: not store.list("v1", "PersistentVolume")[0], within_s=20)
        assert store.list("v1", "PersistentVolumeClaim")[0] == []

    play(story)
