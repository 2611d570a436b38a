"""The reference on the plane: what it must do there before a comparison with it means anything."""

from typing import Any

import pytest

from tests.plane.karpenter import NODECLAIMS, NODEPOOLS, Karpenter, nodepool
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


def test_karpenter_buys_nodes_that_the_plane_brings_up(fresh_plane: Plane) -> None:
    plane = fresh_plane
    with Karpenter(plane):
        plane.create(NODEPOOLS, nodepool("default"))
        plane.create(DEPLOYMENTS, deployment("web", replicas=10))
        eventually(lambda: plane.get(f"{DEPLOYMENTS}/web").get("status", {}).get("readyReplicas") == 10)
        assert plane.get(NODECLAIMS)["items"]
        assert plane.get("/api/v1/nodes")["items"]
