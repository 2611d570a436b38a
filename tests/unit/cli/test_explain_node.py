"""`kubewright explain node` and `nodeclaim`: why a machine was chosen, why it stays; cases that users could not explain."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.lifecycle.bought import BOUGHT_FOR
from tests.unit.cli.shell import Shell
from tests.unit.cli.test_explain import CLUSTER

Item = dict[str, Any]
LONG_AGO = "2026-01-01T00:00:00Z"
EMPTY: Mapping[str, Any] = {}


def met(*types: str, status: str = "True") -> list[Item]:
    return [{"type": t, "status": status, "reason": t, "message": "", "lastTransitionTime": LONG_AGO} for t in types]


def machine(
    name: str,
    kind: str = "m5.2xlarge",
    capacity_type: str = "on-demand",
    *,
    ready: bool = True,
    conditions: Sequence[str] = (),
    annotations: Mapping[str, str] = EMPTY,
) -> list[Item]:
    """A Node that runs, and its NodeClaim."""
    labels = {
        "karpenter.sh/nodepool": "general",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "us-west-2a",
        "karpenter.sh/capacity-type": capacity_type,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    has = {"cpu": "8", "memory": "30Gi", "pods": "58"}
    requirements = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.2xlarge", "m6a.2xlarge", "m6i.2xlarge"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["general"]},
    ]
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "name": f"general-{name}",
                "uid": f"claim-{name}",
                "labels": labels,
                "annotations": dict(annotations),
                "creationTimestamp": LONG_AGO,
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements,
                "resources": {"requests": {"cpu": "5", "memory": "6Gi"}},
            },
            "status": {
                "providerID": f"aws:///us-west-2a/i-{name}",
                "nodeName": name,
                "capacity": has,
                "allocatable": has,
                "conditions": met("Launched", "Registered", "Initialized", *conditions),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"node-{name}",
                "labels": {**labels, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"},
                "creationTimestamp": LONG_AGO,
            },
            "spec": {"providerID": f"aws:///us-west-2a/i-{name}"},
            "status": {"capacity": has, "allocatable": has, "conditions": met("Ready", status="True" if ready else "False")},
        },
    ]


def pod(name: str, node: str, cpu: str = "1", **meta: Any) -> Item:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}, "ownerReferences": [owner], **meta},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists", "key": "dedicated"}],
            "containers": [{"name": "app", "image": "web", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Running", "startTime": LONG_AGO, "conditions": met("Ready")},
    }


def guard(name: str, app: str, **spec: Any) -> Item:
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
        "status": status,
    }


Save = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Save:
    def save(*objects: Item | list[Item], disruption: Item | None = None) -> Path:
        cluster = yaml.safe_load(CLUSTER)
        pool = next(o for o in cluster["items"] if o["kind"] == "NodePool")
        pool["metadata"]["uid"] = "pool"
        pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **(disruption or {})}
        for one in objects:
            cluster["items"] += one if isinstance(one, list) else [one]
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump(cluster))
        return file

    return save


def test_what_was_chosen_and_at_what_price(kubewright: Shell, saved: Save) -> None:
    note = json.dumps({"pods": ["shop/web"], "count": 3, "usdPerHour": 0.3456, "why": "provisioned"})
    file = saved(machine("n1", annotations={BOUGHT_FOR: note}), pod("web", "n1", cpu="5"))
    done = kubewright("explain", "node", "n1", "-f", file)
    assert done.code == 0, done.err
    for words in (
        "m5.2xlarge in us-west-2a, on-demand, $0.3840/h; NodeClaim general-n1",
        "Bought for 3 pods, planned at $0.3456/h: shop/web and 2 more.",
        "NodePool general, requirement topology.kubernetes.io/zone In [us-west-2a]: removes",
        "kubewright, the list of 3 types the cloud was asked for: removes",
        "Why this zone: NodePool general allows topology.kubernetes.io/zone In [us-west-2a].",
        "Why this capacity type: only on-demand was for sale.",
        "- m6a.2xlarge in us-west-2a, on-demand, $0.3456/h",
        "* m5.2xlarge in us-west-2a, on-demand, $0.3840/h",
        "Runner-up: m6a.2xlarge in us-west-2a, on-demand, $0.3456/h.",
        "The cloud took a dearer one than 1 that can be bought now",
    ):
        assert words in done.out
    told = json.loads(kubewright("explain", "nodeclaim", "general-n1", "-f", file, "-o", "json").out)
    assert (told["choice"]["rank"], told["choice"]["forSale"], told["choice"]["boughtFor"]["count"]) == (2, 3, 3)


def test_spot_is_not_always_the_cheapest_and_that_is_said(kubewright: Shell, saved: Save) -> None:
    told = [
        kubewright("explain", "node", "n1", "-f", saved(machine("n1", kind, "spot"), pod("web", "n1"))).out
        for kind in ("m5.2xlarge", "m6a.2xlarge")
    ]
    for text in told:
        assert ("least likely to be called back" in text) == ("The cloud took a dearer one" in text)
    assert any("least likely to be called back" in text for text in told)


def test_a_claim_without_a_machine(kubewright: Shell, saved: Save) -> None:
    claim, _ = machine("n1")
    claim["status"] = {"conditions": [{**met("Launched", status="Unknown")[0], "reason": "LaunchFailed", "message": "no room"}]}
    for key in ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"):
        del claim["metadata"]["labels"][key]
    done = kubewright("explain", "nodeclaim", "general-n1", "-f", saved([claim]))
    assert done.code == 0, done.err
    assert "it has no machine yet" in done.out
    assert "The cloud has not answered yet (LaunchFailed: no room)." in done.out


def test_c76_a_device_that_nobody_registers(kubewright: Shell, saved: Save) -> None:
    claim, node = machine("n1", "g4dn.2xlarge")
    claim["spec"]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    del node["metadata"]["labels"]["karpenter.sh/initialized"]
    waits = {"reason": "ResourceNotRegistered", "message": 'Resource "nvidia.com/gpu" was requested but not registered'}
    claim["status"]["conditions"][-1] |= {"status": "Unknown", **waits}
    daemon = pod("aws-node", "n1")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    done = kubewright("explain", "node", "n1", "-f", saved([claim, node], daemon))
    assert "it has joined and is not initialized yet" in done.out
    assert 'Initialized is not true yet (ResourceNotRegistered: Resource "nvidia.com/gpu" was requested' in done.out
    assert "nvidia.com/gpu: wants 1, has 0" in done.out
    assert "the DaemonSets' pods on the node are: shop/aws-node" in done.out
    assert "Node isn't initialized" in done.out, "and it is not treated as empty"


def test_a_node_that_nobody_bought_and_one_that_is_not_there(kubewright: Shell, saved: Save) -> None:
    _, node = machine("own")
    del node["metadata"]["labels"]["karpenter.sh/nodepool"]
    file = saved([node])
    assert "kubewright neither bought it nor will remove it" in kubewright("explain", "node", "own", "-f", file).out
    done = kubewright("explain", "node", "nope", "-f", file)
    assert done.code == 2
    assert "no Node nope in the cluster; there are: own" in done.err
    assert "no NodeClaim nope" in kubewright("explain", "nodeclaim", "nope", "-f", file).err


def test_the_pod_that_must_not_be_disrupted(kubewright: Shell, saved: Save) -> None:
    pinned = pod("job", "n1", annotations={"karpenter.sh/do-not-disrupt": "true"})
    done = kubewright("explain", "node", "n1", "-f", saved(machine("n1"), pinned))
    assert 'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=shop/job)' in done.out


def test_a_budget_that_can_never_allow_it(kubewright: Shell, saved: Save) -> None:
    done = kubewright("explain", "node", "n1", "-f", saved(machine("n1"), pod("gw", "n1"), guard("p1", "gw", minAvailable=1)))
    assert "PDB prevents pod evictions (PDB=shop/p1)" in done.out
    assert "minAvailable is 1 and there are only 1 pods" in done.out
    assert "pod shop/gw" in done.out


def test_c66_two_budgets_on_one_pod(kubewright: Shell, saved: Save) -> None:
    two = (guard("p1", "gw", maxUnavailable=1), guard("p2", "gw", maxUnavailable=1))
    done = kubewright("explain", "node", "n1", "-f", saved(machine("n1"), pod("gw", "n1"), *two))
    assert "Eviction does not support multiple PDBs (PDB(s)=[shop/p1 shop/p2])" in done.out
    assert "pod shop/gw" in done.out


def test_c61_when_a_budget_next_opens(kubewright: Shell, saved: Save) -> None:
    closes = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=6)
    closed = {"nodes": "0", "schedule": f"{closes.minute} {closes.hour} * * *", "duration": "12h"}
    file = saved(machine("n1", conditions=("Drifted",)), pod("web", "n1"), disruption={"budgets": [closed, {"nodes": "5"}]})
    done = kubewright("explain", "node", "n1", "-f", file)
    assert 'Budgets of NodePool general allow 0 of 1 node(s) to go for "Drifted"' in done.out
    assert f"they next open at {(closes + timedelta(hours=12)).isoformat()}" in done.out


def test_c64_nodes_that_are_down_use_the_budget_up(kubewright: Shell, saved: Save) -> None:
    nodes = [o for i in range(10) for o in machine(f"n{i}", conditions=("Drifted",), ready=i > 2)]
    done = kubewright("explain", "node", "n5", "-f", saved(nodes, pod("web", "n5"), disruption={"budgets": [{"nodes": "20%"}]}))
    assert 'allow 2 of 10 node(s) to go for "Drifted", 3 are down or going' in done.out


def test_c54_the_pod_that_has_no_other_home_is_named(kubewright: Shell, saved: Save) -> None:
    stuck = pod("db", "n1")
    stuck["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "us-west-2b"}
    file = saved(machine("n1", conditions=("Consolidatable",)), stuck, pod("web", "n1"))
    done = kubewright("explain", "node", "n1", "-f", file)
    assert "Why it stays" in done.out
    assert "shop/db" in done.out.partition("Why it stays")[2]


def test_what_would_be_saved_or_why_nothing_would(kubewright: Shell, saved: Save) -> None:
    file = saved(machine("n1", "m6a.2xlarge", "spot", conditions=("Consolidatable",)), pod("web", "n1", cpu="7"))
    stays = kubewright("explain", "node", "n1", "-f", file).out.partition("Why it stays")[2]
    assert "SpotToSpotConsolidation" in stays


def test_an_empty_node_is_about_to_go(kubewright: Shell, saved: Save) -> None:
    done = kubewright("explain", "node", "n1", "-f", saved(machine("n1", conditions=("Consolidatable",))))
    assert done.code == 1
    assert "It is about to go:" in done.out
    assert "Empty/" in done.out
