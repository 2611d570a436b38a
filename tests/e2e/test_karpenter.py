"""The reference on the plane: what it must do there before a comparison with it means anything."""

from pathlib import Path
from typing import Any

import pytest

from tests.plane.karpenter import NODECLAIMS, NODEPOOLS, InstanceType, Karpenter, Offering, nodepool, write_instance_types
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, *, replicas: int) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1500Mi"}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "pretend", "resources": {"requests": requests}}]},
            },
        },
    }


def test_karpenter_buys_the_machines_it_was_given_and_the_plane_brings_them_up(fresh_plane: Plane, tmp_path: Path) -> None:
    plane = fresh_plane
    small = InstanceType("small", "amd64", {"cpu": "4", "memory": "16Gi", "pods": "58"}, [Offering("spot", "zone-a", 0.1)])
    types = write_instance_types(tmp_path / "types.json", [small])
    with Karpenter(plane, instance_types=types):
        plane.create(NODEPOOLS, nodepool("default"))
        plane.create(DEPLOYMENTS, deployment("web", replicas=10))
        eventually(lambda: plane.get(f"{DEPLOYMENTS}/web").get("status", {}).get("readyReplicas") == 10)
        nodes = plane.get("/api/v1/nodes")["items"]
        assert {node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in nodes} == {"small"}
        assert len(plane.get(NODECLAIMS)["items"]) == len(nodes) >= 3
