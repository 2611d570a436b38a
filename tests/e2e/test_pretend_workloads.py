"""The pretend workload controllers against the real ones: the same manifests, the same objects in the end.

Compared whole, spec, status, labels, annotations and owners, after taking away what differs between any two runs: names that are
drawn, moments, addresses, and which of three equal nodes a pod got.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.plane.plane import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, Plane
from tests.plane.waiting import eventually
from tests.unit.sim.builders import Item, budget, job, node, play, workload

pytestmark = pytest.mark.needs_go

APIS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "PodDisruptionBudget": "policy/v1",
    "Pod": "v1",
}
RUN = {"kubewright.sh/sim-duration": "1s"}
"""How kwok's stage and the pretend kubelet are told that a job's pod ends."""

DRAWN = {
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "nodeName",
    "topology.kubernetes.io/zone",
    "lastProbeTime",
    # Put there by the API server for a field that no longer exists.
    "deprecated.daemonset.template.generation",
}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
HASH = re.compile(r"\b[bcdfghjklmnpqrstvwxz2456789]{5,10}\b")
PREEMPTION = re.compile(r" (no new claims to deallocate|preemption:).*")


def bared(value: Any) -> Any:
    """`value` without what is drawn; lists of named or typed things in the order of their names."""
    if isinstance(value, Mapping):
        kept = {k: bared(v) for k, v in value.items() if k not in DRAWN}
        if kept.get("key") == "metadata.name":  # a daemon's pod is pinned to its node
            kept["values"] = ["<node>"]
        return {k: v for k, v in sorted(kept.items()) if v != {} or k == "lastState"}
    if isinstance(value, list):
        return sorted(
            (bared(v) for v in value), key=lambda v: str(v.get("type") or v.get("name") or v) if isinstance(v, dict) else str(v)
        )
    if isinstance(value, str):
        return HASH.sub("<hash>", PREEMPTION.sub("", MOMENT.sub("<moment>", value)))
    return value


def objects(items: Mapping[str, list[Item]]) -> dict[str, list[Item]]:
    """By kind, in an order that does not depend on what is drawn."""
    found = {kind: [bared({k: v for k, v in o.items() if k not in ("apiVersion", "kind")}) for o in items[kind]] for kind in APIS}
    return {kind: sorted(some, key=str) for kind, some in found.items()}


def path(kind: str, name: str = "") -> str:
    version = APIS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/default/{kind.lower()}s" + (f"/{name}" if name else "")


Patch = tuple[str, str, Item]
ANNOTATED = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}

STORIES: dict[str, tuple[list[Item], list[Patch]]] = {
    "everything at rest": (
        [
            workload("Deployment", "web", replicas=3),
            workload("Deployment", "nowhere", replicas=2, pods={"nodeSelector": {"no": "node"}}),
            workload("StatefulSet", "db", replicas=2),
            workload("DaemonSet", "agent", replicas=None),
            job("batch", parallelism=2, completions=3, annotations=RUN),
            job("indexed", parallelism=2, completions=3, completionMode="Indexed", annotations=RUN),
            budget("web", minAvailable="50%"),
            budget("db", maxUnavailable=1),
        ],
        [],
    ),
    "rolled to a new template": (
        [
            workload("Deployment", "web", replicas=4, strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
            workload("Deployment", "anew", replicas=2, strategy={"type": "Recreate"}),
            workload("StatefulSet", "db", replicas=2),
            workload("DaemonSet", "agent", replicas=None),
        ],
        [
            ("Deployment", "web", ANNOTATED),
            ("Deployment", "anew", ANNOTATED),
            ("StatefulSet", "db", ANNOTATED),
            ("DaemonSet", "agent", ANNOTATED),
        ],
    ),
    "scaled": (
        [
            workload("Deployment", "web", replicas=5),
            workload("Deployment", "none", replicas=2),
            workload("StatefulSet", "db", replicas=3),
            budget("web", maxUnavailable="34%"),
        ],
        [
            ("Deployment", "web", {"spec": {"replicas": 2}}),
            ("Deployment", "none", {"spec": {"replicas": 0}}),
            ("StatefulSet", "db", {"spec": {"replicas": 1}}),
        ],
    ),
}


def nodes() -> list[Item]:
    made = [node(f"n{i}", zone=zone, ready=False) for i, zone in enumerate("abc")]
    for one in made:
        one["metadata"]["annotations"] = {NODE_ANNOTATION: NODE_ANNOTATION_VALUE}
        del one["status"]["conditions"]
    return made


def pretended(wanted: list[Item], patches: list[Patch]) -> dict[str, list[Item]]:
    async def story(store: Store, _: PretendCluster) -> dict[str, list[Item]]:
        for obj in [*nodes(), *wanted]:
            store.create(obj)
        await loop.at(200)
        for kind, name, body in patches:
            store.patch(APIS[kind], kind, "default", name, body)
        await loop.at(400)
        return objects({kind: store.list(version, kind)[0] for kind, version in APIS.items()})

    found: dict[str, list[Item]] = play(story)
    return found


def played(plane: Plane, wanted: list[Item], patches: list[Patch], expected: dict[str, list[Item]]) -> dict[str, list[Item]]:
    """What a real plane makes of a story: its objects once they are those expected, or what they are after a while."""

    def now() -> dict[str, list[Item]]:
        return objects({kind: plane.get(path(kind))["items"] for kind in APIS})

    for obj in nodes():
        plane.create("/api/v1/nodes", obj)
    for obj in wanted:
        plane.create(path(obj["kind"]), obj)
    if patches:
        eventually(lambda: all(is_up(plane.get(path(o["kind"], o["metadata"]["name"]))) for o in wanted), within_s=30)
    for kind, name, body in patches:
        plane.request("PATCH", path(kind, name), body, content_type="application/merge-patch+json").body_or_raise()
    with suppress(AssertionError):  # the test compares, and shows where they differ
        eventually(lambda: now() == expected, within_s=40)
    return now()


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from differences(ours.get(key), theirs.get(key), f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif ours != theirs:
        yield f"{where}: ours {ours!r}, theirs {theirs!r}"


def is_up(obj: Item) -> bool:
    status = obj.get("status", {})
    if obj["kind"] == "DaemonSet":
        return bool(status.get("numberReady") == status.get("desiredNumberScheduled") == 3)
    if obj["kind"] == "PodDisruptionBudget":
        return bool(status.get("currentHealthy"))
    return bool(status.get("readyReplicas") == obj["spec"]["replicas"])


@pytest.mark.parametrize("name", STORIES)
def test_the_objects_are_the_same_in_the_end(name: str, fresh_plane: Plane) -> None:
    wanted, patches = STORIES[name]
    ours = pretended(wanted, patches)
    theirs = played(fresh_plane, wanted, patches, ours)
    assert list(differences(ours, theirs)) == []
