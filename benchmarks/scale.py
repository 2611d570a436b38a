"""A large cluster from a cold start: how soon the operator is ready, what it holds, and how soon a burst is decided.

    PYTHONPATH=src:. python -m benchmarks.scale                             5,000 nodes, 100,000 pods
    PYTHONPATH=src:. python -m benchmarks.scale --nodes 500 --pods 10000    a first look

The API server is the one in memory, in a process of its own, over HTTP; the operator is `kubewright run` with the example of a
third-party provider (kwok), as a user would start it, on a NodePool that consolidates nothing. What is measured:

- ready: from the start of the process until /readyz answers 200: everything listed, decoded and joined;
- decided: from the closing of the batch (the last of the burst's pods and one second of quiet) to the plan;
- scrape: the time of one scrape of /metrics, with a series for each pod, node and condition;
- blocked: the longest time in which the event loop did not come round, from start to end; a lease is lost after 10 s;
- memory: the most that the operator ever held (VmHWM), and what it holds at the end.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kubewright.api import hash as hashes
from kubewright.api import labels
from kubewright.api.crds import CRDS
from kubewright.api.karpenter import NodePool
from kubewright.clock import Clock
from kubewright.sim.apiserver.http import serve, write_kubeconfig
from kubewright.sim.apiserver.store import Store
from tests.plane.kwok_provider import python_path
from tests.plane.processes import free_ports

TYPE, ZONES = "s-8x-amd64-linux", ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
LONG_AGO = "2026-01-01T00:00:00Z"
PATIENCE_S = 600.0
Item = dict[str, Any]


class Figures(NamedTuple):
    nodes: int
    pods: int
    burst: int
    ready_s: float
    decided_s: float
    scrape_s: float
    scrape_mib: float
    blocked_s: float
    peak_mib: float
    end_mib: float
    bought: int


def main() -> int:
    """Measure and print; the exit code is 1 where a promise is not kept (1 GiB, 60 s, 2 s, 10 s)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--burst", type=int, default=1000)
    asked = parser.parse_args()
    found = measure(asked.nodes, asked.pods, asked.burst)
    for name, value in found._asdict().items():
        print(f"{name:12} {value:,.2f}" if isinstance(value, float) else f"{name:12} {value:,}")
    return int(found.peak_mib > 1024 or found.ready_s > 60 or found.decided_s > 2 or found.blocked_s > 10)


def measure(nodes: int, pods: int, burst: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="kubewright-scale-") as name:
        folder = Path(name)
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=run_server, args=(theirs, nodes, pods))
        server.start()
        try:
            write_kubeconfig(folder / "config", ours.recv())
            return with_operator(folder, ours, nodes, pods, burst)
        finally:
            server.terminate()
            server.join()


def with_operator(folder: Path, server: Connection, nodes: int, pods: int, burst: int) -> Figures:
    metrics, health = free_ports(2)
    log = folder / "operator.log"
    argv = [sys.executable, "-m", "kubewright", "run", "--cloud=kwok", f"--kubeconfig={folder / 'config'}"]
    argv += ["--disable-leader-election", f"--metrics-port={metrics}", f"--health-probe-port={health}"]
    env = {**os.environ, "PYTHONPATH": python_path(folder / "installed")}
    began = time.monotonic()
    with log.open("wb") as out, subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            until(lambda: answers(f"http://127.0.0.1:{health}/readyz"), process, log)
            ready_s = time.monotonic() - began
            until(lambda: "starting to act" in log.read_text(encoding="utf-8"), process, log)
            time.sleep(3)  # the first looks at every object
            server.send(burst)
            last = server.recv()
            until(lambda: planned_at(log) is not None, process, log)
            planned = planned_at(log)
            assert planned is not None
            before = time.monotonic()
            page = fetch(f"http://127.0.0.1:{metrics}/metrics")
            scrape_s = time.monotonic() - before
            page = fetch(f"http://127.0.0.1:{metrics}/metrics")
            peak, end = memory_mib(process.pid)
            return Figures(
                nodes,
                pods,
                burst,
                ready_s,
                planned - (last + 1.0),
                scrape_s,
                len(page) / 2**20,
                gauge(page, "kubewright_event_loop_longest_block_seconds"),
                peak,
                end,
                sum('"created nodeclaim"' in line for line in log.read_text(encoding="utf-8").splitlines()),
            )
        finally:
            process.send_signal(signal.SIGTERM)


def until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"the operator did not get there; it said last:\n{log.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(0.05)


def planned_at(log: Path) -> float | None:
    """When the first plan was there, as seconds of the epoch."""
    for line in log.read_text(encoding="utf-8").splitlines():
        if '"planned machines"' in line:
            return datetime.fromisoformat(json.loads(line)["time"]).timestamp()
    return None


def fetch(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as response:
        body: bytes = response.read()
        return body


def answers(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


def gauge(page: bytes, name: str) -> float:
    return next(float(line.split()[1]) for line in page.decode().splitlines() if line.startswith(name + " "))


def memory_mib(pid: int) -> tuple[float, float]:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))  # type: ignore[return-value]


# --- the cluster -------------------------------------------------------------------------------------------------------------


def run_server(control: Connection, nodes: int, pods: int) -> None:
    asyncio.run(_serve(control, nodes, pods))


