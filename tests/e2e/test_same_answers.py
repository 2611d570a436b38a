"""The same raw requests to the in-memory server and to a real kube-apiserver: the answers must be equal, word for word.

What differs by nature is taken out of both: UIDs, versions, dates, field managers, allocated addresses, and what a real
controller manager adds later.
"""

import asyncio
import re
from typing import Any

import aiohttp
import msgspec
import pytest

from kubewright.api.crds import CRDS
from kubewright.clock import Clock
from kubewright.sim.apiserver.http import serve
from kubewright.sim.apiserver.store import Store
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go

Request = tuple[str, str, Any]

POD = {"containers": [{"name": "app", "image": "registry.invalid/app:1"}]}
LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
WORKLOAD = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}


def pod(name: str, **spec: Any) -> Request:
    return "POST", "/api/v1/namespaces/NS/pods", {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", **POD, **spec}}


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "image": "i", **fields}]}


def workload(plural: str, **spec: Any) -> Request:
    return (
        "POST",
        f"/apis/apps/v1/namespaces/NS/{plural}",
        {"metadata": {"name": "web"}, "spec": {**WORKLOAD, "replicas": 0, **spec}},
    )


def configmap(**meta: Any) -> Request:
    return "POST", "/api/v1/namespaces/NS/configmaps", {"metadata": {"name": "one", **meta}}


def made(plural: str, spec: dict[str, Any], group: str = "policy/v1", **rest: Any) -> Request:
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return "POST", f"{base}/namespaces/NS/{plural}", {"metadata": {"name": "one"}, "spec": spec, **rest}


def affinity(expression: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [expression]}]
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}


