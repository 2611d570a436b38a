"""The alpha features on a real control plane, with the rights of the chart alone: overlays, a static pool, room kept ready."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plane.kubewright import NODECLAIMS, NODECLASSES, NODEPOOLS, Kubewright, nodeclass, nodepool
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

NODES = "/api/v1/nodes"
OVERLAYS = "/apis/karpenter.sh/v1alpha1/nodeoverlays"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
GATES = "--feature-gates=NodeOverlay=true,StaticCapacity=true,CapacityBuffer=true"
TYPE = "node.kubernetes.io/instance-type"
CONTAINER = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """A plane for this module alone: operators are told of everything in it."""
    with Plane() as running:
        yield running


@pytest.fixture(scope="module")
def operator(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubewright]:
    state: Path = tmp_path_factory.mktemp("ec2") / "ec2.json"
    with Kubewright(plane, state=state, flags=(GATES,)) as running:
        plane.create(NODECLASSES, nodeclass("default"))
        yield running
        for path in (DEPLOYMENTS, BUFFERS, TEMPLATES, OVERLAYS, NODEPOOLS, NODECLASSES):
            plane.delete(path)
        eventually(lambda: not plane.get(NODES)["items"] and not plane.get(NODECLAIMS)["items"])


def pool_of(name: str, *types: str, **spec: Any) -> dict[str, Any]:
    pool = nodepool(name)
    template = pool["spec"]["template"]["spec"]
    template["requirements"] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": TYPE, "operator": "In", "values": list(types)},
    ]
    pool["spec"] |= spec
    return pool


def condition(thing: Any, kind: str) -> tuple[str, str]:
    found = next((c for c in thing.get("status", {}).get("conditions", ()) if c["type"] == kind), {"status": "", "reason": ""})
    return found["status"], found["reason"]


def ready(plane: Plane, pool: str) -> list[str]:
    """Instance types of the pool's claims that are initialized and not going."""
    return sorted(
        c["metadata"]["labels"][TYPE]
        for c in plane.get(NODECLAIMS)["items"]
        if c["metadata"]["labels"]["karpenter.sh/nodepool"] == pool
        and condition(c, "Initialized")[0] == "True"
        and "deletionTimestamp" not in c["metadata"]
    )


def test_a_static_pool_is_filled_and_shrunk_by_its_scale_subresource(plane: Plane, operator: Kubewright) -> None:
    plane.create(NODEPOOLS, pool_of("fixed", "m5.large", replicas=2, limits={"nodes": "3"}))
    eventually(lambda: ready(plane, "fixed") == ["m5.large"] * 2)
    plane.kubectl("scale", "nodepool/fixed", "--replicas=3")
    eventually(lambda: ready(plane, "fixed") == ["m5.large"] * 3)
    eventually(lambda: plane.get(f"{NODEPOOLS}/fixed")["status"]["nodes"] == 3)
    plane.kubectl("scale", "nodepool/fixed", "--replicas=0")
    eventually(lambda: ready(plane, "fixed") == [])


def test_an_overlay_turns_a_purchase_and_the_loser_of_a_clash_says_so(plane: Plane, operator: Kubewright) -> None:
    def overlay(name: str, price: str) -> dict[str, Any]:
        wanted = [{"key": TYPE, "operator": "In", "values": ["m5.xlarge"]}]
        kind = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay"}
        return kind | {"metadata": {"name": name}, "spec": {"requirements": wanted, "price": price}}

    plane.create(NODEPOOLS, pool_of("overlaid", "m5.xlarge", "m5.2xlarge"))
    plane.create(OVERLAYS, overlay("a", "0.0001"))
    plane.create(OVERLAYS, overlay("b", "9"))
    eventually(lambda: condition(plane.get(f"{OVERLAYS}/b"), "Ready")[0] == "True")
    eventually(lambda: condition(plane.get(f"{OVERLAYS}/a"), "ValidationSucceeded") == ("False", "Conflict"))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    plane.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    eventually(lambda: ready(plane, "overlaid") == ["m5.2xlarge"])
    (claim,) = [c for c in plane.get(NODECLAIMS)["items"] if c["metadata"]["labels"]["karpenter.sh/nodepool"] == "overlaid"]
    assert claim["metadata"]["annotations"]["karpenter.sh/price-overlay-applied"] == "true"
    plane.delete(f"{OVERLAYS}/b")
    eventually(lambda: condition(plane.get(f"{OVERLAYS}/a"), "Ready")[0] == "True")
    plane.delete(f"{DEPLOYMENTS}/web")
    plane.delete(f"{NODEPOOLS}/overlaid")


def test_room_is_bought_for_a_buffer_and_goes_with_it(plane: Plane, operator: Kubewright) -> None:
    plane.create(NODEPOOLS, pool_of("roomy", "m5.xlarge"))
    shape = {"metadata": {"labels": {"app": "room"}}, "spec": {"containers": [CONTAINER]}}
    plane.create(TEMPLATES, {"metadata": {"name": "shape"}, "template": shape})
    kind = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}
    spec = {"podTemplateRef": {"name": "shape"}, "replicas": 3}
    plane.create(BUFFERS, kind | {"metadata": {"name": "room"}, "spec": spec})
    eventually(lambda: ready(plane, "roomy") == ["m5.xlarge"])
    eventually(lambda: condition(plane.get(f"{BUFFERS}/room"), "Provisioning") == ("True", "FitsExistingCapacity"))
    assert plane.get(f"{BUFFERS}/room")["status"]["replicas"] == 3
    plane.delete(f"{BUFFERS}/room")
    eventually(lambda: ready(plane, "roomy") == [])
