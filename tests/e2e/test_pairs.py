"""Two operators on a real control plane: one acts, the other takes over, and neither starts beside a Karpenter by accident."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_operator import LEASE, deploy, items, ready, scale
from tests.plane import karpenter
from tests.plane.kubewright import NODECLAIMS, NODEPOOLS, Kubewright
from tests.plane.plane import Plane
from tests.plane.processes import ProgramFailed
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

IN_PAIRS = ("--disable-leader-election=false", "--leader-election-namespace=kube-system")
NODES = "/api/v1/nodes"
KARPENTERS = "/apis/apps/v1/namespaces/kube-system/deployments"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with Plane() as running:
        yield running


def leads(one: Kubewright) -> bool:
    return one.process.running and 'leader_election_master_status{name="karpenter-leader-election"} 1.0' in one.page()


def karpenters_deployment(replicas: int) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "karpenter"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "controller", "image": "pretend"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "karpenter", "labels": labels}, "spec": spec}


def test_one_acts_and_the_other_takes_over_whether_the_first_ends_well_or_not(plane: Plane) -> None:
    with (
        Kubewright(plane, cloud="kwok", flags=IN_PAIRS, name="first") as first,
        Kubewright(plane, cloud="kwok", flags=IN_PAIRS, name="second") as second,
    ):
        plane.create(karpenter.NODECLASSES, karpenter.nodeclass("default"))
        plane.create(NODEPOOLS, karpenter.nodepool("default", consolidate_after="Never"))
        eventually(lambda: leads(first) or leads(second))
        deploy(plane, replicas=4)
        eventually(lambda: ready(plane) == 4)
        leader, standby = (first, second) if leads(first) else (second, first)
        assert not leads(standby)
        holder = plane.get(LEASE)["spec"]["holderIdentity"]

        scale(plane, 40)
        eventually(lambda: len(items(plane, NODECLAIMS)) > 1)
        leader.process.terminate()
        assert leader.process.wait(timeout_s=30) == 0
        # Handed on, not run out: the next holder did not have to wait for the lease's own time.
        eventually(lambda: plane.get(LEASE)["spec"].get("holderIdentity") not in (None, holder))
        eventually(lambda: ready(plane) == 40)
        assert leads(standby)

        leader.restart()
        scale(plane, 80)
        eventually(lambda: len(items(plane, NODECLAIMS)) > 2)
        standby.process.kill()
        eventually(lambda: leads(leader))
        eventually(lambda: ready(plane) == 80)
        assert len(items(plane, NODES)) == len(items(plane, NODECLAIMS))
        page = leader.page()
        for shown in (
            'karpenter_pods_state{name="web-',
            'karpenter_nodes_allocatable{resource_type="cpu",node_name="kwok-default-',
            'instance_family="c"',
            'karpenter_nodepools_cost_total{nodepool="default"} ',
            'operator_nodeclaim_status_condition_count{namespace="",name="default-',
            'karpenter_cloudprovider_duration_seconds_count{controller="nodeclaim.lifecycle",method="Create",provider="kwok"}',
            "karpenter_pods_scheduling_decision_duration_seconds_count ",
            'karpenter_cluster_utilization_percent{resource_type="cpu"} ',
            "karpenter_build_info{",
        ):
            assert shown in page, shown


def test_it_does_not_start_beside_a_karpenter_that_is_scaled_up(plane: Plane) -> None:
    plane.create(KARPENTERS, karpenters_deployment(1))
    with pytest.raises(ProgramFailed) as refused, Kubewright(plane, cloud="kwok"):
        pass
    for word in ("Karpenter is scaled up", "kube-system/karpenter", "kubectl -n kube-system scale", "--take-over", "--shadow"):
        assert word in str(refused.value)
    with Kubewright(plane, cloud="kwok", flags=("--take-over",)):
        pass
    plane.kubectl("-n=kube-system", "scale", "deployment/karpenter", "--replicas=0")
    with Kubewright(plane, cloud="kwok"):
        pass
    plane.delete(f"{KARPENTERS}/karpenter")


def test_it_does_not_start_where_auto_mode_manages_nodes(plane: Plane) -> None:
    plane.create(NODES, {"metadata": {"name": "auto-1", "labels": {"eks.amazonaws.com/compute-type": "auto"}}})
    with pytest.raises(ProgramFailed) as refused, Kubewright(plane, cloud="kwok"):
        pass
    for word in ("EKS Auto Mode", "auto-1", "--take-over"):
        assert word in str(refused.value)
    plane.delete(f"{NODES}/auto-1")