CASES: dict[str, list[Request]] = {
    "a plain pod": [pod("one")],
    "a pod with requests and limits": [
        pod("one", **container(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}}))
    ],
    "a pod with ports and probes": [
        pod("one", **container(ports=[{"containerPort": 80, "hostPort": 8080}], readinessProbe={"httpGet": {"port": 80}}))
    ],
    "a pod on the host's network": [pod("one", hostNetwork=True, **container(ports=[{"containerPort": 80}]))],
    "a pod with latest image": [pod("one", **container(image="nginx:latest"))],
    "a pod with spread": [
        pod("one", topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}])
    ],
    "a critical pod": [pod("one", priorityClassName="system-node-critical")],
    "a pod with a priority of its own": [pod("one", priority=7)],
    "no containers": [pod("one", containers=[])],
    "two containers of one name": [pod("one", containers=[*POD["containers"], *POD["containers"]])],
    "no image": [pod("one", containers=[{"name": "app"}])],
    "no container name": [pod("one", containers=[{"image": "i"}])],
    "a bad container name": [pod("one", containers=[{"name": "App_1", "image": "i"}])],
    "a bad restart policy": [pod("one", restartPolicy="Sometimes")],
    "a bad dns policy": [pod("one", dnsPolicy="Sometimes")],
    "a negative request": [pod("one", **container(resources={"requests": {"cpu": "-1"}}))],
    "an unqualified resource": [pod("one", **container(resources={"requests": {"gpus": "1"}}))],
    "requests above limits": [pod("one", **container(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}))],
    "not a quantity": [pod("one", **container(resources={"requests": {"cpu": "two"}}))],
    "a bad port": [pod("one", **container(ports=[{"containerPort": 70000}]))],
    "a bad node selector": [pod("one", nodeSelector={"a b": "c d"})],
    "a toleration without key": [pod("one", tolerations=[{"operator": "Equal", "value": "x"}])],
    "a toleration that exists with a value": [pod("one", tolerations=[{"key": "a", "operator": "Exists", "value": "x"}])],
    "a toleration of an unknown effect": [pod("one", tolerations=[{"key": "a", "operator": "Exists", "effect": "Never"}])],
    "seconds without NoExecute": [
        pod("one", tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}])
    ],
    "no skew": [pod("one", topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Perhaps"}])],
    "In without values": [pod("one", **affinity({"key": "a", "operator": "In"}))],
    "Exists with values": [pod("one", **affinity({"key": "a", "operator": "Exists", "values": ["b"]}))],
    "an unknown node operator": [pod("one", **affinity({"key": "a", "operator": "Near", "values": ["b"]}))],
    "a mount without volume": [pod("one", **container(volumeMounts=[{"name": "data", "mountPath": "/data"}]))],
    "two volumes of one name": [pod("one", volumes=[{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}])],
    "an unknown priority class": [pod("one", priorityClassName="missing")],
    "an unknown runtime class": [pod("one", runtimeClassName="missing")],
    "a wrong type": [pod("one", nodeName=5)],
    "a deployment": [workload("deployments")],
    "a replica set": [workload("replicasets")],
    "a stateful set": [workload("statefulsets", serviceName="web")],
    "a job": [
        (
            "POST",
            "/apis/batch/v1/namespaces/NS/jobs",
            {"metadata": {"name": "one"}, "spec": {"suspend": True, "template": {"spec": {**POD, "restartPolicy": "Never"}}}},
        )
    ],
    "a job that restarts always": [
        ("POST", "/apis/batch/v1/namespaces/NS/jobs", {"metadata": {"name": "one"}, "spec": {"template": {"spec": POD}}})
    ],
    "a workload without selector": [workload("deployments", selector=None)],
    "a workload with an empty selector": [workload("deployments", selector={})],
    "a workload that selects others": [workload("deployments", selector={"matchLabels": {"other": "app"}})],
    "a workload of negative size": [workload("deployments", replicas=-1)],
    "a workload whose pods end": [workload("deployments", template={**TEMPLATE, "spec": {**POD, "restartPolicy": "Never"}})],
    "a strategy that contradicts itself": [
        workload("deployments", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})
    ],
    "a selector that moves": [
        workload("deployments"),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/NS/deployments/web",
            {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}},
        ),
    ],
    "a stateful set whose service moves": [
        workload("statefulsets", serviceName="web"),
        ("PATCH", "/apis/apps/v1/namespaces/NS/statefulsets/web", {"spec": {"serviceName": "other"}}),
    ],
    "a budget": [made("poddisruptionbudgets", {"maxUnavailable": "10%", "selector": {"matchLabels": LABELS}})],
    "a budget of two minds": [made("poddisruptionbudgets", {"maxUnavailable": 1, "minAvailable": 1})],
    "a budget of a bad share": [made("poddisruptionbudgets", {"maxUnavailable": "ten%"})],
    "a budget above all": [made("poddisruptionbudgets", {"maxUnavailable": "101%"})],
    "a budget with a bad policy": [made("poddisruptionbudgets", {"minAvailable": 1, "unhealthyPodEvictionPolicy": "Never"})],
    "a lease": [made("leases", {"holderIdentity": "me", "leaseDurationSeconds": 15}, "coordination.k8s.io/v1")],
    "a lease of no length": [made("leases", {"leaseDurationSeconds": 0}, "coordination.k8s.io/v1")],
    "a service": [made("services", {"ports": [{"port": 80}], "selector": LABELS, "clusterIP": "None"}, "v1")],
    "a service without ports": [made("services", {"selector": LABELS}, "v1")],
    "an event elsewhere": [
        made("events", {}, "v1", involvedObject={"kind": "Pod", "name": "x", "namespace": "elsewhere"}),
    ],
    "an event of a node in another namespace": [made("events", {}, "v1", involvedObject={"kind": "Node", "name": "x"})],
    "labels that are none": [configmap(labels={"a/b/c": "d"}), configmap(labels={"a b": "-x"}), configmap(labels={"": ""})],
    "annotations that are none": [configmap(annotations={"a b": "c"})],
    "finalizers that are none": [configmap(finalizers=["nodomain"]), configmap(finalizers=["a/b/c"])],
    "an owner without identity": [configmap(ownerReferences=[{"kind": "A", "name": "b"}])],
    "two names": [("PATCH", "/api/v1/namespaces/NS/configmaps/missing", {}), configmap(), configmap()],
    "a patch of metadata": [
        configmap(labels={"a": "b"}),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"labels": {"a": None, "c": "d"}, "uid": "x"}}),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"resourceVersion": "1"}}),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"name": "two"}}),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"labels": {"a": None, "c": "d"}}}),
    ],
    "a put with another version": [
        configmap(),
        ("PUT", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"name": "one", "resourceVersion": "1"}}),
        ("PUT", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"name": "one"}, "data": {"a": "b"}}),
        ("PUT", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"name": "two"}}),
        ("PUT", "/api/v1/namespaces/NS/configmaps/missing", {"metadata": {"name": "missing"}}),
    ],
    "selectors that are none": [
        ("GET", "/api/v1/namespaces/NS/pods?fieldSelector=spec.priority%3D0", None),
        ("GET", "/apis/apps/v1/namespaces/NS/deployments?fieldSelector=spec.replicas%3D0", None),
        ("GET", "/apis/karpenter.sh/v1/nodepools?fieldSelector=spec.weight%3D0", None),
    ],
    "scaling": [
        workload("deployments"),
        ("GET", "/apis/apps/v1/namespaces/NS/deployments/web/scale", None),
        ("PATCH", "/apis/apps/v1/namespaces/NS/deployments/web/scale", {"spec": {"replicas": -1}}),
    ],
    "deletions": [
        configmap(finalizers=["example.com/hold"]),
        ("DELETE", "/api/v1/namespaces/NS/configmaps/one", {"propagationPolicy": "Sideways"}),
        ("DELETE", "/api/v1/namespaces/NS/configmaps/one", {"preconditions": {"resourceVersion": "1"}}),
        ("DELETE", "/api/v1/namespaces/NS/configmaps/one", None),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"finalizers": ["example.com/hold", "example.com/x"]}}),
        ("PATCH", "/api/v1/namespaces/NS/configmaps/one", {"metadata": {"finalizers": None}}),
    ],
    "unknown fields": [
        (
            "POST",
            "/api/v1/namespaces/NS/configmaps?fieldValidation=Strict",
            {"metadata": {"name": "x", "lables": {}}, "dota": {}},
        ),
    ],
    "a binding": [
        pod("one"),
        ("POST", "/api/v1/namespaces/NS/pods/one/binding", {"target": {"kind": "Node", "name": "n"}}),
        (
            "POST",
            "/api/v1/namespaces/NS/pods/one/binding",
            {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n"}},
        ),
        (
            "POST",
            "/api/v1/namespaces/NS/pods/one/binding",
            {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n"}},
        ),
    ],
    "a pod's spec in place": [
        pod("one"),
        ("PATCH", "/api/v1/namespaces/NS/pods/one", {"spec": {"tolerations": []}}),
        (
            "PATCH",
            "/api/v1/namespaces/NS/pods/one",
            {"spec": {"containers": [{"name": "app", "image": "registry.invalid/app:2"}]}},
        ),
        ("PATCH", "/api/v1/namespaces/NS/pods/one/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}}),
    ],
    "a volume claim": [
        made("persistentvolumeclaims", {"accessModes": ["ReadWriteOnce"]}, "v1"),
        made("persistentvolumeclaims", {"resources": {"requests": {"storage": "1Gi"}}}, "v1"),
    ],
}


@pytest.fixture(scope="session")
def plane_with_our_kinds(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Plane:
    from kubewright.api.crds import render

    file = tmp_path_factory.mktemp("crds") / "crds.yaml"
    file.write_text(render())
    plane.apply(file)
    return plane


@pytest.mark.parametrize("case", CASES)
def test_both_servers_answer_alike(plane_with_our_kinds: Plane, namespace: str, case: str) -> None:
    real = [ask_real(plane_with_our_kinds, namespace, request) for request in CASES[case]]
    ours = asyncio.run(ask_ours(namespace, CASES[case]))
    assert ours == real


def ask_real(plane: Plane, namespace: str, request: Request) -> tuple[int, Any]:
    method, path, body = request
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = plane.request(method, path.replace("NS", namespace), body, content_type=content_type)
    return answer.status, comparable(answer.body, namespace)


async def ask_ours(namespace: str, requests: list[Request]) -> list[tuple[int, Any]]:
    store = Store(Clock(), crds=list(CRDS.values()))
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    server = await serve(store)
    found = []
    try:
        async with aiohttp.ClientSession() as session:
            for method, path, body in requests:
                kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
                data = None if body is None else msgspec.json.encode(body)
                url = server.url + path.replace("NS", namespace)
                headers = {} if data is None else {"Content-Type": kind}
                async with session.request(method, url.replace("%3D", "="), data=data, headers=headers) as answer:
                    found.append((answer.status, comparable(msgspec.json.decode(await answer.read()), namespace)))
    finally:
        await server.close()
    return found


_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r"in record \(\d+\)")
_DATE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
_MOVING = {"managedFields", "resourceVersion", "generateName"}


def comparable(node: Any, namespace: str) -> Any:
    if isinstance(node, dict):
        return {k: comparable(v, namespace) for k, v in node.items() if k not in _MOVING}
    if isinstance(node, list):
        return [comparable(one, namespace) for one in node]
    if isinstance(node, str):
        text = _VERSION.sub("in record (N)", _UID.sub("UID", node.replace(namespace, "NS")))
        # A real server adds the difference of two pods in Go's own words.
        return "DATE" if _DATE.match(text) else text.partition("\n")[0]
    return node
