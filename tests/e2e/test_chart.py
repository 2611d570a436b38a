"""The charts as helm sees them, and as a real API server takes them: rendered, linted, installed, adopted, removed."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.api import crds as definitions
from kubewright.install import manifests
from kubewright.operator import options
from tests.plane import crds
from tests.plane.kubewright import NODEPOOLS, nodepool
from tests.plane.plane import Plane
from tests.plane.waiting import eventually
from tools import charts

pytestmark = pytest.mark.needs_go

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
READ, WRITE = {"get", "list", "watch"}, {"update", "patch"}
# What the reference's roles allow. Source: spec/aws 14.
REFERENCE: dict[tuple[str, str], set[str]] = {
    ("karpenter.sh", "nodepools"): READ | WRITE,
    ("karpenter.sh", "nodepools/status"): READ | WRITE,
    ("karpenter.sh", "nodeclaims"): READ | WRITE | {"create", "delete"},
    ("karpenter.sh", "nodeclaims/status"): READ | WRITE | {"create", "delete"},
    ("karpenter.sh", "nodeoverlays"): READ,
    ("karpenter.sh", "nodeoverlays/status"): READ | WRITE,
    ("autoscaling.x-k8s.io", "capacitybuffers"): READ,
    ("autoscaling.x-k8s.io", "capacitybuffers/status"): READ | WRITE,
    **{
        ("", name): READ
        for name in ("podtemplates", "persistentvolumes", "persistentvolumeclaims", "replicationcontrollers", "namespaces")
    },
    ("", "pods"): READ | {"delete"},
    ("", "pods/eviction"): {"create"},
    ("", "nodes"): READ | WRITE | {"delete"},
    ("", "events"): READ | {"create", "patch"},
    **{("storage.k8s.io", name): READ for name in ("storageclasses", "csinodes", "volumeattachments")},
    **{("apps", name): READ for name in ("daemonsets", "deployments", "replicasets", "statefulsets")},
    ("policy", "poddisruptionbudgets"): READ,
    ("karpenter.k8s.aws", "ec2nodeclasses"): READ | WRITE,
    ("karpenter.k8s.aws", "ec2nodeclasses/status"): READ | WRITE,
}


def deployment(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return next(o for o in objects if o["kind"] == "Deployment")


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(objects)["spec"]["template"]["spec"]
    return spec


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in pod(objects)["containers"][0]["env"] if "value" in e}


@pytest.mark.parametrize("chart", ["kubewright", "kubewright-crd"])
def test_helm_finds_nothing_to_complain_about(chart: str) -> None:
    assert "0 chart(s) failed" in charts.helm("lint", str(charts.CHARTS / chart), "--strict", "--set=settings.clusterName=c")


def test_what_is_made_from_the_charts_is_up_to_date() -> None:
    """`python -m tools.charts` writes them."""
    made = {file.name: file.read_text(encoding="utf-8") for file in charts.DEFINITIONS.glob("*.yaml")}
    assert made == dict(charts.definitions())
    for cloud in manifests.CLOUDS:
        assert (charts.RENDERED / f"{cloud}.yaml").read_text(encoding="utf-8") == charts.rendered(cloud)


def test_the_definitions_chart_has_our_definitions_and_they_are_kept() -> None:
    found = {o["metadata"]["name"]: o for o in charts.template("kubewright-crd", "--set=additionalAnnotations.a=b")}
    assert found.keys() == definitions.CRDS.keys()
    for name, one in found.items():
        assert one["spec"] == definitions.CRDS[name]["spec"]
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert one["metadata"]["annotations"]["a"] == "b"


def test_the_rights_are_no_wider_than_the_references() -> None:
    objects = charts.template("kubewright", "--set=settings.clusterName=c")
    granted: dict[tuple[str, str], set[str]] = {}
    for role in objects:
        if role["kind"] == "ClusterRole" and not role["metadata"]["name"].endswith("-admin"):
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        granted.setdefault((group, resource), set()).update(rule["verbs"])
    wider = {key: verbs - REFERENCE.get(key, set()) for key, verbs in granted.items() if verbs - REFERENCE.get(key, set())}
    assert not wider
    roles = {role["metadata"]["name"]: role for role in objects if role["kind"] == "Role"}
    lease = roles["kubewright"]
    assert {r for rule in lease["rules"] for r in rule["resources"]} == {"leases"}
    for rule in lease["rules"]:
        assert set(rule["verbs"]) <= {"get", "watch", "create"} or rule["resourceNames"] == ["karpenter-leader-election"]
    assert roles["kubewright-dns"]["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "resourceNames": ["kube-dns"], "verbs": ["get"]}
    ]
    bound = {(o["roleRef"]["kind"], o["roleRef"]["name"]) for o in objects if o["kind"].endswith("Binding")}
    assert bound == {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"] in ("ClusterRole", "Role")} - {
        ("ClusterRole", "kubewright-admin")
    }


def test_values_arrive_as_the_operator_reads_them_falsy_ones_too() -> None:
    objects = charts.template(
        "kubewright",
        "--set=settings.clusterName=c,settings.vmMemoryOverheadPercent=0,settings.batchIdleDuration=2s,settings.packing=improve",
        "--set=settings.featureGates.nodeOverlay=true,settings.featureGates.reservedCapacity=false,settings.takeOver=true",
        "--set=settings.ignoreDRARequests=false,leaderElection.namespace=karpenter,logLevel=debug,controller.metrics.port=9000",
        "--set=settings.disableClusterStateObservability=true",
    )
    found = options.parse([], environment(objects))
    assert found.settings.vm_memory_overhead_percent == 0
    assert found.settings.batch_idle_duration.total_seconds() == 2
    assert found.settings.feature_gates.node_overlay
    assert not found.settings.feature_gates.reserved_capacity
    assert not found.settings.ignore_dra_requests
    assert (found.take_over, found.observability, found.log_level, found.metrics_port) == (True, False, "debug", 9000)
    lease = next(o for o in objects if o["kind"] == "Role" and o["metadata"]["name"] == "kubewright")
    assert lease["metadata"]["namespace"] == found.leader_election_namespace == "karpenter"


def test_pods_are_restricted_spread_and_probed() -> None:
    objects = charts.template("kubewright", "--set=settings.clusterName=c,serviceMonitor.enabled=true")
    spec = pod(objects)
    container = spec["containers"][0]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["runAsUser"] == 65532
    assert deployment(objects)["spec"]["replicas"] == 2
    labels = deployment(objects)["spec"]["template"]["metadata"]["labels"]
    for selecting in (
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0],
        *spec["topologySpreadConstraints"],
    ):
        assert selecting["labelSelector"]["matchLabels"].items() <= labels.items()
    budget = next(o for o in objects if o["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {container[p]["httpGet"]["path"] for p in ("livenessProbe", "readinessProbe")} == {"/healthz", "/readyz"}
    monitor = next(o for o in objects if o["kind"] == "ServiceMonitor")
    service = next(o for o in objects if o["kind"] == "Service")
    assert monitor["spec"]["endpoints"][0]["port"] in {p["name"] for p in service["spec"]["ports"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with Plane() as running:
        yield running


def helm_on(plane: Plane, *arguments: str) -> str:
    return charts.helm(*arguments, f"--kubeconfig={plane.kubeconfig()}")


def test_definitions_of_karpenter_are_adopted_and_outlive_the_release_with_what_they_define(plane: Plane) -> None:
    plane.apply(*crds.core(), *crds.aws())
    plane.create(NODEPOOLS, nodepool("precious"))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm_on(plane, "install", "kubewright-crd", str(charts.CHARTS / "kubewright-crd"), "--namespace=kube-system")
    assert "invalid ownership metadata" in refused.value.stderr
    helm_on(
        plane, "install", "kubewright-crd", str(charts.CHARTS / "kubewright-crd"), "--namespace=kube-system", "--take-ownership"
    )
    adopted = {o["metadata"]["name"]: o for o in plane.get(DEFINITIONS)["items"]}
    for name in definitions.CRDS:
        assert adopted[name]["metadata"]["annotations"]["meta.helm.sh/release-name"] == "kubewright-crd"
    helm_on(plane, "uninstall", "kubewright-crd", "--namespace=kube-system")
    assert {o["metadata"]["name"] for o in plane.get(DEFINITIONS)["items"]} >= definitions.CRDS.keys()
    assert plane.get(f"{NODEPOOLS}/precious")["metadata"]["name"] == "precious"


def test_the_chart_installs_where_pod_security_is_restricted_and_its_pods_are_accepted(plane: Plane, tmp_path: Path) -> None:
    plane.create(
        "/api/v1/namespaces",
        {"metadata": {"name": "karpenter", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    values = tmp_path / "values.json"
    # This priority class may only be used in kube-system, where a quota allows it.
    values.write_text(json.dumps({"settings": {"clusterName": "c"}, "priorityClassName": ""}), encoding="utf-8")
    helm_on(plane, "install", "kubewright", str(charts.CHARTS / "kubewright"), "--namespace=karpenter", f"--values={values}")
    deployments = "/apis/apps/v1/namespaces/karpenter/deployments"
    # Accepted and made, though no node is there to run them.
    eventually(lambda: len(plane.get("/api/v1/namespaces/karpenter/pods")["items"]) == 2)
    conditions = plane.get(f"{deployments}/kubewright")["status"]["conditions"]
    assert not [c for c in conditions if c["type"] == "ReplicaFailure"]
    helm_on(plane, "uninstall", "kubewright", "--namespace=karpenter")
    eventually(
        lambda: (
            not plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=app.kubernetes.io/name=kubewright")[
                "items"
            ]
        )
    )
