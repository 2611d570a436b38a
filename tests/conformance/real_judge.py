"""The real kube-scheduler as judge: what is planned is built on a real control plane, and the scheduler has to agree.

`python -m tests.conformance.real_judge 0 100` does it for a hundred random workloads. The planned machines become kwok nodes with
exactly the planned labels, taints and allocatable; then every placed pod is created, nominated for the node it was planned for
(which makes kube-scheduler ask that node first, with all its filters), and has to be bound there. Pods come one after the other,
since spread and affinity depend on the order, and one that is refused is tried again once others stand: only what is refused in
every order counts. With `--late` nodes have 3 % less memory than planned and DaemonSets come last: pods, those of DaemonSets
included, that then stay pending are counted and nothing more, for no plan can foresee that.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubewright.api.core import Pod
from kubewright.scheduling.resources import pod_requests
from tests.conformance.adapter import answer
from tests.conformance.judge import for_reference
from tests.conformance.problems import ARCH, CT, HOST, POOL, TYPE, ZONE, problem
from tests.conformance.problems.features import NOT_ON_A_PLANE
from tests.conformance.validator.amounts import machine
from tests.conformance.validator.places import Cluster
from tests.conformance.validator.selecting import key_of
from tests.conformance.validator.together import binding_order
from tests.plane.plane import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, Plane
from tests.plane.waiting import eventually

J = dict[str, Any]
T = TypeVar("T")
NODES, NAMESPACES = "/api/v1/nodes", ("default", "other")
_NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_MERGE = "application/merge-patch+json"
_GATE = "kubewright.test/wait"


class Outcome(NamedTuple):
    seed: int
    placed: int
    refused: dict[str, str]
    """Placed pod that kube-scheduler never bound to its node → what it said last."""


def judge(plane: Plane, seed: int, *, memory: float = 1.0, late: bool = False) -> Outcome:
    """Plan the workload of `seed`, build the plan, and have every placed pod bound; leaves the plane as it was.

    New nodes have `memory` times what was planned; with `late` DaemonSets come last.
    """
    asked = for_reference(problem(seed, without=NOT_ON_A_PLANE)[0])
    planned = answer(asked)
    assert not planned.get("error"), planned
    by_kind: dict[str, list[J]] = {}
    for one in asked["objects"]:
        by_kind.setdefault(one["kind"], []).append(one)
    places: dict[str, list[str]] = {n["name"]: n["pods"] for n in planned["existingNodes"]}
    nodes = [
        _ready(n["metadata"]["name"], n["metadata"]["labels"], n["status"], n["spec"].get("taints", []))
        for n in by_kind.get("Node", ())
    ]
    rng = random.Random(seed)
    for index, new in enumerate(planned["newNodes"]):
        name = f"new-{index}"
        nodes.append(_built(name, new, asked, rng, memory))
        places[name] = new["pods"]
    pods = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p for p in by_kind.get("Pod", ())}
    try:
        _furnish(plane, by_kind, nodes, daemons=not late)
        for pod in pods.values():
            if pod["spec"].get("nodeName"):
                plane.create(_pods(pod), _wire(pod))
        order = [(key_of(pod), place.name) for pod, place in binding_order(Cluster(asked, planned))]
        refused = _all_bound(plane, order, places, pods, by_kind)
        if late:
            _daemons(plane, by_kind)
            refused |= _pending_daemons(plane)
        return Outcome(seed, sum(map(len, places.values())), refused)
    finally:
        clear(plane)


def clear(plane: Plane) -> None:
    """Remove everything that a workload made."""
    for namespace in NAMESPACES:
        plane.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", _NOW)
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", _NOW)
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", _NOW)
    plane.request("DELETE", "/api/v1/persistentvolumes", _NOW)
    for kind in ("storage.k8s.io/v1/storageclasses", "storage.k8s.io/v1/csinodes", "node.k8s.io/v1/runtimeclasses"):
        plane.request("DELETE", f"/apis/{kind}", _NOW)
    plane.request("DELETE", NODES, _NOW)

    def empty() -> bool:
        paths = ["/api/v1/pods", "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes", NODES]
        left = [o for path in paths for o in plane.get(path)["items"]]
        for pod in plane.get("/api/v1/pods")["items"]:
            plane.request("DELETE", f"{_pods(pod)}/{pod['metadata']['name']}", _NOW)
        return not left

    _soon(empty)


def _furnish(plane: Plane, by_kind: Mapping[str, Sequence[J]], nodes: Sequence[J], *, daemons: bool) -> None:
    for one in by_kind.get("Namespace", ()):
        name = one["metadata"]["name"]
        if plane.request("GET", f"/api/v1/namespaces/{name}").status == 404:
            plane.create("/api/v1/namespaces", one)
        plane.request("PATCH", f"/api/v1/namespaces/{name}", one, content_type=_MERGE).body_or_raise()
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(lambda: plane.request("GET", path).status == 200)  # noqa: B023 - called at once
    for one in by_kind.get("StorageClass", ()):
        plane.create("/apis/storage.k8s.io/v1/storageclasses", one)
    owners = {c["spec"]["volumeName"]: c for c in by_kind.get("PersistentVolumeClaim", ()) if c["spec"].get("volumeName")}
    claims = _claims(by_kind)
    owners = {c["spec"]["volumeName"]: c for c in claims if c["spec"].get("volumeName")}
    for one in by_kind.get("PersistentVolume", ()):
        plane.create("/api/v1/persistentvolumes", _volume(one["metadata"]["name"], owners[one["metadata"]["name"]], one["spec"]))
    for one in claims:
        _create_claim(plane, one)
    for amounts in {json.dumps(p["spec"]["overhead"], sort_keys=True) for p in by_kind["Pod"] if "overhead" in p["spec"]}:
        body = {
            "metadata": {"name": _runtime(json.loads(amounts))},
            "handler": "h",
            "overhead": {"podFixed": json.loads(amounts)},
        }
        plane.create("/apis/node.k8s.io/v1/runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **body})
    for one in by_kind.get("CSINode", ()):
        plane.create("/apis/storage.k8s.io/v1/csinodes", one)
    for node in nodes:
        plane.create(NODES, node)
    if daemons:
        _daemons(plane, by_kind)

    def ready() -> bool:
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", ()))
            and not any(t["key"].startswith("node.kubernetes.io/") for t in n["spec"].get("taints", ()))
            for n in plane.get(NODES)["items"]
        )

    _soon(ready)
    if daemons:
        _daemons_settled(plane)
    _soon(
        lambda: all(
            c["status"].get("phase") == "Bound"
            for c in plane.get("/api/v1/persistentvolumeclaims")["items"]
            if c["spec"].get("volumeName")
        )
    )


def _daemons(plane: Plane, by_kind: Mapping[str, Sequence[J]]) -> None:
    for one in by_kind.get("DaemonSet", ()):
        plane.create("/apis/apps/v1/namespaces/default/daemonsets", one)


def _daemons_settled(plane: Plane) -> list[J]:
    """The DaemonSets' pods, once there is one for every node and kube-scheduler has looked at each."""

    def settled() -> list[J] | None:
        sets = plane.get("/apis/apps/v1/daemonsets")["items"]
        mine: list[J] = plane.get("/api/v1/namespaces/default/pods?labelSelector=d%3Dagent")["items"]
        known = all(d["status"].get("observedGeneration") for d in sets)
        wanted = sum(d["status"].get("desiredNumberScheduled", 0) for d in sets)
        looked_at = all(p["spec"].get("nodeName") or p["status"].get("conditions") for p in mine)
        return mine or [{}] if known and len(mine) == wanted and looked_at else None

    return [p for p in _soon(settled) if p]


