"""From `kubectl apply` to all pods Ready, and back to nothing: kubewright beside Karpenter 1.14.1 on the same real control plane.

    PYTHONPATH=src:. python -m benchmarks.provision                       500 pods, three interleaved runs of each
    PYTHONPATH=src:. python -m benchmarks.provision --pods 100 --runs 1   a first look
    ... --only kubewright      one side alone (karpenter, kubewright, plane), for profiling
    ... --types all            everything that EC2 sells is allowed, and not only the general-purpose families
    ... -o results.json        every figure of every run

It needs Go once, to build the plane and Karpenter (`python -m tests.plane.binaries`); afterwards the built programs are kept.

What is equal: the plane (fresh for each run: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok, whose nodes
are Ready at once); a Deployment of pods that ask for 1 cpu and 1500Mi; the NodePool's requirements (amd64, one capacity type, the
types by name), and that it removes empty nodes at once and without limit; the batch windows (1 s idle, 10 s at most); and what
there is to buy: machines of our embedded catalogue, with the same allocatable amounts, zones and prices. Karpenter is only shown
those that the NodePool allows; our fake EC2 always sells everything. Neither cloud takes any time to launch. Karpenter runs with
its kwok provider, kubewright with its AWS provider on the fake EC2. Both have been started, and their NodePool is ready, before
the clock starts.

What is measured, by asking the API server every 50 ms:
- ready: from the creation of the Deployment until it counts all its replicas ready;
- gone: from scaling it to 0 until there is no NodeClaim and no Node any more. In both, 15 s of this are the wait between finding
  a node empty and finding it so again, which is the reference's rule;
- cpu: processor time of the operator from the creation of the Deployment to ready, which other work on the machine hardly moves;
- nodes, and what they cost an hour at the catalogue's prices.

The side "plane" shows what of this is neither's: the same Deployment on as many and as large nodes as kubewright bought, Ready
before the clock starts.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import offered
from kubewright.api import labels
from kubewright.catalogue.types import InstanceType
from tests.plane import karpenter, kubewright
from tests.plane.plane import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, Plane

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PATIENCE_S = 180.0
ASK_EVERY_S = 0.05
SIDES = ("karpenter", "kubewright", "plane")
BATCH = {"BATCH_IDLE_DURATION": "1s", "BATCH_MAX_DURATION": "10s"}


class Run(NamedTuple):
    """One side, once."""

    side: str
    ready_s: float
    gone_s: float | None
    """None for the plane, whose nodes nobody removes."""
    cpu_s: float | None
    """Processor time of the operator from start to ready; None for the plane."""
    nodes: int
    usd_per_hour: float
    types: Mapping[str, int]


class Market(NamedTuple):
    types: tuple[InstanceType, ...]
    capacity_type: str
    file: Path
    """For Karpenter."""


def main() -> int:
    """Measure and print; the exit code is 1 if kubewright's median is above Karpenter's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.provision", description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=500, help="replicas of the Deployment (500)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side, interleaved (3)")
    parser.add_argument("--only", choices=SIDES, action="append", help="measure this side alone; may be repeated")
    parser.add_argument("--capacity-type", choices=("on-demand", "spot"), default="on-demand")
    parser.add_argument("--types", choices=("general", "all"), default="general", help="what the NodePool allows (general)")
    parser.add_argument("-o", "--output", type=Path, help="write every figure as JSON")
    parser.add_argument("--logs", type=Path, help="keep the operators' logs in this folder")
    asked = parser.parse_args()
    sides = [side for side in SIDES if not asked.only or side in asked.only]
    with tempfile.TemporaryDirectory(prefix="kubewright-benchmark-") as scratch:
        types = tuple(t for t in offered.instance_types() if asked.types == "all" or offered.is_general(t))
        file = karpenter.write_instance_types(Path(scratch) / "types.json", offered.for_karpenter(types))
        runs = measure(sides, Market(types, asked.capacity_type, file), asked.pods, asked.runs, asked.logs)
    print(table(runs, sides, asked.pods))
    if asked.output:
        asked.output.write_text(json.dumps(report(runs, sides, asked), indent=2) + "\n", encoding="utf-8")
    if not {"karpenter", "kubewright"} <= set(sides):
        return 0
    return int(median(runs, "kubewright", "ready_s") > median(runs, "karpenter", "ready_s"))


