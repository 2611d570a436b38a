"""What a workload is on a real control plane: its nodes, volumes, DaemonSets and pods, made and taken away again."""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from tests.conformance.problems import ARCH, CT, HOST, POOL, TYPE, ZONE
from tests.conformance.validator.amounts import machine
from tests.plane.plane import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, Plane
from tests.plane.waiting import eventually

J = dict[str, Any]
T = TypeVar("T")
NODES, NAMESPACES = "/api/v1/nodes", ("default", "other")
NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
MERGE = "application/merge-patch+json"


def clear(plane: Plane) -> None:
    """Remove everything that a workload made."""
    for namespace in NAMESPACES:
        plane.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", NOW)
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", NOW)
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", NOW)
    plane.request("DELETE", "/api/v1/persistentvolumes", NOW)
    for kind in ("storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1/csinodes", "node.k8s.io/v1/runtimeclasses"):
        plane.request("DELETE", f"/apis/{kind}", NOW)
    plane.request("DELETE", NODES, NOW)

    def empty() -> bool:
        paths = ["/api/v1/pods", "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes", NODES]
        left = [o for path in paths for o in plane.get(path)["items"]]
        for pod in plane.get("/api/v1/pods")["items"]:
            plane.request("DELETE", f"{pods_of(pod)}/{pod['metadata']['name']}", NOW)
        return not left

    soon(empty)


def furnish(plane: Plane, by_kind: Mapping[str, Sequence[J]], nodes: Sequence[J], *, daemons: bool) -> None:
    for one in by_kind.get("Namespace", ()):
        name = one["metadata"]["name"]
        if plane.request("GET", f"/api/v1/namespaces/{name}").status == 404:
            plane.create("/api/v1/namespaces", one)
        plane.request("PATCH", f"/api/v1/namespaces/{name}", one, content_type=MERGE).body_or_raise()
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(lambda: plane.request("GET", path).status == 200)  # noqa: B023 - called at once
    for one in by_kind.get("StorageClass", ()):
        plane.create("/apis/storage.k8s.io/v1/storageclasses", one)
    written = claims(by_kind)
    owners = {c["spec"]["volumeName"]: c for c in written if c["spec"].get("volumeName")}
    for one in by_kind.get("PersistentVolume", ()):
        plane.create(
            "/api/v1/persistentvolumes", volume_of(one["metadata"]["name"], owners[one["metadata"]["name"]], one["spec"])
        )
    for one in written:
        create_claim(plane, one)
    for amounts in {json.dumps(p["spec"]["overhead"], sort_keys=True) for p in by_kind["Pod"] if "overhead" in p["spec"]}:
        body = {
            "metadata": {"name": runtime(json.loads(amounts))},
            "handler": "h",
            "overhead": {"podFixed": json.loads(amounts)},
        }
        plane.create("/apis/node.k8s.io/v1/runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **body})
    for one in by_kind.get("CSINode", ()):
        plane.create("/apis/storage.k8s.io/v1/csinodes", one)
    for node in nodes:
        plane.create(NODES, node)
    if daemons:
        create_daemons(plane, by_kind)

    def ready() -> bool:
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", ()))
            and not any(t["key"].startswith("node.kubernetes.io/") for t in n["spec"].get("taints", ()))
            for n in plane.get(NODES)["items"]
        )

    soon(ready)
    if daemons:
        daemons_settled(plane)
    soon(
        lambda: all(
            c["status"].get("phase") == "Bound"
            for c in plane.get("/api/v1/persistentvolumeclaims")["items"]
            if c["spec"].get("volumeName")
        )
    )


def create_daemons(plane: Plane, by_kind: Mapping[str, Sequence[J]]) -> None:
    for one in by_kind.get("DaemonSet", ()):
        plane.create("/apis/apps/v1/namespaces/default/daemonsets", one)


def daemons_settled(plane: Plane) -> list[J]:
    """The DaemonSets' pods, once there is one for every node and kube-scheduler has looked at each."""

    def settled() -> list[J]:
        sets = plane.get("/apis/apps/v1/daemonsets")["items"]
        mine: list[J] = plane.get("/api/v1/namespaces/default/pods?labelSelector=d%3Dagent")["items"]
        known = all(d["status"].get("observedGeneration") for d in sets)
        wanted = sum(d["status"].get("desiredNumberScheduled", 0) for d in sets)
        looked_at = all(p["spec"].get("nodeName") or p["status"].get("conditions") for p in mine)
        return mine or [{}] if known and len(mine) == wanted and looked_at else []

    return [p for p in soon(settled) if p]


def pending_daemons(plane: Plane) -> dict[str, str]:
    return {
        f"DaemonSet pod {p['metadata']['name']}": p["status"]["conditions"][0].get("message", "")
        for p in daemons_settled(plane)
        if not p["spec"].get("nodeName")
    }


