"""The plane itself: that its parts play together as a cluster does, and that nothing of it stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.plane import crds
from tests.plane.binaries import ROOT
from tests.plane.plane import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, Plane
from tests.plane.waiting import eventually
from tests.plane.wire import RequestRefused

pytestmark = pytest.mark.needs_go

CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "20Gi"}
ALLOCATABLE = {"cpu": "3920m", "memory": "15Gi", "pods": "58", "ephemeral-storage": "18Gi"}

NOBODY = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: nobody}\n"

HOLDER = """
import sys, time
from tests.plane.plane import Plane
with Plane(kwok=False) as plane:
    print(plane.directory, *(plane.process(name).pid for name in plane.names), flush=True)
    {then}
"""


def make_node(plane: Plane, name: str, *, annotations: Mapping[str, str]) -> None:
    plane.create(
        "/api/v1/nodes",
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations},
            "spec": {"providerID": f"kwok://{name}"},
            "status": {"capacity": CAPACITY, "allocatable": ALLOCATABLE},
        },
    )


def make_pod(plane: Plane, namespace: str, name: str, *, on: str, **metadata: Any) -> str:
    """Create a pod that only the node `on` may run; its path."""
    plane.create(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"name": name, "labels": {"app": "web"}, **metadata},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": on},
                "containers": [{"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "100m"}}}],
            },
        },
    )
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def condition(plane: Plane, path: str, kind: str) -> str:
    conditions = plane.get(path)["status"].get("conditions", ())
    return next((one["status"] for one in conditions if one["type"] == kind), "")


def is_ready(plane: Plane, path: str) -> bool:
    return condition(plane, path, "Ready") == "True"


def is_gone(plane: Plane, path: str) -> bool:
    return plane.request("GET", path).status == 404


@pytest.fixture(scope="module")
def node(plane: Plane) -> Iterator[str]:
    """A pretend node that is Ready."""
    name = "pretend"
    make_node(plane, name, annotations={NODE_ANNOTATION: NODE_ANNOTATION_VALUE})
    eventually(lambda: is_ready(plane, f"/api/v1/nodes/{name}"))
    yield name
    plane.delete(f"/api/v1/nodes/{name}")


def test_a_pretend_node_becomes_ready_and_keeps_the_size_its_maker_gave_it(plane: Plane, node: str) -> None:
    seen = plane.get(f"/api/v1/nodes/{node}")
    assert seen["status"]["capacity"] == CAPACITY
    assert seen["status"]["allocatable"] == ALLOCATABLE
    assert seen["spec"]["providerID"] == f"kwok://{node}"
    eventually(lambda: "taints" not in plane.get(f"/api/v1/nodes/{node}")["spec"])


def test_a_node_without_the_annotation_stays_as_its_maker_wrote_it(plane: Plane, node: str) -> None:
    other = f"bare-{node}"
    make_node(plane, other, annotations={})
    # The neighbour was taken up long ago when this second node, made after the bare one, is Ready.
    make_node(plane, f"after-{node}", annotations={NODE_ANNOTATION: NODE_ANNOTATION_VALUE})
    eventually(lambda: is_ready(plane, f"/api/v1/nodes/after-{node}"))
    assert not is_ready(plane, f"/api/v1/nodes/{other}")
    plane.delete(f"/api/v1/nodes/{other}")
    plane.delete(f"/api/v1/nodes/after-{node}")


def test_a_pod_is_bound_by_the_real_scheduler_and_becomes_ready(plane: Plane, namespace: str, node: str) -> None:
    pod = make_pod(plane, namespace, "web", on=node)
    eventually(lambda: is_ready(plane, pod))
    seen = plane.get(pod)
    assert seen["spec"]["nodeName"] == node
    assert seen["status"]["phase"] == "Running"
    assert [one["ready"] for one in seen["status"]["containerStatuses"]] == [True]


def test_every_pod_has_an_address_of_its_own(plane: Plane, namespace: str, node: str) -> None:
    pods = [make_pod(plane, namespace, name, on=node) for name in ("one", "two", "three")]
    eventually(lambda: all(is_ready(plane, pod) for pod in pods))
    assert len({plane.get(pod)["status"]["podIP"] for pod in pods}) == 3


def test_a_deleted_pod_waits_for_its_finalizer(plane: Plane, namespace: str, node: str) -> None:
    pod = make_pod(plane, namespace, "held", on=node, finalizers=["example.com/held"])
    free = make_pod(plane, namespace, "free", on=node)
    eventually(lambda: is_ready(plane, pod) and is_ready(plane, free))
    plane.delete(pod)
    plane.delete(free)
    eventually(lambda: is_gone(plane, free))
    assert plane.get(pod)["metadata"]["finalizers"] == ["example.com/held"]
    plane.request("PATCH", pod, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json").body_or_raise()
    eventually(lambda: is_gone(plane, pod))


def test_the_pods_of_a_job_complete(plane: Plane, namespace: str, node: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    container = {"name": "c", "image": "pretend"}
    template = {
        "metadata": {"annotations": {"kubewright.sh/sim-duration": "10ms"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }
    plane.create(jobs, {"metadata": {"name": "batch"}, "spec": {"completions": 3, "parallelism": 3, "template": template}})
    eventually(lambda: condition(plane, f"{jobs}/batch", "Complete") == "True")
    assert plane.get(f"{jobs}/batch")["status"]["succeeded"] == 3


def test_an_eviction_that_a_disruption_budget_forbids_is_refused_with_429(plane: Plane, namespace: str, node: str) -> None:
    pod = make_pod(plane, namespace, "web", on=node)
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    plane.create(budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
    eventually(lambda: plane.get(f"{budgets}/web").get("status", {}).get("currentHealthy") == 1)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": namespace}}

    refused = plane.request("POST", f"{pod}/eviction", eviction)
    assert refused.status == 429
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"

    plane.delete(f"{budgets}/web")
    assert plane.request("POST", f"{pod}/eviction", eviction).status == 201
    eventually(lambda: is_gone(plane, pod))


def test_karpenters_definitions_are_served(plane: Plane) -> None:
    plane.apply(*crds.core(), *crds.aws())
    served = {one["name"] for one in plane.get("/apis/karpenter.sh/v1")["resources"]}
    assert {"nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"} <= served
    assert plane.get("/apis/karpenter.k8s.aws/v1/ec2nodeclasses")["items"] == []


def test_a_service_account_may_do_what_its_roles_allow_and_no_more(plane: Plane, namespace: str) -> None:
    plane.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=NOBODY)
    kubeconfig = plane.service_account_kubeconfig(namespace, "nobody")
    answer = plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert answer == f"system:serviceaccount:{namespace}:nobody"
    with pytest.raises(RuntimeError, match="Forbidden"):
        plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "nodes")


def test_a_refusal_carries_the_servers_words(plane: Plane) -> None:
    with pytest.raises(RequestRefused, match='nodes "absent" not found'):
        plane.get("/api/v1/nodes/absent")


def test_a_pretend_node_keeps_a_lease_like_a_kubelet(plane: Plane, node: str) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    first = eventually(lambda: plane.request("GET", lease).status == 200 and plane.get(lease)["spec"]["renewTime"])
    assert plane.get(lease)["spec"]["leaseDurationSeconds"] == 40
    eventually(lambda: plane.get(lease)["spec"]["renewTime"] != first)


@pytest.mark.parametrize("victim", ["etcd", "kube-apiserver"])
def test_a_killed_program_comes_back_with_what_was_stored(fresh_plane: Plane, victim: str) -> None:
    make_node(fresh_plane, "n", annotations={NODE_ANNOTATION: NODE_ANNOTATION_VALUE})
    eventually(lambda: is_ready(fresh_plane, "/api/v1/nodes/n"))
    fresh_plane.kill(victim)
    assert not fresh_plane.process(victim).running
    fresh_plane.restart(victim)
    fresh_plane.wait_ready("kube-apiserver")
    # Stored before, and still looked after: the scheduler and kwok have found their way back.
    # kwok may find out only after a minute that its watch has ended with the server.
    pod = make_pod(fresh_plane, "default", "web", on="n")
    eventually(lambda: is_ready(fresh_plane, pod), within_s=180)


@pytest.mark.parametrize("then", ["pass", "raise SystemExit(3)", "sys.stdin.read()"], ids=["done", "failed", "killed"])
def test_nothing_stays_however_the_test_process_ends(then: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(then=then)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        directory, *pids = holder.stdout.readline().split()
        assert len(pids) == 4
        if then == "sys.stdin.read()":
            assert all(runs(int(pid)) for pid in pids)
            holder.send_signal(signal.SIGKILL)
    eventually(lambda: not any(runs(int(pid)) for pid in pids) and not Path(directory).exists())


def runs(pid: int) -> bool:
    """Whether a process of that number runs; one that ended but was not asked about by its new parent does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