def _pending_daemons(plane: Plane) -> dict[str, str]:
    return {
        f"DaemonSet pod {p['metadata']['name']}": p["status"]["conditions"][0].get("message", "")
        for p in _daemons_settled(plane)
        if not p["spec"].get("nodeName")
    }


def _built(name: str, new: J, asked: J, rng: random.Random, memory: float) -> J:
    """A node as the cloud might sell it: any of the listed types, by any offering that the claim allows."""
    kinds = {t["name"]: t for t in asked["instanceTypes"]}
    kind = kinds[rng.choice(sorted(new["instanceTypes"]))]
    offering = rng.choice([o for o in kind["offerings"] if o["available"] and _allowed(new["requirements"], o)])
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
    return _ready(name, labels, status, pool["spec"]["template"]["spec"].get("taints", []))


def _ready(name: str, labels: Mapping[str, str], status: J, taints: list[J]) -> J:
    meta = {"name": name, "labels": dict(labels), "annotations": {NODE_ANNOTATION: NODE_ANNOTATION_VALUE}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


def _allowed(requirements: Mapping[str, list[str]], offering: J) -> bool:
    for r in offering["requirements"]:
        operator, *values = requirements.get(r["key"], ["Exists"])
        if operator in ("In", "NotIn") and (r["values"][0] in values) != (operator == "In"):
            return False
    return True


def _all_bound(
    plane: Plane,
    order: Sequence[tuple[str, str]],
    places: Mapping[str, Sequence[str]],
    pods: Mapping[str, J],
    by_kind: Mapping[str, Sequence[J]],
) -> dict[str, str]:
    """Bind every placed pod to its node, in any order that works; what is refused in the best one, with the scheduler's words.

    `order` is tried first: the one in which, by what the validator thinks, all are let in.
    """
    turns = list(_by_turns(places))
    paths = [f"{_pods(pods[pod])}/{pods[pod]['metadata']['name']}" for pod, _ in turns]
    best: dict[str, str] | None = None
    for waiting in (order, *(sorted(turns, key=lambda one: key(pods[one[0]])) for key in _OTHER_ORDERS)):
        refused = _bound_in(plane, waiting, pods)
        if best is None or len(refused) < len(best):
            best = refused
        if not refused:
            break
        for path in paths:
            plane.request("DELETE", path, _NOW)
        _soon(lambda: all(plane.request("GET", path).status == 404 for path in paths) and not _made_claims(plane))
        _unbind_claims(plane, by_kind)
    return best or {}


def _unbind_claims(plane: Plane, by_kind: Mapping[str, Sequence[J]]) -> None:
    """Make the claims anew that got a volume by being tried: it lies where a pod was tried, and would hold the next one there."""
    late = [c for c in _claims(by_kind) if not c["spec"].get("volumeName")]
    for one in late:
        plane.request("DELETE", f"{_claims_of(one)}/{one['metadata']['name']}", _NOW)
    _soon(lambda: all(plane.request("GET", f"{_claims_of(c)}/{c['metadata']['name']}").status == 404 for c in late))
    for volume in plane.get("/api/v1/persistentvolumes")["items"]:
        if volume["metadata"]["name"].startswith("made-"):
            plane.request("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}", _NOW)
    _soon(lambda: not [v for v in plane.get("/api/v1/persistentvolumes")["items"] if v["metadata"]["name"].startswith("made-")])
    for one in late:
        _create_claim(plane, one)


def _claims(by_kind: Mapping[str, Sequence[J]]) -> list[J]:
    """All but those of ephemeral volumes, which are made for their pods."""
    return [c for c in by_kind.get("PersistentVolumeClaim", ()) if "ownerReferences" not in c["metadata"]]


def _claims_of(one: J) -> str:
    return f"/api/v1/namespaces/{one['metadata']['namespace']}/persistentvolumeclaims"


def _create_claim(plane: Plane, one: J) -> None:
    size = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    meta = {k: one["metadata"][k] for k in ("namespace", "name")}  # that it is bound is for the controller to say
    plane.create(_claims_of(one), {**one, "metadata": meta, "spec": {**one["spec"], **size}, "status": {}})


def _size(pod: J) -> tuple[object, ...]:
    """Largest first, as they are planned."""
    requests = pod_requests(msgspec.convert(pod, Pod))
    return -requests.get("cpu", 0), -requests.get("memory", 0), pod["metadata"]["name"]


def _bound_first(pod: J) -> tuple[object, ...]:
    """Pods that have to be spread before those that merely count, followers last."""
    return "podAffinity" in pod["spec"].get("affinity", {}), not _must_spread(pod), *_size(pod)


def _free_first(pod: J) -> tuple[object, ...]:
    return "podAffinity" in pod["spec"].get("affinity", {}), _must_spread(pod)


def _followers_first(pod: J) -> tuple[object, ...]:
    """The first of a group that must be together may go anywhere only while none of them stands."""
    return "podAffinity" not in pod["spec"].get("affinity", {}), not _must_spread(pod), *_size(pod)


_OTHER_ORDERS = (_size, _bound_first, _free_first, _followers_first)


def _must_spread(pod: J) -> bool:
    return any(c["whenUnsatisfiable"] == "DoNotSchedule" for c in pod["spec"].get("topologySpreadConstraints", ()))


def _bound_in(plane: Plane, waiting: Sequence[tuple[str, str]], pods: Mapping[str, J]) -> dict[str, str]:
    while True:
        refused = {pod: said for pod, node in waiting if (said := _bind(plane, pods[pod], node))}
        if not refused or len(refused) == len(waiting):
            return refused
        waiting = [one for one in waiting if one[0] in refused]


def _by_turns(places: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """A pod of every node, then another of every node, so that spreads stay even."""
    for turn in zip_longest(*([(pod, node) for pod in found] for node, found in places.items())):
        yield from (one for one in turn if one is not None)


def _bind(plane: Plane, pod: J, node: str) -> str:
    """Create the pod, nominated for `node`; "" once it is bound there, otherwise what was said, and the pod is gone again."""
    body = _wire(pod)
    body["spec"]["schedulingGates"] = [{"name": _GATE}]
    path = f"{_pods(pod)}/{plane.create(_pods(pod), body)['metadata']['name']}"
    nominated = {"status": {"nominatedNodeName": node}}
    plane.request("PATCH", f"{path}/status", nominated, content_type=_MERGE).body_or_raise()
    plane.request("PATCH", path, {"spec": {"schedulingGates": None}}, content_type=_MERGE).body_or_raise()

    def verdict() -> str:
        now = plane.get(path)
        if now["spec"].get("nodeName"):
            return "bound" if now["spec"]["nodeName"] == node else f"bound to {now['spec']['nodeName']}, planned for {node}"
        _provision(plane, now)
        for condition in now["status"].get("conditions", ()):
            unready = "waiting for ephemeral volume controller" in condition.get("message", "")
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable" and not unready:
                return f"planned for {node}: {condition.get('message', '')}"
        return ""

    said = _soon(verdict)
    if said == "bound":
        return ""
    plane.request("DELETE", path, _NOW).body_or_raise()
    own = {f"{pod['metadata']['name']}-{v['name']}" for v in pod["spec"].get("volumes", ()) if "ephemeral" in v}
    _soon(lambda: plane.request("GET", path).status == 404 and not own & _made_claims(plane))
    return said


def _made_claims(plane: Plane) -> set[str]:
    """Claims that were made for pods with ephemeral volumes, and that go with them."""
    claims = plane.get("/api/v1/persistentvolumeclaims")["items"]
    return {c["metadata"]["name"] for c in claims if c["metadata"].get("ownerReferences")}


def _soon(ask: Callable[[], T]) -> T:
    """As `eventually`, asked more often: this is where the time goes."""
    end = time.monotonic() + 60
    while not (answer := ask()):
        assert time.monotonic() < end, f"still {answer!r} after a minute"
        time.sleep(0.02)
    return answer


def _provision(plane: Plane, pod: J) -> None:
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
        made = _volume(f"made-{name}", claim, spec)
        made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com"}
        plane.request("POST", "/api/v1/persistentvolumes", made)  # again and again until it is bound: a conflict is fine


def _volume(name: str, claim: J, spec: J) -> J:
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


def _pods(pod: J) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def _runtime(overhead: J) -> str:
    return "-".join(("takes", *(f"{k}-{v}".lower() for k, v in sorted(overhead.items()))))


def _wire(pod: J) -> J:
    """The pod as a user would write it: what admission fills in is left to admission."""
    meta = {k: v for k, v in pod["metadata"].items() if k not in ("uid", "ownerReferences")}
    spec = {k: v for k, v in pod["spec"].items() if k not in ("overhead", "priority")}
    if "overhead" in pod["spec"]:
        spec["runtimeClassName"] = _runtime(pod["spec"]["overhead"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.real_judge")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="the first seed that is not judged any more")
    parser.add_argument("--late", action="store_true", help="3 %% less memory than planned, DaemonSets last: only counted")
    asked = parser.parse_args()
    placed = refused = 0
    with Plane() as plane:
        for seed in range(asked.first, asked.last):
            outcome = judge(plane, seed, memory=0.97 if asked.late else 1.0, late=asked.late)
            placed += outcome.placed
            refused += len(outcome.refused)
            for pod, said in outcome.refused.items():
                print(f"problem {seed}: {pod}: {said}", flush=True)
    print(f"{asked.last - asked.first} workloads: {placed} pods placed, {refused} of them refused by kube-scheduler")
    return int(bool(refused) and not asked.late)


if __name__ == "__main__":
    sys.exit(main())
