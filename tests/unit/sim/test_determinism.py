"""The same story under another hash seed, in another process, writes the same things in the same order."""

import os
import subprocess
import sys
from pathlib import Path

from kubewright.clock import Clock
from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import ClusterSettings, PretendCluster
from kubewright.sim.kubelet import KubeletDelays
from tests.unit.sim.builders import ZONE, job, node, play, ready, workload

ROOT = Path(__file__).parents[3]


def history() -> list[str]:
    """Every write of a story with a bit of everything, with what was written."""

    async def story(store: Store, cluster: PretendCluster) -> list[str]:
        lines: list[str] = []

        def note(verb: str, kind: object, key: str) -> None:
            lines.append(f"{verb} {kind.kind} {key} {store.version}")  # type: ignore[attr-defined]

        store.on_written(note)
        for number in range(6):
            taints = [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"}] if number == 5 else []
            store.create(node(f"n{number}", zone="abc"[number % 3], ready=number % 2 == 0, taints=taints))
        rule = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {}}}
        store.create(workload("Deployment", replicas=14, pods={"topologySpreadConstraints": [rule]}))
        store.create(workload("StatefulSet", "db", replicas=3))
        store.create(workload("DaemonSet", "agent", replicas=None))
        store.create(job(parallelism=5, completions=9))
        await loop.at(45)
        cluster.kill_node("n2")
        store.patch("apps/v1", "Deployment", "default", "web", {"spec": {"replicas": 30}})
        await loop.at(100)
        store.delete("v1", "Node", "", "n2")
        store.patch("apps/v1", "Deployment", "default", "web", {"spec": {"replicas": 2}})
        await loop.at(500)
        everything = [p["metadata"]["name"] + p["spec"].get("nodeName", "") for p in store.list("v1", "Pod")[0]]
        return lines + everything

    found: list[str] = play(story, seed=3)
    return found


def test_hash_order_decides_nothing() -> None:
    program = "from tests.unit.sim.test_determinism import history; print('\\n'.join(history()))"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0].count("\n") > 300
    assert outputs[0] == outputs[1]


def test_the_cluster_runs_on_the_wall_clock_too() -> None:
    async def story() -> int:
        store = Store(Clock())
        at_once = ClusterSettings(kubelet=KubeletDelays(boot_s=0, start_s=0, run_s=0, stop_s=0))
        async with PretendCluster(store, at_once):
            store.create(node("n1", ready=False))
            store.create(workload("Deployment"))
            await loop.until(lambda: len(ready(store)) == 3, within_s=30, every_s=0.005)
            return len(ready(store))

    assert loop.run(story(), real_time=True) == 3
