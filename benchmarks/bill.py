"""What is paid in the end: kube-scheduler binds as it likes, what it leaves over is bought for again, and batches are small.

    PYTHONPATH=src:. python -m benchmarks.bill                   one batch of 600 pods, and a trace of small ones over two hours
    ... --pods 2000 --hours 4 --seed 1

Both sides are the whole operator on the pretend cluster, whose kube-scheduler knows nothing of plans, and the fake EC2, on
virtual time, with the same pods and prices; they differ in `Settings.packing`. One NodePool of c, m and r, generation above
5, amd64, on-demand, below 49 cpus; consolidation is on (WhenEmptyOrUnderutilized after a minute).

`batch` creates all pods at once. `trace` scales one of forty Deployments every two minutes, mostly up in the first half and
down in the second. "$/h" is what runs at the end, "$" what the whole run was paid, until it was quiet after so many minutes,
"bought" all machines of the run, second purchases and replacements included, "pending" pods without a node at the end,
"planned" what all passes bought together, with what first fit would have bought in the same passes.
"""

import argparse
import random
import sys
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from kubewright import logs
from kubewright.api import aws_labels, duration, labels
from kubewright.api.manifests import Manifest
from kubewright.clock import Clock
from kubewright.settings import Packing, Settings
from kubewright.sim import loop
from kubewright.sim.report import Report
from kubewright.sim.sandbox import Sandbox
from kubewright.sim.scenario import Scale, Step
from tests.plane import kubewright

CPUS = ("100m", "250m", "500m", "1000m", "1500m")
MEMORIES = ("100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi")
APPS = 40
EVERY = timedelta(minutes=2)
SETTLES = timedelta(minutes=20)


def pool() -> dict[str, Any]:
    wanted = [
        _in(aws_labels.INSTANCE_CATEGORY, "c", "m", "r"),
        {"key": aws_labels.INSTANCE_GENERATION, "operator": "Gt", "values": ["5"]},
        _in(labels.ARCH, "amd64"),
        _in(labels.CAPACITY_TYPE, "on-demand"),
        {"key": aws_labels.INSTANCE_CPU, "operator": "Lt", "values": ["49"]},
    ]
    made = kubewright.nodepool("default")
    spec = made["spec"]["template"]["spec"]
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    template = {**made["spec"]["template"], "spec": {**spec, "requirements": wanted}}
    return {**made, "spec": {**made["spec"], "template": template, "disruption": disruption}}


def deployments(rng: random.Random, replicas: list[int]) -> list[dict[str, Any]]:
    found = []
    for index, count in enumerate(replicas):
        container = {
            "name": "main",
            "image": "x",
            "resources": {"requests": {"cpu": rng.choice(CPUS), "memory": rng.choice(MEMORIES)}},
        }
        name = {"app": f"app-{index:02}"}
        template = {"metadata": {"labels": name}, "spec": {"containers": [container]}}
        spec = {"replicas": count, "selector": {"matchLabels": name}, "template": template}
        meta = {"name": name["app"], "namespace": "default"}
        found.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    return found


def batch(rng: random.Random, pods: int) -> tuple[list[dict[str, Any]], list[Step]]:
    return deployments(rng, [pods // APPS] * APPS), []


def trace(rng: random.Random, pods: int, lasts: timedelta) -> tuple[list[dict[str, Any]], list[Step]]:
    sizes = [pods // APPS // 2] * APPS
    objects = deployments(rng, list(sizes))
    steps = []
    for turn in range(1, int(lasts / EVERY) + 1):
        index = rng.randrange(APPS)
        grows = rng.random() < (0.75 if turn * EVERY < lasts / 2 else 0.25)
        sizes[index] = max(1, round(sizes[index] * (1.6 if grows else 0.5)))
        action = Scale(kind="Deployment", name=f"app-{index:02}", namespace="default", replicas=sizes[index])
        steps.append(Step(at=duration.show(turn * EVERY), scale=action))
    return objects, steps


def run(objects: list[dict[str, Any]], steps: list[Step], packing: Packing, lasts: timedelta, seed: int) -> Report:
    async def story() -> Report:
        clock = Clock(loop.EPOCH)
        logs.configure(clock=clock, level="error", outputs=("stderr",))
        box = Sandbox(clock, seed=seed, settings=replace(Settings(cluster_name="sandbox"), packing=packing))
        narrator = box.narrator(lambda _: None)
        async with box.running():
            start = clock.now()
            everything = [kubewright.nodeclass("default"), pool(), *objects]
            box.apply([Manifest("bill", 1, obj) for obj in everything], steps)
            quiet = await box.play(steps, narrator, lasts + SETTLES)
            return box.report(start, narrator, quiet=quiet)

    return loop.run(story(), real_time=False)


def row(kind: str, packing: Packing, found: Report) -> str:
    planned = found.planned
    cells = [
        kind,
        packing.value,
        f"{found.usd_per_hour:.2f}",
        f"{found.usd:.2f}",
        f"{found.elapsed_seconds / 60:.0f}",
        str(len(found.machines)),
        str(len(found.nodes)),
        str(len(found.pending)),
        f"{planned.usd_per_hour:.2f} ({planned.first_fit_usd_per_hour:.2f})",
    ]
    return "| " + " | ".join(cells) + " |"


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lasts = timedelta(hours=given.hours)
    print("| what | packing | $/h at the end | $ in all | minutes | bought | nodes | pending | planned (first fit) |")
    print("|---" * 9 + "|")
    for kind in ("batch", "trace"):
        for packing in (Packing.FIRST_FIT, Packing.IMPROVE):
            rng = random.Random(given.seed)
            objects, steps = batch(rng, given.pods) if kind == "batch" else trace(rng, given.pods, lasts)
            found = run(objects, steps, packing, lasts, given.seed)
            print(row(kind, packing, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