def built(name: str, new: J, asked: J, rng: random.Random, memory: float) -> J:
    """A node as the cloud might sell it: any of the listed types, by any offering that the claim allows."""
    kinds = {t["name"]: t for t in asked["instanceTypes"]}
    kind = kinds[rng.choice(sorted(new["instanceTypes"]))]
    offering = rng.choice([o for o in kind["offerings"] if o["available"] and allowed(new["requirements"], o)])
    pool = next(o for o in asked["objects"] if o["kind"] == "NodePool" and o["metadata"]["name"] == new["nodePool"])
    labels = {r["key"]: r["values"][0] for r in (*kind["requirements"], *offering["requirements"]) if r["operator"] == "In"}
    labels |= {**new["labels"], HOST: name, POOL: new["nodePool"], TYPE: kind["name"]}
    labels |= {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
    assert {ZONE, CT, ARCH} <= set(labels)
    left = machine(kind)
    left["memory"] *= Fraction(memory)
    status = {
        "capacity": kind["capacity"],
        "allocatable": {k: f"{int(v * 1000)}m" if k == "cpu" else str(int(v)) for k, v in left.items()},
    }
    return ready_node(name, labels, status, pool["spec"]["template"]["spec"].get("taints", []))


def ready_node(name: str, labels: Mapping[str, str], status: J, taints: list[J]) -> J:
    meta = {"name": name, "labels": dict(labels), "annotations": {NODE_ANNOTATION: NODE_ANNOTATION_VALUE}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


def allowed(requirements: Mapping[str, list[str]], offering: J) -> bool:
    for r in offering["requirements"]:
        operator, *values = requirements.get(r["key"], ["Exists"])
        if operator in ("In", "NotIn") and (r["values"][0] in values) != (operator == "In"):
            return False
    return True


def claims(by_kind: Mapping[str, Sequence[J]]) -> list[J]:
    """All but those of ephemeral volumes, which are made for their pods."""
    return [c for c in by_kind.get("PersistentVolumeClaim", ()) if "ownerReferences" not in c["metadata"]]


def claims_of(one: J) -> str:
    return f"/api/v1/namespaces/{one['metadata']['namespace']}/persistentvolumeclaims"


def create_claim(plane: Plane, one: J) -> None:
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    meta = {k: one["metadata"][k] for k in ("namespace", "name")}  # that it is bound is for the controller to say
    plane.create(claims_of(one), {**one, "metadata": meta, "spec": {**one["spec"], **size}, "status": {}})


def unbind_claims(plane: Plane, by_kind: Mapping[str, Sequence[J]]) -> None:
    """Make the claims anew that got a volume by being tried: it lies where a pod was tried, and would hold the next one there."""
    in_use = {
        (p["metadata"]["namespace"], v["persistentVolumeClaim"]["claimName"])
        for p in by_kind.get("Pod", ())
        if p["spec"].get("nodeName")
        for v in p["spec"].get("volumes", ())
        if "persistentVolumeClaim" in v
    }
    late = [
        c
        for c in claims(by_kind)
        if not c["spec"].get("volumeName") and (c["metadata"]["namespace"], c["metadata"]["name"]) not in in_use
    ]
    for one in late:
        plane.request("DELETE", f"{claims_of(one)}/{one['metadata']['name']}", NOW)
    soon(lambda: all(plane.request("GET", f"{claims_of(c)}/{c['metadata']['name']}").status == 404 for c in late))
    for volume in plane.get("/api/v1/persistentvolumes")["items"]:
        if volume["metadata"]["name"].startswith("made-"):
            plane.request("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}", NOW)
    soon(lambda: not [v for v in plane.get("/api/v1/persistentvolumes")["items"] if v["metadata"]["name"].startswith("made-")])
    for one in late:
        create_claim(plane, one)


def made_claims(plane: Plane) -> set[str]:
    """Claims that were made for pods with ephemeral volumes, and that go with them."""
    written = plane.get("/api/v1/persistentvolumeclaims")["items"]
    return {c["metadata"]["name"] for c in written if c["metadata"].get("ownerReferences")}


def soon(ask: Callable[[], T]) -> T:
    """As `eventually`, asked more often: this is where the time goes."""
    end = time.monotonic() + 60
    while not (answer := ask()):
        assert time.monotonic() < end, f"still {answer!r} after a minute"
        time.sleep(0.02)
    return answer


def provision(plane: Plane, pod: J) -> None:
    """What the CSI provisioner does: a volume for every claim for which the scheduler has chosen a node."""
    for volume in pod["spec"].get("volumes", ()):
        if "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            continue
        made_for = f"{pod['metadata']['name']}-{volume['name']}"
        name = volume["persistentVolumeClaim"]["claimName"] if "persistentVolumeClaim" in volume else made_for
        namespace = pod["metadata"]["namespace"]
        found = plane.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        if found.status == 404:
            continue
        claim = found.body_or_raise()
        node = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
        if not node or claim["spec"].get("volumeName"):
            continue
        zone = plane.get(f"{NODES}/{node}")["metadata"]["labels"][ZONE]
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        spec = {
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        made = volume_of(f"made-{name}", claim, spec)
        made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"}
        plane.request("POST", "/api/v1/persistentvolumes", made)  # again and again until it is bound: a conflict is fine


def volume_of(name: str, claim: J, spec: J) -> J:
    meta = claim["metadata"]
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **{k: meta[k] for k in ("namespace", "name")}}
    if "uid" in meta:
        owner["uid"] = meta["uid"]
    more = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": claim["spec"]["storageClassName"],
        "claimRef": owner,
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {**spec, **more}}


def pods_of(pod: J) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def runtime(overhead: J) -> str:
    return "-".join(("takes", *(f"{k}-{v}".lower() for k, v in sorted(overhead.items()))))


def wire(pod: J) -> J:
    """The pod as a user would write it: what admission fills in is left to admission."""
    meta = {k: v for k, v in pod["metadata"].items() if k not in ("uid", "ownerReferences")}
    spec = {k: v for k, v in pod["spec"].items() if k not in ("overhead", "priority")}
    if "overhead" in pod["spec"]:
        spec["runtimeClassName"] = runtime(pod["spec"]["overhead"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}