def measure(sides: Sequence[str], market: Market, pods: int, rounds: int, logs: Path | None) -> list[Run]:
    """Every side once a round; who goes first changes, so that a machine that warms up or tires favours nobody."""
    found: list[Run] = []
    bought: Sequence[Any] = ()
    for number in range(rounds):
        order = [side for side in sides if side != "plane"]
        for side in reversed(order) if number % 2 else order:
            run, nodes = one(side, market, pods, logs and logs / f"{side}-{number + 1}.log")
            found.append(run)
            bought = nodes if side == "kubewright" or not bought else bought
            say(f"round {number + 1} of {rounds}: {side}: ready after {run.ready_s:.2f} s, gone after {run.gone_s:.2f} s")
        if "plane" in sides:
            if not bought:
                raise SystemExit("the plane's share is measured on the nodes that an operator bought: add --only kubewright")
            run = alone(bought, market, pods)
            found.append(run)
            say(f"round {number + 1} of {rounds}: plane: ready after {run.ready_s:.2f} s")
    return found


def one(side: str, market: Market, pods: int, log: Path | None) -> tuple[Run, Sequence[Any]]:
    """One operator on a fresh plane, up and down; also the nodes that it bought."""
    with Plane() as plane, operator(side, plane, market) as process:
        try:
            until(lambda: is_pool_ready(plane), "the NodePool to be ready")
            time.sleep(1)  # what starting up has left to do is not what is measured
            before_s = cpu_s(process().pid)
            ready_s = scale_up(plane, pods)
            used_s = cpu_s(process().pid) - before_s
            nodes = plane.get("/api/v1/nodes")["items"]
            start = time.monotonic()
            plane.request(
                "PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 0}}, content_type="application/merge-patch+json"
            ).body_or_raise()
            until(lambda: is_empty(plane), "every NodeClaim and Node to be gone")
            gone_s = time.monotonic() - start
        finally:
            if log:
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_bytes(process().log.read_bytes())
    return Run(side, ready_s, gone_s, used_s, len(nodes), cost(nodes, market), kinds(nodes)), nodes


def alone(bought: Sequence[Any], market: Market, pods: int) -> Run:
    """The plane without an operator, on nodes like those that one has bought."""
    with Plane() as plane:
        for node in bought:
            metadata = {
                "name": node["metadata"]["name"],
                "labels": node["metadata"]["labels"],
                "annotations": {NODE_ANNOTATION: NODE_ANNOTATION_VALUE},
            }
            status = {key: node["status"][key] for key in ("capacity", "allocatable")}
            plane.create("/api/v1/nodes", {"metadata": metadata, "status": status})
        until(lambda: all(map(is_node_ready, plane.get("/api/v1/nodes")["items"])), "the nodes to be ready")
        time.sleep(1)
        return Run("plane", scale_up(plane, pods), None, None, len(bought), cost(bought, market), kinds(bought))


@contextmanager
def operator(side: str, plane: Plane, market: Market) -> Iterator[Callable[[], Any]]:
    """The operator of that name, started, with its NodeClass and NodePool; gives its process."""
    if side == "karpenter":
        with karpenter.Karpenter(plane, instance_types=market.file, env=BATCH) as theirs:
            pool = karpenter.nodepool("default", capacity_types=(market.capacity_type,))
            pool["spec"]["disruption"]["consolidationPolicy"] = "WhenEmpty"
            plane.create(karpenter.NODEPOOLS, narrowed(pool, market))
            yield lambda: theirs.process
    else:
        with kubewright.Kubewright(plane, env=BATCH) as ours:
            plane.create(kubewright.NODECLASSES, kubewright.nodeclass("default"))
            pool = kubewright.nodepool("default", capacity_types=(market.capacity_type,))
            plane.create(kubewright.NODEPOOLS, narrowed(pool, market))
            yield lambda: ours.process


