"""What a refused pod's event says is what the reference says, to the letter."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.adapter import answer
from tests.conformance.judge import Oracle
from tests.plane.binaries import ensure

pytestmark = pytest.mark.needs_go

ARCH = "kubernetes.io/arch"
REQUESTS: tuple[dict[str, str], ...] = (
    {"cpu": "100", "memory": "100M"},
    {"cpu": "2000000", "memory": "1.5Gi", "hugepages-2Mi": "4Mi"},
    {"cpu": "1500m", "memory": "1000Gi", "ephemeral-storage": "1G"},
    {"cpu": "1", "example.com/gpu": "3"},
    {"cpu": "0", "memory": "300Gi"},
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    running = Oracle(ensure("oracle"))
    yield running
    running.close()


def instance_type(index: int, arch: str, *, available: bool = True) -> dict[str, Any]:
    def one(key: str, *values: str) -> dict[str, Any]:
        return {"key": key, "operator": "In", "values": list(values)}

    zone, market = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
    return {
        "name": f"type-{index}",
        "requirements": [
            one("node.kubernetes.io/instance-type", f"type-{index}"),
            one(ARCH, arch),
            one("kubernetes.io/os", "linux"),
            one(zone, "zone-a", "zone-b"),
            one(market, "on-demand"),
        ],
        "capacity": {"cpu": str(4 + index), "memory": "16Gi", "pods": "40"},
        "overhead": {"cpu": "100m"},
        "offerings": [
            {"price": 1.0 + index, "available": available, "requirements": [one(zone, "zone-a"), one(market, "on-demand")]}
        ],
    }


def daemon(name: str, cpu: str, memory: str, arch: str = "") -> dict[str, Any]:
    container = {"name": "d", "image": "d", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    pod = {"containers": [container], "nodeSelector": {ARCH: arch} if arch else {}}
    template = {"metadata": {"labels": {"d": name}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"d": name}}, "template": template},
    }


def problem(requests: dict[str, str], daemons: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "objects": [
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "general"},
                "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": reference}}},
            },
            *daemons,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": "default", "uid": "u"},
                "spec": {"containers": [{"name": "m", "image": "x", "resources": {"requests": requests}}], **spec},
                "status": {"phase": "Pending", "conditions": [condition]},
            },
        ],
        "instanceTypes": [
            instance_type(0, "amd64"),
            instance_type(1, "arm64"),
            instance_type(2, "amd64"),
            instance_type(60, "amd64", available=False),
        ],
    }


@pytest.mark.parametrize("requests", REQUESTS, ids=lambda r: ",".join(f"{k}={v}" for k, v in r.items()))
@pytest.mark.parametrize(
    "daemons",
    [
        [],
        [daemon("every", "200m", "128Mi")],
        [daemon("one", "200m", "128Mi", arch="amd64")],
        [daemon("one", "200m", "128Mi", arch="amd64"), daemon("other", "300m", "64Mi", arch="arm64")],
        [daemon("one", "200m", "128Mi", arch="amd64"), daemon("other", "200m", "128Mi", arch="arm64")],
    ],
    ids=["no daemons", "on all", "on some", "different", "alike"],
)
def test_what_is_too_large_for_every_type(oracle: Oracle, requests: dict[str, str], daemons: list[dict[str, Any]]) -> None:
    asked = problem(requests, daemons)
    said = oracle.answer(asked)["errors"]
    assert said
    assert answer(asked)["errors"] == said


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {ARCH: "s390x"}},
        {"nodeSelector": {"team": "a"}},
        {"nodeSelector": {"topology.kubernetes.io/zone": "zone-b"}},
        {"nodeSelector": {"topology.kubernetes.io/zone": "zone-b", ARCH: "arm64"}},
        {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}},
        {"nodeSelector": {"node.kubernetes.io/instance-type": "type-60"}},
        {"nodeSelector": {"karpenter.sh/nodepool": "other"}},
    ],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s["nodeSelector"].items()),
)
@pytest.mark.parametrize("cpu", ["1", "100"])
def test_what_no_type_suits(oracle: Oracle, spec: dict[str, Any], cpu: str) -> None:
    asked = problem({"cpu": cpu}, [], **spec)
    said = oracle.answer(asked)["errors"]
    assert said
    assert answer(asked)["errors"] == said
