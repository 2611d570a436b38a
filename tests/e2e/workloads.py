"""Random workloads end to end: the operator buys, kube-scheduler binds, and nobody is refused on the node bought for them.

    PYTHONPATH=src:. python -m tests.e2e.workloads 300        three hundred, with a count at the end

A pod that kube-scheduler refuses on the machine bought for it waits, and is bought for again. So every pod must run, and no pod
may have been bought for twice: what the operator's log says it bought for is at most what there is.
"""

import argparse
import json
import random
import sys
from typing import Any, NamedTuple

from tests.plane import karpenter
from tests.plane.kubewright import NODEPOOLS, Kubewright
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

AT_ONCE = 3
"""Workloads that come together, so that their pods meet in one pass."""
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
POOLS = ("general", "arm", "tainted")


class Outcome(NamedTuple):
    workloads: int
    pods: int
    bought_for: int
    """Pods that machines were bought for, each as often as that happened."""
    nodes: int


def pools() -> list[dict[str, Any]]:
    """What the workloads choose from: small machines, so that there are many."""
    found = []
    for name in POOLS:
        pool = karpenter.nodepool(
            name,
            capacity_types=("spot", "on-demand"),
            architectures=("arm64",) if name == "arm" else ("amd64",),
            consolidate_after="Never",
        )
        spec = pool["spec"]["template"]["spec"]
        spec["requirements"] += [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        ]
        if name == "tainted":
            spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
        found.append(pool)
    return found


def workload(seed: int) -> list[dict[str, Any]]:
    """A few Deployments that can all run; what they ask for is chance, by the seed."""
    rng = random.Random(seed)
    return [deployment(f"app-{index}", rng) for index in range(rng.randint(1, 4))]


def deployment(name: str, rng: random.Random) -> dict[str, Any]:
    labels = {"app": name}
    selector = {"matchLabels": labels}
    requests = {"cpu": f"{rng.choice((50, 250, 500, 1000, 1900, 3000))}m", "memory": f"{rng.choice((64, 512, 1500, 3000))}Mi"}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "pretend", "resources": {"requests": requests}}],
        "terminationGracePeriodSeconds": 0,
    }
    replicas = rng.randint(1, 8)
    match rng.randint(0, 9):
        case 0:
            spec["topologySpreadConstraints"] = [spread("topology.kubernetes.io/zone", selector, rng)]
        case 1:
            spec["topologySpreadConstraints"] = [spread("kubernetes.io/hostname", selector, rng)]
        case 2:
            spec["topologySpreadConstraints"] = [
                spread("topology.kubernetes.io/zone", selector, rng),
                spread("karpenter.sh/capacity-type", selector, rng),
            ]
        case 3:
            spec["affinity"] = {"podAntiAffinity": required(selector, "kubernetes.io/hostname")}
        case 4:
            spec["affinity"] = {"podAffinity": required(selector, "topology.kubernetes.io/zone")}
        case 5:
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": rng.choice(ZONES)}
        case 6:
            spec["nodeSelector"] = {"karpenter.sh/capacity-type": rng.choice(("spot", "on-demand"))}
        case 7:
            spec["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
        case 8:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
            spec["nodeSelector"] = {"karpenter.sh/nodepool": "tainted"}
        case _:
            term = {"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [rng.choice("csm")]}
            spec["affinity"] = {"nodeAffinity": preferred(term)}
    if rng.random() < 0.2:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": rng.choice((8080, 9090))}]
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def spread(key: str, selector: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": rng.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


def required(selector: dict[str, Any], key: str) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]}


def preferred(term: dict[str, Any]) -> dict[str, Any]:
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [term]}}],
    }


def run(plane: Plane, operator: Kubewright, seeds: range) -> Outcome:
    """Let the workloads of these seeds come and go, a few at a time; every one of their pods must run before they go.

    Raises:
        AssertionError: some pod did not get to run.
    """
    pods = 0
    for first in range(seeds.start, seeds.stop, AT_ONCE):
        together = range(first, min(first + AT_ONCE, seeds.stop))
        for seed in together:
            plane.create("/api/v1/namespaces", {"metadata": {"name": f"random-{seed}"}})
            for one in workload(seed):
                pods += one["spec"]["replicas"]
                plane.create(f"/apis/apps/v1/namespaces/random-{seed}/deployments", one)
        for seed in together:
            eventually(lambda: not waiting(plane, seed), within_s=120)  # noqa: B023 (called at once)
        for seed in together:
            plane.delete(f"/api/v1/namespaces/random-{seed}")
    return Outcome(len(seeds), pods, bought_for(operator), len(plane.get("/api/v1/nodes")["items"]))


def waiting(plane: Plane, seed: int) -> dict[str, str]:
    """Deployments of the workload that do not run as a whole, with how far they are."""
    found = plane.get(f"/apis/apps/v1/namespaces/random-{seed}/deployments")["items"]
    return {
        f"seed {seed}, {one['metadata']['name']}": f"{one['status'].get('readyReplicas', 0)}/{one['spec']['replicas']}"
        for one in found
        if one["status"].get("readyReplicas", 0) < one["spec"]["replicas"]
    }


def bought_for(operator: Kubewright) -> int:
    lines = operator.process.log.read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["pods"] for line in lines if '"created nodeclaim"' in line)


def furnish(plane: Plane) -> None:
    plane.create(karpenter.NODECLASSES, karpenter.nodeclass("default"))
    for pool in pools():
        plane.create(NODEPOOLS, pool)


def main() -> int:
    """The exit code is 1 if a pod was refused on the node bought for it."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.workloads", description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=300, help="how many workloads (300)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    asked = parser.parse_args()
    with Plane() as plane, Kubewright(plane, cloud="kwok") as operator:
        furnish(plane)
        outcome = run(plane, operator, range(asked.first, asked.first + asked.count))
    refused = max(outcome.bought_for - outcome.pods, 0)
    print(
        f"{outcome.workloads} workloads, {outcome.pods} pods, all of which ran, on {outcome.nodes} nodes;"
        f" machines were bought for {outcome.bought_for} of them, {refused} twice"
    )
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