def narrowed(pool: dict[str, Any], market: Market) -> dict[str, Any]:
    """The NodePool, allowed to buy what is on the market and nothing else."""
    names = sorted(t.name for t in market.types)
    pool["spec"]["template"]["spec"]["requirements"].append({"key": labels.INSTANCE_TYPE, "operator": "In", "values": names})
    return pool


def scale_up(plane: Plane, pods: int) -> float:
    """Seconds from the creation of the Deployment until all its pods are ready."""
    start = time.monotonic()
    plane.create(DEPLOYMENTS, deployment(pods))
    until(lambda: plane.get(f"{DEPLOYMENTS}/web").get("status", {}).get("readyReplicas", 0) == pods, f"{pods} ready pods")
    return time.monotonic() - start


def deployment(pods: int) -> dict[str, Any]:
    container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "1", "memory": "1500Mi"}}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def is_pool_ready(plane: Plane) -> bool:
    status = plane.get(f"{kubewright.NODEPOOLS}/default").get("status", {})
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))


def is_node_ready(node: Any) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))


def is_empty(plane: Plane) -> bool:
    return not plane.get(kubewright.NODECLAIMS)["items"] and not plane.get("/api/v1/nodes")["items"]


def cpu_s(pid: int) -> float:
    """Processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(ask: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not ask():
        if time.monotonic() > end:
            raise SystemExit(f"waited {PATIENCE_S:g} s for {what}, in vain")
        time.sleep(ASK_EVERY_S)


def kinds(nodes: Sequence[Any]) -> dict[str, int]:
    return dict(sorted(Counter(n["metadata"]["labels"][labels.INSTANCE_TYPE] for n in nodes).items()))


def cost(nodes: Sequence[Any], market: Market) -> float:
    """USD per hour."""
    prices = offered.prices(market.types)
    places = [n["metadata"]["labels"] for n in nodes]
    return sum(prices[p[labels.INSTANCE_TYPE], p[labels.ZONE], market.capacity_type] for p in places)


def median(runs: Sequence[Run], side: str, field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs if run.side == side)


def table(runs: Sequence[Run], sides: Sequence[str], pods: int) -> str:
    """Medians, with the runs they are of, as Markdown."""
    rows = [("", "all Ready (s)", "runs", "all gone (s)", "runs", "cpu (s)", "nodes", "$/h", "bought")]
    for side in sides:
        mine = [run for run in runs if run.side == side]
        gone = [f"{run.gone_s:.2f}" for run in mine if run.gone_s is not None]
        last = mine[-1]
        rows.append(
            (
                side,
                f"{median(runs, side, 'ready_s'):.2f}",
                " ".join(f"{run.ready_s:.2f}" for run in mine),
                f"{median(runs, side, 'gone_s'):.2f}" if gone else "",
                " ".join(gone),
                f"{median(runs, side, 'cpu_s'):.2f}" if gone else "",
                f"{median(runs, side, 'nodes'):g}",
                f"{median(runs, side, 'usd_per_hour'):.3f}",
                ", ".join(f"{count} {kind}" for kind, count in last.types.items()),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    if {"karpenter", "kubewright"} <= set(sides):
        share = median(runs, "kubewright", "ready_s") / median(runs, "karpenter", "ready_s")
        lines.append(f"\n{pods} pods; kubewright takes {share:.2f} of Karpenter's time until all are Ready")
    return "\n".join(lines)


def report(runs: Sequence[Run], sides: Sequence[str], asked: argparse.Namespace) -> dict[str, Any]:
    fields = ("ready_s", "gone_s", "cpu_s", "nodes", "usd_per_hour")
    return {
        "benchmark": "provision",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "pods": asked.pods,
        "capacity_type": asked.capacity_type,
        "types": asked.types,
        "medians": {
            side: {
                field: None if side == "plane" and field in ("gone_s", "cpu_s") else median(runs, side, field) for field in fields
            }
            for side in sides
        },
        "runs": [run._asdict() for run in runs],
    }


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