async def _serve(control: Connection, nodes: int, pods: int) -> None:
    store = Store(Clock(), crds=[*(CRDS[name] for name in sorted(CRDS)), kwok_definition()])
    furnish(store, nodes, pods)
    server = await serve(store)
    control.send(server.url)
    loop = asyncio.get_running_loop()
    burst = await loop.run_in_executor(None, control.recv)
    for index in range(burst):
        put(store, pending(index))
        if index % 50 == 0:
            await asyncio.sleep(0)
    control.send(time.time())
    await asyncio.Event().wait()


def kwok_definition() -> Item:
    """As much of KWOKNodeClass's definition as a server needs to keep one."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": anything},
    }
    names = {"kind": "KWOKNodeClass", "listKind": "KWOKNodeClassList", "plural": "kwoknodeclasses", "singular": "kwoknodeclass"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "kwoknodeclasses.karpenter.kwok.sh"},
        "spec": {"group": "karpenter.kwok.sh", "names": names, "scope": "Cluster", "versions": [version]},
    }


def furnish(store: Store, nodes: int, pods: int) -> None:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    ready = [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": LONG_AGO}]
    put(
        store,
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "status": {"conditions": ready},
        },
    )
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    ]
    template = {"spec": {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "Never"}}
    spec = {"template": template, "disruption": {"consolidateAfter": "Never"}}
    hashed = hashes.node_pool_hash(msgspec.convert({"metadata": {"name": "default"}, "spec": spec}, NodePool))
    marks = {labels.NODEPOOL_HASH: hashed, labels.NODEPOOL_HASH_VERSION: hashes.NODE_POOL_HASH_VERSION}
    true = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": LONG_AGO, "observedGeneration": 1}
        for kind in ("ValidationSucceeded", "NodeClassReady", "NodeRegistrationHealthy", "Ready")
    ]
    put(
        store,
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default", "annotations": marks},
            "spec": spec,
            "status": {"conditions": true, "nodeClassObservedGeneration": 1},
        },
    )
    for index in range(nodes):
        for one in machine(index, reference, marks):
            put(store, one)
    for index in range(pods):
        put(store, bound(index, f"node-{index % nodes:05d}"))


def put(store: Store, obj: Item) -> None:
    """Keep an object as the server would have it after a while; its checks would take longer than what is measured."""
    kind = store.kind(obj["apiVersion"], obj["kind"])
    meta = obj["metadata"]
    meta |= {"uid": store.names.uid(), "creationTimestamp": LONG_AGO, "generation": 1}
    store._write("create", kind, (meta.get("namespace", ""), meta["name"]), obj)  # noqa: SLF001


def machine(index: int, reference: Item, marks: Item) -> tuple[Item, Item]:
    """A NodeClaim and its Node, as they stand after a good life of some weeks."""
    name = f"node-{index:05d}"
    carried = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.kwok.sh/kwoknodeclass": "default",
        "node.kubernetes.io/instance-type": TYPE,
        "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "karpenter.kwok.sh/instance-cpu": "8",
        "karpenter.kwok.sh/instance-family": "s",
        "karpenter.kwok.sh/instance-memory": "32Gi",
        "karpenter.kwok.sh/instance-size": "8",
    }
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "128", "ephemeral-storage": "20Gi"}
    left = {**amounts, "cpu": "7900m", "memory": "33544192Ki"}
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": LONG_AGO, "observedGeneration": 1}
        for kind in ("Launched", "Registered", "Initialized", "ConsistentStateFound", "Ready")
    ]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": f"default-{index:05d}",
            "labels": carried,
            "annotations": marks,
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {
            "nodeClassRef": reference,
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPE]}],
            "expireAfter": "Never",
            "resources": {"requests": {"cpu": "5", "memory": "5Gi", "pods": "20"}},
        },
        "status": {
            "providerID": f"kwok://{name}",
            "nodeName": name,
            "capacity": amounts,
            "allocatable": left,
            "conditions": conditions,
        },
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                **carried,
                "kubernetes.io/hostname": name,
                "karpenter.sh/registered": "true",
                "karpenter.sh/initialized": "true",
            },
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {"providerID": f"kwok://{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": left,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": LONG_AGO}],
        },
    }
    return claim, node


def pod(name: str, app: str, cpu: str) -> Item:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-5d4f8c7b9", "uid": app, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": app, "pod-template-hash": "5d4f8c7b9"},
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "registry.example/app@sha256:" + "ab" * 32,
                    "env": [{"name": f"VARIABLE_{i}", "value": f"value of variable {i}"} for i in range(10)],
                    "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                }
            ]
        },
    }


def bound(index: int, node: str) -> Item:
    made = pod(f"app-{index // 50:05d}-{index:06d}", f"app-{index // 50:05d}", "380m")  # twenty fill a machine
    made["spec"]["nodeName"] = node
    made["status"] = {
        "phase": "Running",
        "startTime": LONG_AGO,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": LONG_AGO} for kind in ("PodScheduled", "Ready")],
    }
    return made


def pending(index: int) -> Item:
    """One of a burst: twenty workloads, some spread over zones."""
    app = f"burst-{index % 20:02d}"
    made = pod(f"{app}-{index:05d}", app, f"{500 + 250 * (index % 4)}m")
    if index % 20 < 5:
        made["spec"]["topologySpreadConstraints"] = [
            {
                "topologyKey": "topology.kubernetes.io/zone",
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now}
    made["status"] = {"phase": "Pending", "conditions": [refused]}
    return made


if __name__ == "__main__":
    sys.exit(main())
