"""Each field of a pod and of a NodePool, set once: what is handled changes the answer in the way it should, the rest does not.

A pod goes in as the wire has it; what comes out are the NodeClaims as they would be written, and who is left without a place.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubewright.api.core import PersistentVolume, PersistentVolumeClaim, Pod
from kubewright.api.karpenter import NodePool
from kubewright.lifecycle.purchase import node_claim
from kubewright.solver.problem import Pool, Snapshot, SolverSettings, Surroundings
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from kubewright.solver.support import HANDLED, NODE_POOL_SPEC, POD_SPEC, REFUSED
from tests.builders import NOW, S_TYPES

Item = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def pod(name: str = "p", **spec: Any) -> Item:
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [container("main", "1")], **spec},
        "status": {"phase": "Pending", "conditions": [waiting]},
    }


def container(name: str, cpu: str, **more: Any) -> Item:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **more}


def pool(name: str = "default", **fields: Any) -> Item:
    """Fields by the path that the table gives them."""
    found: Item = {"metadata": {"name": name, "uid": name}, "spec": {"template": {"metadata": {}, "spec": {}}}}
    found["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    for path, value in fields.items():
        *outer, last = path.split(".")
        at = found["spec"]
        for key in outer:
            at = at[key]
        at[last] = value
    return found


IN_B = {"key": ZONE, "operator": "In", "values": ["b"]}
ONLY_B = {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
CLAIM = {"metadata": {"name": "c", "namespace": "default", "annotations": BOUND}, "spec": {"volumeName": "v"}}
VOLUME = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": ONLY_B}}}
AROUND = Surroundings(
    claims=(msgspec.convert(CLAIM, PersistentVolumeClaim),),
    volumes=(msgspec.convert(VOLUME, PersistentVolume),),
)


class Answer(msgspec.Struct, frozen=True):
    claims: tuple[Item, ...]
    unplaced: tuple[str, ...]
    """Pods that were asked about and have no place."""

    def value(self, key: str) -> list[list[str]]:
        """Of each claim: the values its requirements allow for `key`."""
        return [r["values"] for c in self.claims for r in c["spec"]["requirements"] if r["key"] == key]

    @property
    def cpu(self) -> list[str]:
        return [c["spec"]["resources"]["requests"]["cpu"] for c in self.claims]


def answer(pods: list[Item], pools: list[Item]) -> Answer:
    asked = tuple(msgspec.convert(p, Pod) for p in pods)
    sold = tuple(Pool(msgspec.convert(p, NodePool), S_TYPES) for p in pools)
    chosen = select(Snapshot(NOW, (), asked, sold, AROUND), SolverSettings())
    plan = solve(chosen.problem)
    by_name = {p.node_pool.name: p.node_pool for p in sold}
    made = (node_claim(planned, by_name[planned.node_pool], planned.name) for planned in plan.claims)
    return Answer(
        tuple(msgspec.json.decode(msgspec.json.encode(c)) for c in made), tuple(sorted({*plan.unplaced, *chosen.ignored}))
    )


PLAIN = answer([pod()], [pool()])

GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
WEB = {"matchLabels": {"app": "web"}}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
S2 = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["s2"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

POD_CASES: dict[str, tuple[list[Item], list[Item], Callable[[Answer], object]]] = {
    "affinity": (
        [pod(affinity={"nodeAffinity": {REQUIRED: ONLY_B}})],
        [pool()],
        lambda a: a.value(ZONE) == [["b"]],
    ),
    "containers": ([pod(containers=[container("main", "3")])], [pool()], lambda a: a.cpu == ["3"]),
    "initContainers": ([pod(initContainers=[container("first", "5")])], [pool()], lambda a: a.cpu == ["5"]),
    "nodeName": ([pod(nodeName="elsewhere")], [pool()], lambda a: a == Answer((), ())),
    "nodeSelector": ([pod(nodeSelector={ZONE: "b"})], [pool()], lambda a: a.value(ZONE) == [["b"]]),
    "overhead": ([pod(overhead={"cpu": "2"})], [pool()], lambda a: a.cpu == ["3"]),
    "priority": (
        # Room for one: without priorities the first by name gets it.
        [pod(name, containers=[container("main", "2")], priority=p) for name, p in (("a", 1), ("b", 100))],
        [pool(limits={"nodes": "1"}, **{"template.spec.requirements": [S2]})],
        lambda a: a.unplaced == ("default/a",),
    ),
    "resources": ([pod(resources={"requests": {"cpu": "6"}})], [pool()], lambda a: a.cpu == ["6"]),
    "tolerations": (
        [pod(tolerations=[{"key": "gpu", "operator": "Exists"}])],
        [pool(**{"template.spec.taints": [GPU]})],
        lambda a: len(a.claims) == 1,
    ),
    "topologySpreadConstraints": (
        [pod(name, topologySpreadConstraints=[SPREAD]) for name in "abc"],
        [pool()],
        lambda a: sorted(a.value(ZONE)) == [["a"], ["b"], ["c"]],
    ),
    "volumes": (
        [pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])],
        [pool()],
        lambda a: a.value(ZONE) == [["b"]],
    ),
}


def without(field: str, pods: list[Item]) -> list[Item]:
    plain = pod()["spec"]
    kept = [{k: v for k, v in p["spec"].items() if k != field} for p in pods]
    default = {field: plain[field]} if field in plain else {}
    return [{**p, "spec": {**spec, **default}} for p, spec in zip(pods, kept, strict=True)]


@pytest.mark.parametrize("field", POD_CASES)
def test_a_handled_field_of_a_pod_decides(field):
    pods, pools, holds = POD_CASES[field]
    assert holds(answer(pods, pools))
    assert not holds(answer(without(field, pods), pools)), "the field alone made the difference"


def test_a_gated_pod_waits():
    """The API server says so of every pod with a gate, which is what is read."""
    gated = pod(schedulingGates=[{"name": "quota"}])
    gated["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert answer([gated], [pool()]) == Answer((), ())


def test_every_handled_field_of_a_pod_has_its_case():
    assert {*POD_CASES, "schedulingGates"} == {name for name, how in POD_SPEC.items() if how == HANDLED}


VALUES: Item = {
    "activeDeadlineSeconds": 60,
    "automountServiceAccountToken": False,
    "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "dnsPolicy": "None",
    "enableServiceLinks": False,
    "evictionResponders": [{"name": "example.com/responder"}],
    "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "hostUsers": False,
    "hostname": "a",
    "hostnameOverride": "a",
    "imagePullSecrets": [{"name": "a"}],
    "os": {"name": "windows"},
    "preemptionPolicy": "Never",
    "priorityClassName": "important",
    "readinessGates": [{"conditionType": "a"}],
    "restartPolicy": "Never",
    "runtimeClassName": "gvisor",
    "schedulerName": "other",
    "securityContext": {"runAsUser": 1},
    "serviceAccount": "a",
    "serviceAccountName": "a",
    "setHostnameAsFQDN": True,
    "shareProcessNamespace": True,
    "subdomain": "a",
    "terminationGracePeriodSeconds": 5,
}


@pytest.mark.parametrize("field", VALUES)
def test_an_irrelevant_field_of_a_pod_changes_nothing(field):
    assert answer([pod(**{field: VALUES[field]})], [pool()]) == PLAIN


def test_every_irrelevant_field_of_a_pod_has_its_value():
    assert set(VALUES) == {name for name, how in POD_SPEC.items() if how not in (HANDLED, REFUSED)}


def spec(a: Answer, field: str) -> object:
    (claim,) = a.claims
    return claim["spec"].get(field)


POOL_CASES: dict[str, tuple[object, Callable[[Answer], object]]] = {
    "template.metadata.labels": ({"team": "a"}, lambda a: a.claims[0]["metadata"]["labels"].get("team") == "a"),
    "template.metadata.annotations": ({"team": "a"}, lambda a: a.claims[0]["metadata"]["annotations"].get("team") == "a"),
    "template.spec.expireAfter": ("48h", lambda a: spec(a, "expireAfter") == "48h"),
    "template.spec.nodeClassRef": (
        {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "other"},
        lambda a: a.claims[0]["spec"]["nodeClassRef"].get("name") == "other",
    ),
    "template.spec.requirements": ([IN_B], lambda a: a.value(ZONE) == [["b"]]),
    "template.spec.startupTaints": ([GPU], lambda a: spec(a, "startupTaints") == [GPU]),
    "template.spec.taints": ([GPU], lambda a: a.unplaced == ("default/p",)),
    "template.spec.terminationGracePeriod": ("1h", lambda a: spec(a, "terminationGracePeriod") == "1h"),
    "limits": ({"cpu": "1"}, lambda a: a.unplaced == ("default/p",)),
    "replicas": (2, lambda a: a.unplaced == ("default/p",)),
}


@pytest.mark.parametrize("field", POOL_CASES)
def test_a_handled_field_of_a_pool_decides(field):
    value, holds = POOL_CASES[field]
    assert holds(answer([pod()], [pool(**{field: value})]))
    assert not holds(PLAIN)


def test_the_heavier_pool_is_asked_first():
    for heavy, light in (("a", "b"), ("b", "a")):
        found = answer([pod()], [pool(heavy, weight=10), pool(light)])
        assert [c["metadata"]["labels"]["karpenter.sh/nodepool"] for c in found.claims] == [heavy]


def test_disruption_settings_change_nothing_that_is_bought_but_the_hash():
    found = answer([pod()], [pool(disruption={"consolidateAfter": "5m", "budgets": [{"nodes": "0"}]})])
    assert [c["spec"] for c in found.claims] == [c["spec"] for c in PLAIN.claims]


def test_every_field_of_the_pool_has_its_case():
    assert {*POOL_CASES, "weight", "disruption"} == set(NODE_POOL_SPEC)
