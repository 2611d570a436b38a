"""Scheduling speed beside the reference's, both measured in this call: `python -m benchmarks.scheduling [COUNT …]`.

The shape is the reference's own benchmark: 400 synthetic types; one fifth each plain, zone spread, hostname spread, zonal
self-affinity and hostname anti-affinity; seven label values; every pod an object of its own.
"""

import json
import random
import subprocess
import sys
from typing import Any

from tests.conformance.adapter import answer
from tests.plane.binaries import ensure

ZONE, HOST, CT = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
CPUS = ("100m", "250m", "500m", "1000m", "1500m")
MEMORIES = ("100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi")
LABELS = ("a", "b", "c", "d", "e", "f", "g")
COUNTS = (100, 500, 1000, 5000)


def instance_types(count: int = 400) -> list[dict[str, Any]]:
    """Type i has i + 1 cpus, twice as many Gi and ten times as many pods; its price grows with both."""
    found = []
    for i in range(count):
        cpu = i + 1
        price = 0.1 * cpu + 0.05 * 2 * cpu
        found.append(
            {
                "name": f"fake-it-{i}",
                "requirements": [
                    _in("node.kubernetes.io/instance-type", f"fake-it-{i}"),
                    _in("kubernetes.io/arch", "amd64"),
                    _in("kubernetes.io/os", "linux"),
                    _in(ZONE, "test-zone-1", "test-zone-2", "test-zone-3"),
                    _in(CT, "spot", "on-demand"),
                ],
                "capacity": {"cpu": str(cpu), "memory": f"{2 * cpu}Gi", "pods": str(10 * cpu)},
                "overhead": {"cpu": "100m", "memory": "10Mi"},
                "offerings": [
                    {
                        "price": price * (0.7 if kind == "spot" else 1),
                        "available": True,
                        "requirements": [_in(ZONE, z), _in(CT, kind)],
                    }
                    for kind, zones in (("spot", (1, 2)), ("on-demand", (1, 2, 3)))
                    for z in (f"test-zone-{n}" for n in zones)
                ],
            }
        )
    return found


def problem(count: int, seed: int = 42) -> dict[str, Any]:
    rng = random.Random(seed)
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "default"}}}},
        }
    ]
    objects += [_pod(i, rng) for i in range(count)]
    return {"objects": objects, "instanceTypes": instance_types()}


def _pod(index: int, rng: random.Random) -> dict[str, Any]:
    labels = {"my-label": rng.choice(LABELS)}
    selector = {"matchLabels": {"my-label": rng.choice(LABELS)}}
    requests = {"cpu": rng.choice(CPUS), "memory": rng.choice(MEMORIES)}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]}
    shape = index % 5
    if shape in (1, 2):
        rule = {"maxSkew": 1, "topologyKey": ZONE if shape == 1 else HOST, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**rule, "labelSelector": selector}]
    elif shape == 3:
        labels = {"my-affinity": rng.choice(LABELS)}
        term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif shape == 4:
        labels = {"app": "nginx"}
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{index}", "namespace": "default", "uid": f"uid-{index:06}", "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def main() -> int:
    counts = [int(a) for a in sys.argv[1:]] or list(COUNTS)
    program = ensure("oracle")
    print("| pods | reference, pods/s | kubewright, pods/s | times | nodes, reference | nodes, kubewright |")
    print("|---|---|---|---|---|---|")
    for count in counts:
        asked = problem(count)
        line = json.dumps(asked) + "\n"
        said = subprocess.run([program], input=line, capture_output=True, text=True, check=True).stdout
        theirs = json.loads(said)
        ours = answer({**asked, "packing": "first-fit", "repeat": 3})
        slow, fast = theirs["seconds"][0], sorted(ours["seconds"])[1]
        print(
            f"| {count} | {count / slow:.0f} | {count / fast:.0f} | {slow / fast:.1f} "
            f"| {len(theirs['newNodes'])} | {len(ours['newNodes'])} |",
            flush=True,
        )
        assert len(ours["errors"]) <= len(theirs["errors"]), "more pods left out than by the reference"
    return 0


if __name__ == "__main__":
    sys.exit(main())
