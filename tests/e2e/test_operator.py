"""The whole operator on a real control plane: what it buys comes up, what is empty goes, and nothing of it stays."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubewright.api import labels, quantity
from tests.plane import crds
from tests.plane.kubewright import NODECLAIMS, NODECLASSES, NODEPOOLS, Kubewright, nodeclass, nodepool
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
SMALL = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["9"]}


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """A plane for this module alone: operators are told of everything in it."""
    with Plane() as running:
        yield running


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ec2.json"


@pytest.fixture
def operator(plane: Plane, state: Path) -> Iterator[Kubewright]:
    """A running operator whose fake EC2 outlives it, with a NodePool of small machines; afterwards all of it is gone."""
    with Kubewright(plane, state=state) as running:
        plane.create(NODECLASSES, nodeclass("default"))
        plane.create(NODEPOOLS, small_pool())
        yield running
        if not running.process.running:
            running.restart()
        for path in (DEPLOYMENTS, BUDGETS, NODEPOOLS, NODECLASSES):
            plane.delete(path)
        eventually(lambda: what_is_left(plane) == {})


def small_pool() -> dict[str, Any]:
    pool = nodepool("default")
    pool["spec"]["template"]["spec"]["requirements"].append(SMALL)
    return pool


def deploy(plane: Plane, *, replicas: int, cpu: str = "1") -> None:
    container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": cpu, "memory": "1500Mi"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    plane.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})


def scale(plane: Plane, replicas: int) -> None:
    plane.kubectl("scale", "deployment/web", f"--replicas={replicas}")


def ready(plane: Plane) -> int:
    return plane.get(f"{DEPLOYMENTS}/web").get("status", {}).get("readyReplicas", 0)


def items(plane: Plane, path: str) -> list[Any]:
    return list(plane.get(path)["items"])


def is_set(thing: Any, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in thing.get("status", {}).get("conditions", ()))


def machines(state: Path) -> Mapping[str, str]:
    """Instance id → state, as the fake EC2 has it."""
    kept = json.loads(state.read_text(encoding="utf-8"))["machines"] if state.exists() else {}
    return {name: one["seen"]["State"]["Name"] for name, one in kept.items()}


def end_machines(state: Path) -> None:
    """All machines end, as after a mass interruption while no operator looked."""
    kept = json.loads(state.read_text(encoding="utf-8"))
    for one in kept["machines"].values():
        one["seen"]["State"]["Name"] = "terminated"
        one["ended"] = one["billed_until"] = one["asked"]
    state.write_text(json.dumps(kept), encoding="utf-8")


def living(state: Path) -> int:
    return sum(1 for one in machines(state).values() if one in ("pending", "running"))


def what_is_left(plane: Plane) -> dict[str, list[str]]:
    """Names of what an operator makes or holds and that is still there."""
    paths = (NODES, NODECLAIMS, NODEPOOLS, NODECLASSES, NODE_LEASES, CSI_NODES)
    found = {path.rpartition("/")[2]: [one["metadata"]["name"] for one in items(plane, path)] for path in paths}
    return {kind: names for kind, names in found.items() if names}


def evictions(plane: Plane, code: str) -> int:
    """How many evictions the API server has answered so, since it started."""
    lines = plane.request("GET", "/metrics").body.splitlines()
    wanted = ('resource="pods"', 'subresource="eviction"', f'code="{code}"')
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("apiserver_request_total{") and all(part in line for part in wanted)
    )


def test_pods_get_nodes_and_empty_nodes_go_without_a_trace(plane: Plane, operator: Kubewright, state: Path) -> None:
    deploy(plane, replicas=30)
    eventually(lambda: ready(plane) == 30)
    claims = eventually(lambda: all(is_set(one, "Initialized") for one in items(plane, NODECLAIMS)) and items(plane, NODECLAIMS))
    nodes = {node["metadata"]["name"]: node for node in items(plane, NODES)}
    assert len(nodes) == len(claims) == living(state) > 1
    for claim in claims:
        node = nodes[claim["status"]["nodeName"]]
        # What was promised is there, or pods would not fit where they were planned; the machine is sized apart from the promise.
        there = node["status"]["allocatable"]
        for resource, promised in claim["status"]["allocatable"].items():
            assert quantity.parse(there[resource]) >= quantity.parse(promised), resource
        assert claim["metadata"]["labels"].items() <= node["metadata"]["labels"].items()
        # A soft taint of ours may already say that the node is next to go; those of its start are gone.
        assert {taint["key"] for taint in node["spec"].get("taints", ())} <= {labels.SOON_TAINT.key}

    scale(plane, 0)
    eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES))
    assert living(state) == 0
    eventually(lambda: what_is_left(plane).keys() <= {"nodepools", "ec2nodeclasses"})
    plane.delete(f"{NODEPOOLS}/default")
    plane.delete(f"{NODECLASSES}/default")
    eventually(lambda: what_is_left(plane) == {})


def test_it_works_with_karpenters_own_definitions(plane: Plane, operator: Kubewright) -> None:
    plane.apply(*crds.core(), *crds.aws())
    deploy(plane, replicas=3)
    eventually(lambda: ready(plane) == 3)
    scale(plane, 0)
    eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES))


def test_a_drain_asks_for_evictions_and_keeps_to_the_disruption_budget(plane: Plane, operator: Kubewright, state: Path) -> None:
    deploy(plane, replicas=2)
    eventually(lambda: ready(plane) == 2)
    plane.create(BUDGETS, {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}})
    eventually(lambda: plane.get(f"{BUDGETS}/web").get("status", {}).get("currentHealthy") == 2)
    old = {node["metadata"]["name"] for node in items(plane, NODES)}
    refused, granted = evictions(plane, "429"), evictions(plane, "201")

    plane.kubectl("delete", "nodeclaims", "--all", "--wait=false")
    eventually(lambda: evictions(plane, "429") > refused)
    taints = [taint["key"] for name in old for taint in plane.get(f"{NODES}/{name}")["spec"].get("taints", ())]
    assert "karpenter.sh/disrupted" in taints
    assert evictions(plane, "201") == granted
    assert ready(plane) == 2

    scale(plane, 3)  # one more than the budget wants: pods may leave one after the other
    counts: list[int] = []

    def moved() -> bool:
        counts.append(ready(plane))
        return not old & {node["metadata"]["name"] for node in items(plane, NODES)}

    eventually(moved)
    assert evictions(plane, "201") > granted
    assert min(counts) >= 2
    eventually(lambda: ready(plane) == 3)
    assert living(state) == len(items(plane, NODES))


def test_an_operator_killed_in_the_middle_finishes_after_a_restart(plane: Plane, operator: Kubewright, state: Path) -> None:
    deploy(plane, replicas=40)
    eventually(lambda: items(plane, NODECLAIMS))
    operator.process.kill()
    assert ready(plane) < 40, "it was killed too late to prove anything"
    operator.restart()
    eventually(lambda: ready(plane) == 40)
    eventually(lambda: all(is_set(one, "Initialized") for one in items(plane, NODECLAIMS)))
    # Nothing was bought twice, or bought and forgotten.
    assert living(state) == len(items(plane, NODES)) == len(items(plane, NODECLAIMS))

    scale(plane, 0)
    eventually(lambda: any("deletionTimestamp" in one["metadata"] for one in (*items(plane, NODECLAIMS), *items(plane, NODES))))
    operator.process.kill()
    assert items(plane, NODECLAIMS), "it was killed too late to prove anything"
    operator.restart()
    eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES))
    assert living(state) == 0


def test_a_machine_that_vanishes_is_noticed_and_its_pods_get_another(plane: Plane, operator: Kubewright, state: Path) -> None:
    deploy(plane, replicas=2)
    eventually(lambda: ready(plane) == 2)
    old = {node["metadata"]["name"] for node in items(plane, NODES)}
    operator.process.kill()
    end_machines(state)
    operator.restart()
    eventually(lambda: ready(plane) == 2 and not old & {node["metadata"]["name"] for node in items(plane, NODES)})
    assert living(state) == len(items(plane, NODES))


def test_sigterm_ends_it_in_good_order_and_gives_the_lease_back(plane: Plane) -> None:
    flags = ("--disable-leader-election=false", "--leader-election-namespace=kube-system")
    with Kubewright(plane, flags=flags) as operator:
        eventually(lambda: plane.request("GET", LEASE).status == 200 and plane.get(LEASE)["spec"].get("holderIdentity"))
        operator.process.terminate()
        assert operator.process.wait(timeout_s=30) == 0
    assert not plane.get(LEASE)["spec"].get("holderIdentity")
    plane.delete(LEASE)
