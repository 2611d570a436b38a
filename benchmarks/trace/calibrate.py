"""How long one simulation takes the reference, for the model's clock: measured with the reference's own scheduler.

    PYTHONPATH=src:. python -m benchmarks.trace.calibrate

Nodes of 16 cpus, each nearly full of its ten pods, and some pods that need a place, on the types the trace may buy. The figures
are fitted, by their relative error, to base + a * nodes + b * pods + c * pods squared. What the reference does around its
scheduler in each simulation (it copies the cluster, and lists the pods of every candidate from its API server's cache) is not in
them, so that they flatter it.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cost import as_json
from benchmarks.trace import workload
from benchmarks.trace.reference import Cost
from benchmarks.trace.workload import Shape
from kubewright.api import aws_labels, labels
from tests.plane.binaries import ensure

NODES = (50, 150, 300)
MOVING = (1, 20, 200, 1000)
REPEAT = 3
PODS_ON_A_NODE = 10


def main() -> None:
    """Measure, print the table and the fit."""
    types = workload.types(Shape())
    shown = as_json(types, ("c", "m", "r"))
    rows: list[tuple[int, int, float]] = []
    for nodes in NODES:
        for moving in MOVING:
            asked = {
                "objects": [workload.node_pool(Shape(), (t.name for t in types)), *objects(nodes, moving)],
                "instanceTypes": shown,
                "wellKnownLabels": sorted(aws_labels.WELL_KNOWN),
                "repeat": REPEAT,
            }
            start = time.perf_counter()
            said = subprocess.run(
                [ensure("oracle")], input=json.dumps(asked) + "\n", capture_output=True, text=True, check=True
            ).stdout
            given = json.loads(said)
            if given.get("error"):
                raise SystemExit(given["error"])
            best = min(given["seconds"])
            rows.append((nodes, moving, best))
            print(
                f"{nodes:>5} nodes {moving:>5} pods {best:8.4f} s   (whole process {time.perf_counter() - start:.1f} s)",
                flush=True,
            )
    factors = np.array([[1.0 / s, nodes / s, moving / s, moving * moving / s] for nodes, moving, s in rows])
    fit, *_ = np.linalg.lstsq(factors, np.ones(len(rows)), rcond=None)
    print(Cost(*(float(f"{f:.3g}") for f in fit)))


def objects(nodes: int, moving: int) -> Iterator[dict[str, Any]]:
    for index in range(nodes):
        name = f"node-{index:03}"
        carried = {
            labels.NODEPOOL: "default",
            labels.INSTANCE_TYPE: "m6i.4xlarge",
            labels.ZONE: "us-west-2a",
            labels.CAPACITY_TYPE: "on-demand",
            labels.ARCH: "amd64",
            labels.OS: "linux",
            labels.HOSTNAME: name,
            labels.REGISTERED: "true",
            labels.INITIALIZED: "true",
        }
        amounts = {"cpu": "15890m", "memory": "57691Mi", "pods": "234"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": carried},
            "spec": {"providerID": f"kwok://{name}"},
            "status": status,
        }
        for turn in range(PODS_ON_A_NODE):
            yield pod(f"{name}-{turn}", name)
    for index in range(moving):
        yield pod(f"moving-{index:04}", "")


def pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1500m", "memory": "3Gi"}}}
    waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running"} if node else {"phase": "Pending", "conditions": waiting},
    }


if __name__ == "__main__":
    main()
