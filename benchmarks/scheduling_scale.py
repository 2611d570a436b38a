"""Two more figures of scheduling speed, measured in this call: `python -m benchmarks.scheduling_scale [catalogue] [cluster]`.

`catalogue`: 5,000 plain pods against every type of the embedded catalogue, first fit, beside the reference.
`cluster`: 100,000 pods in 1,000 classes over 2,000 existing nodes with ten pods each; seconds from decoded objects to Plan, and
the peak memory of a process that does nothing else.
"""

import json
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.offered import instance_types
from benchmarks.scheduling import CPUS, MEMORIES
from kubewright.api import aws_labels, quantity
from kubewright.api import labels as names
from kubewright.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from kubewright.api.meta import Condition, ObjectMeta
from kubewright.catalogue.types import InstanceType
from kubewright.packing import plan
from kubewright.scheduling.requirement import Requirement
from kubewright.solver.problem import Pool, Snapshot, SolverSettings, StateNode
from kubewright.solver.select import select
from tests.builders import node_pool
from tests.conformance.adapter import answer
from tests.plane.binaries import ensure

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
CATALOGUE_PODS, CLASSES, PODS, NODES, BOUND = 5_000, 1_000, 100_000, 2_000, 10


def catalogue() -> None:
    rng = random.Random(7)
    reference = {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": reference}}},
    }
    types = instance_types()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "types.json"
        file.write_text(json.dumps([_as_json(t) for t in types]))
        asked = {
            "objects": [pool, *(_plain(i, rng) for i in range(CATALOGUE_PODS))],
            "instanceTypesFile": str(file),
            "wellKnownLabels": sorted(aws_labels.WELL_KNOWN),
        }
        said = subprocess.run([ensure("oracle")], input=json.dumps(asked) + "\n", capture_output=True, text=True, check=True)
        theirs, ours = json.loads(said.stdout), answer({**asked, "packing": "first-fit", "repeat": 3})
    assert not ours["errors"], ours["errors"]
    assert not theirs["errors"], theirs["errors"]
    slow, fast = theirs["seconds"][0], sorted(ours["seconds"])[1]
    print("| types | pods | reference, s | kubewright, s | times | nodes, reference | nodes, kubewright |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {len(types)} | {CATALOGUE_PODS} | {slow:.2f} | {fast:.3f} | {slow / fast:.0f} "
        f"| {len(theirs['newNodes'])} | {len(ours['newNodes'])} |",
        flush=True,
    )


def cluster() -> None:
    """In a process of its own, so that the peak is that of the solver and its input alone."""
    process = multiprocessing.get_context("spawn").Process(target=_cluster)
    process.start()
    process.join()
    assert process.exitcode == 0


def _cluster() -> None:
    types = instance_types()
    snapshot = _snapshot(types)
    settings = SolverSettings(well_known_labels=aws_labels.WELL_KNOWN)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = plan(select(snapshot, settings).problem)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    on_nodes = sum(map(len, result.existing.values()))
    print("| pods | classes | existing nodes | seconds | MiB before | MiB at most | on existing nodes | new nodes | left out |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {PODS} | {CLASSES} | {NODES} | {seconds:.1f} | {before / 1024:.0f} | {after / 1024:.0f} "
        f"| {on_nodes} | {len(result.claims)} | {len(result.unplaced)} |",
        flush=True,
    )


def _snapshot(types: tuple[InstanceType, ...]) -> Snapshot:
    rng = random.Random(7)
    shapes = [(f"app-{i}", f"{rng.randint(1, 40) * 50}m", f"{rng.randint(1, 64) * 64}Mi") for i in range(CLASSES)]
    nodes = []
    for i in range(NODES):
        name, amounts = f"node-{i:04}", {"cpu": "16", "memory": "62Gi", "pods": "110"}
        labels = {names.HOSTNAME: name, names.ZONE: ZONES[i % 3], names.ARCH: "amd64", names.NODEPOOL: "default"}
        there = tuple(_pod(f"bound-{i}-{n}", *rng.choice(shapes), node=name) for n in range(BOUND))
        status = NodeStatus(capacity=amounts, allocatable=amounts)
        node = Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(provider_id=name), status=status)
        nodes.append(StateNode(node, None, there))
    pods = sorted((_pod(f"pod-{i:06}", *shapes[i % CLASSES]) for i in range(PODS)), key=lambda p: p.key)
    return Snapshot(datetime(2026, 1, 1, tzinfo=UTC), tuple(nodes), tuple(pods), (Pool(node_pool(), types),))


def _pod(name: str, app: str, cpu: str, memory: str, node: str = "") -> Pod:
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}))
    waiting = (Condition(type="PodScheduled", status="False", reason="Unschedulable"),)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", labels={"app": app}),
        spec=PodSpec(containers=(container,), node_name=node),
        status=PodStatus(phase="Running") if node else PodStatus(phase="Pending", conditions=waiting),
    )


def _plain(index: int, rng: random.Random) -> dict[str, Any]:
    requests = {"cpu": rng.choice(CPUS), "memory": rng.choice(MEMORIES)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{index}", "namespace": "default", "uid": f"uid-{index:06}"},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


def _as_json(one: InstanceType) -> dict[str, Any]:
    def amounts(found: Any) -> dict[str, str]:
        return {name: quantity.show(amount, binary=name == "memory") for name, amount in found.items()}

    def requirements(found: Any) -> list[dict[str, Any]]:
        return [_written(r) for r in found.values()]

    return {
        "name": one.name,
        "requirements": requirements(one.requirements),
        "capacity": amounts(one.capacity),
        "overhead": amounts(one.overhead),
        "offerings": [
            {"price": o.price, "available": o.available, "requirements": requirements(o.requirements)} for o in one.offerings
        ],
    }


def _written(one: Requirement) -> dict[str, Any]:
    return {"key": one.key, "operator": one.operator, "values": sorted(one.values)}


def main() -> int:
    chosen = sys.argv[1:] or ["catalogue", "cluster"]
    for name in chosen:
        {"catalogue": catalogue, "cluster": cluster}[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
