"""Karpenter itself on the real plane, through a short trace in real time: what the model must come near to."""

import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import offered
from benchmarks.trace import workload
from benchmarks.trace.ledger import Account
from benchmarks.trace.workload import Shape
from kubewright.api import labels
from kubewright.sim.scenario import Scale
from tests.plane import karpenter
from tests.plane.plane import Plane

BATCH = {"BATCH_IDLE_DURATION": "1s", "BATCH_MAX_DURATION": "10s"}
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"
ASK_EVERY_S = 0.5


def play(shape: Shape, settle: timedelta) -> Account:
    """The trace from its beginning, on a fresh plane; takes as long as it says."""
    types = workload.types(shape)
    with tempfile.TemporaryDirectory(prefix="kubewright-trace-") as scratch, Plane() as plane:
        file = karpenter.write_instance_types(Path(scratch) / "types.json", offered.for_karpenter(types))
        with karpenter.Karpenter(plane, instance_types=file, env=BATCH) as theirs:
            for obj in workload.manifests(shape, {}, pool(shape, (t.name for t in types))):
                if obj:
                    plane.create(_PATHS[obj["kind"]], obj)
            book = Book(plane, offered.prices(types), shape)
            book.watch(until_s=settle.total_seconds())
            book.begin()
            for step in workload.steps(shape):
                book.watch(until_s=settle.total_seconds() + step.after.total_seconds())
                assert isinstance(step.action, Scale)
                path = f"{DEPLOYMENTS}/{step.action.name}"
                plane.request("PATCH", path, {"spec": {"replicas": step.action.replicas}}, content_type=MERGE).body_or_raise()
            book.watch(until_s=(settle + shape.length).total_seconds())
            return book.close(evictions(theirs.metrics_url))


class Book:
    """Looks at the plane twice a second, and adds up."""

    def __init__(self, plane: Plane, prices: Mapping[tuple[str, str, str], float], shape: Shape) -> None:
        self._plane, self._prices, self._shape = plane, prices, shape
        self._start = time.monotonic()
        self._last: float | None = None
        self._seen: set[str] = set()
        self._usd = self._waited = 0.0
        self._minutes: list[tuple[int, float]] = []
        self._next = float("inf")

    def begin(self) -> None:
        """The trace begins: from now on each beat of its churn is noted."""
        self._next = time.monotonic() + self._beat

    @property
    def _beat(self) -> float:
        return min(60.0, self._shape.churn_every.total_seconds())

    def watch(self, until_s: float) -> None:
        """Look on until so long after the beginning."""
        while time.monotonic() - self._start < until_s:
            self._look()
            time.sleep(ASK_EVERY_S)

    def _look(self) -> None:
        nodes = self._plane.get(NODES)["items"]
        pods = self._plane.get(PODS)["items"]
        now = time.monotonic()
        past, self._last = 0.0 if self._last is None else now - self._last, now
        rate = sum(self._price(n["metadata"]["labels"]) for n in nodes)
        self._usd += rate * past / 3600
        self._seen |= {n["metadata"]["uid"] for n in nodes}
        waiting = sum(not p["spec"].get("nodeName") and "deletionTimestamp" not in p["metadata"] for p in pods)
        self._waited += waiting * past
        if now >= self._next:
            self._next += self._beat
            self._minutes.append((len(nodes), rate))

    def _price(self, carried: Mapping[str, str]) -> float:
        return self._prices[carried[labels.INSTANCE_TYPE], carried[labels.ZONE], carried[labels.CAPACITY_TYPE]]

    def close(self, evicted: int) -> Account:
        return Account(
            usd=self._usd,
            evictions=evicted,
            launches=len(self._seen),
            pending_pod_seconds=self._waited,
            nodes=tuple(n for n, _ in self._minutes),
            usd_per_hour=tuple(r for _, r in self._minutes),
        )


def evictions(url: str) -> int:
    """Those the API server granted, by Karpenter's own count."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    mine = [line for line in lines if line.startswith("karpenter_pods_eviction_requests_total{") and 'code="200"' in line]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in mine))


def pool(shape: Shape, names: Iterable[str]) -> dict[str, Any]:
    """The trace's NodePool on Karpenter's kwok provider."""
    made = workload.node_pool(shape, names)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    made["spec"]["template"]["spec"]["nodeClassRef"] = reference
    return made


_PATHS = {"NodePool": karpenter.NODEPOOLS, "Deployment": DEPLOYMENTS, "PodDisruptionBudget": BUDGETS}
