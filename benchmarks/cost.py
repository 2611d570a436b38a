"""What plans cost an hour on the real catalogue: the reference, our first fit, our improved plan, the bound that none undercuts.

    PYTHONPATH=src:. python -m benchmarks.cost      100, 1,000 and 5,000 plain pods; machines below 49 and 193 cpus, and all
    PYTHONPATH=src:. python -m benchmarks.cost --mix spread daemons gpu     others that are bound by something
    ... --pods 20000 --caps 49      other sizes
    ... --capacity spot             spot, at the fake market's prices, which differ by type and zone
    ... --oracle 0                  without the reference (which needs Go, once)
    ... --newer 6                   only generations above 6
    ... --node-cpu 0                without our own cap on the size of a node
    ... -o docs/x.md                append the table to a file, line by line

One NodePool of c, m and r, generation above 5, amd64; a cap is the NodePool's own (instance-cpu Lt). `packing.plan` is asked as
the operator asks it, with its default budget and settings. Gaps are over the bound of the same capped problem. Pods ask for 0.1
to 1.5 cpus and 100 to 4,096 Mi (thirty sizes, as in the reference's own benchmark, drawn with a fixed seed). Mixes: `spread`
binds a third of the pods to an even spread over zones; `daemons` puts two DaemonSets on every node (0.3 cpus and 400 Mi
together); `gpu` lets g and p in, from generation 4, and has one pod in twenty ask for a GPU.

The reference's answers vary; its column is the median of those runs that placed all pods, with the least and the most. It stops
after a minute, so on a busy machine it may not come to all of them; such runs are named and not counted.

"share" is the largest part of all pods that sits on one node; "types" the least number of types that a claim names. Seconds are
the wall clock's for both sides, from objects to plan, proofs included, and in brackets what of it the processor worked for us; on
a machine that does other things besides, only their ratio says anything.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import offered
from kubewright.api import aws_labels, labels, quantity
from kubewright.catalogue.types import InstanceType
from kubewright.packing import plan
from kubewright.packing.bound import bound
from kubewright.scheduling.requirement import Requirement
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import Plan
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.conformance.adapter import read
from tests.conformance.judge import placed, usd
from tests.plane.binaries import ensure

CPUS = ("100m", "250m", "500m", "1000m", "1500m")
MEMORIES = ("100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi")
GPU = "nvidia.com/gpu"
MIXES = ("plain", "spread", "daemons", "gpu")
BOUND_STEPS = 20_000


def problem(
    count: int, cap: int, mix: str, newer: int, types: Sequence[Mapping[str, Any]], capacity: str = "on-demand"
) -> dict[str, Any]:
    """The problem in the oracle's JSON."""
    rng = random.Random(42)
    wanted = [
        _in(aws_labels.INSTANCE_CATEGORY, *("c", "m", "r", "g", "p") if mix == "gpu" else ("c", "m", "r")),
        {"key": aws_labels.INSTANCE_GENERATION, "operator": "Gt", "values": [str(newer if mix != "gpu" else 3)]},
        _in(labels.ARCH, "amd64"),
        _in(labels.CAPACITY_TYPE, capacity),
    ]
    if cap:
        wanted.append({"key": aws_labels.INSTANCE_CPU, "operator": "Lt", "values": [str(cap)]})
    template = {"requirements": wanted, "nodeClassRef": {"group": "g", "kind": "K", "name": "default"}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}}
    objects: list[dict[str, Any]] = [{**pool, "spec": {"template": {"spec": template}}}]
    if mix == "daemons":
        objects += [_daemon("logs", "100m", "150Mi"), _daemon("network", "200m", "250Mi")]
    objects += [_pod(i, rng, mix) for i in range(count)]
    return {"objects": objects, "instanceTypes": list(types), "wellKnownLabels": sorted(aws_labels.WELL_KNOWN)}


def _pod(index: int, rng: random.Random, mix: str) -> dict[str, Any]:
    requests = {"cpu": rng.choice(CPUS), "memory": rng.choice(MEMORIES)}
    container: dict[str, Any] = {"name": "main", "image": "x", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"containers": [container]}
    app = "plain"
    if mix == "spread" and index % 3 == 0:
        app = f"spread-{index // 3 % 7}"
        rule = {"maxSkew": 1, "topologyKey": labels.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]
    if mix == "gpu" and index % 20 == 0:
        requests[GPU] = "1"
        container["resources"]["limits"] = {GPU: "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{index:05}", "namespace": "default", "uid": f"uid-{index:06}", "labels": {"app": app}},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


def _daemon(name: str, cpu: str, memory: str) -> dict[str, Any]:
    container = {"name": "d", "image": "d", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"d": name}},
            "template": {
                "metadata": {"labels": {"d": name}},
                "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }


def as_json(types: Sequence[InstanceType], categories: Sequence[str]) -> list[dict[str, Any]]:
    """Types of these categories as the oracle reads them."""
    return [
        {
            "name": one.name,
            "requirements": [_shown(r) for _, r in sorted(one.requirements.items())],
            "capacity": {name: _exact(amount) for name, amount in sorted(one.capacity.items())},
            "overhead": {name: _exact(amount) for name, amount in sorted(one.overhead.items())},
            "offerings": [
                {
                    "price": o.price,
                    "available": True,
                    "requirements": [_shown(r) for _, r in sorted(o.requirements.items()) if r.values],
                }
                for o in one.offerings
                if o.available
            ],
        }
        for one in types
        if one.requirements[aws_labels.INSTANCE_CATEGORY].values & set(categories)
    ]


def _exact(amount: int) -> str:
    return quantity.show(amount)


def _shown(one: Requirement) -> dict[str, Any]:
    return {"key": one.key, "operator": one.operator, "values": sorted(one.values)}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


class Reference(NamedTuple):
    """The reference's answers to one problem."""

    costs: list[float]
    """USD per hour of every run that placed all pods."""
    shape: str
    """Of the last such run: nodes, largest share, least types."""
    seconds: float
    """The longest run."""
    short: list[int]
    """Pods placed by each run that did not place all: it stops after a minute, and does not list what it did not come to."""


def of_reference(asked: Mapping[str, Any], runs: int, pods: int) -> Reference:
    costs: list[float] = []
    short: list[int] = []
    shape, seconds = "", 0.0
    for _ in range(runs):
        said = subprocess.run(
            [ensure("oracle")], input=json.dumps(asked) + "\n", capture_output=True, text=True, check=True
        ).stdout
        given = json.loads(said)
        if given.get("error"):
            raise SystemExit(f"the reference: {given['error']}")
        seconds = max(seconds, given["seconds"][0])
        if (there := len(placed(given))) < pods:
            short.append(there)
            continue
        costs.append(usd(asked, given))
        nodes = given["newNodes"]
        share = max((len(n["pods"]) for n in nodes), default=0) / pods
        shape = f"{len(nodes)} / {share:.0%} / {min((len(n['instanceTypes']) for n in nodes), default=0)}"
    return Reference(costs, shape, seconds, short)


def _shape(one: Plan, count: int) -> str:
    share = max((len(c.pods) for c in one.claims), default=0) / count
    return f"{len(one.claims)} / {share:.0%} / {min((len(c.instance_types) for c in one.claims), default=0)}"


def row(count: int, cap: int, mix: str, runs: int, types: Sequence[InstanceType], given: argparse.Namespace) -> str:
    categories = ("c", "m", "r", "g", "p") if mix == "gpu" else ("c", "m", "r")
    asked = problem(count, cap, mix, given.newer, as_json(types, categories), given.capacity)
    snapshot, how = read(asked)
    chosen = select(snapshot, how).problem
    solve(chosen)  # columns are made once for a catalogue, not for a pass
    start = time.perf_counter()
    first = solve(chosen)
    solved = time.perf_counter()
    worked = time.process_time()
    better = plan(chosen, Settings(packing=Packing.IMPROVE, packing_node_cpu=given.node_cpu))
    took, worked = time.perf_counter() - solved, time.process_time() - worked
    least = max(better.bound_usd_per_hour, bound(chosen, better, BOUND_STEPS))
    cells = [mix, given.capacity, str(cap - 1) if cap else "all", str(count)]
    if runs:
        theirs = of_reference(asked, runs, count)
        shown = "none placed all pods"
        if theirs.costs:
            middle = statistics.median(theirs.costs)
            shown = f"{middle:.2f} ({min(theirs.costs):.2f} to {max(theirs.costs):.2f}), +{middle / least - 1:.1%}"
        if theirs.short:
            shown += f"; {len(theirs.short)} of {runs} runs placed only {', '.join(map(str, theirs.short))} pods"
        cells += [shown, theirs.shape, f"{theirs.seconds:.2f}"]
    gap = "proven least" if better.optimal else f"+{better.usd_per_hour / least - 1:.2%}"
    cells += [
        f"{first.usd_per_hour:.2f}, +{first.usd_per_hour / least - 1:.1%}",
        _shape(first, count),
        f"**{better.usd_per_hour:.2f}**, {gap}",
        _shape(better, count),
        f"{least:.2f}",
        f"{solved - start:.2f} / {took:.2f} ({worked:.2f})",
    ]
    if better.unplaced:
        cells[-1] += f" ({len(better.unplaced)} pods left out)"
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--caps", type=int, nargs="+", default=[49, 193, 0], help="cpus that a machine stays below; 0 for none")
    parser.add_argument("--mix", choices=MIXES, nargs="+", default=["plain"])
    parser.add_argument("--capacity", choices=("on-demand", "spot"), default="on-demand")
    parser.add_argument("--newer", type=int, default=5)
    parser.add_argument("--node-cpu", type=int, default=Settings().packing_node_cpu)
    parser.add_argument("--oracle", type=int, default=5, metavar="RUNS")
    parser.add_argument("-o", "--output", type=Path, help="append the table to this file as well")
    given = parser.parse_args()
    types = offered.instance_types()
    reference = ["reference, $/h, over bound", "nodes / share / types", "s"] if given.oracle else []
    ours = ["first fit", "nodes / share / types", "improved", "nodes / share / types", "bound", "s: first fit / improved"]
    head = ["mix", "capacity", "cpus", "pods", *reference, *ours]

    def tell(line: str) -> None:
        print(line, flush=True)
        if given.output:
            with given.output.open("a") as file:
                file.write(line + "\n")

    tell("| " + " | ".join(head) + " |")
    tell("|---" * len(head) + "|")
    for mix in given.mix:
        for cap in given.caps:
            for count in given.pods:
                tell(row(count, cap, mix, given.oracle, types, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
