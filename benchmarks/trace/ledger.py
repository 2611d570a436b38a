"""What a run has cost the people who run it: money, evictions, launches, and pods that waited."""

from datetime import datetime, timedelta

import msgspec

from kubewright.clock import Clock
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.store import Store
from kubewright.sim.ec2 import FakeEc2


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One side's figures."""

    usd: float
    evictions: int
    """Pods that were asked to go through the eviction API, or by force."""
    launches: int
    """Machines bought."""
    pending_pod_seconds: float
    """Seconds that pods were without a node, added up."""
    nodes: tuple[int, ...]
    """Nodes that ran at the end of each minute."""
    usd_per_hour: tuple[float, ...]
    """Of what ran at the end of each minute."""


class Ledger:
    """Listens to a store from its beginning."""

    def __init__(self, store: Store, ec2: FakeEc2, clock: Clock) -> None:
        self._store, self._ec2, self._clock = store, ec2, clock
        self._waiting: dict[str, datetime] = {}
        self._waited = timedelta()
        self._evicted: set[str] = set()
        self._nodes: list[int] = []
        self._rates: list[float] = []
        store.on_written(self._written)

    def _written(self, verb: str, kind: Kind, key: str) -> None:
        if kind.kind != "Pod":
            return
        namespace, _, name = key.partition("/")
        pod = self._store.table(kind).get((namespace, name))
        now = self._clock.now()
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            since = self._waiting.pop(key, None)
            if since is not None:
                self._waited += now - since
        else:
            self._waiting.setdefault(key, now)
        if pod is not None and verb == "update":
            conditions = pod.get("status", {}).get("conditions") or ()
            if any(c["type"] == "DisruptionTarget" and c["reason"] == "EvictionByEvictionAPI" for c in conditions):
                self._evicted.add(pod["metadata"]["uid"])

    def minute(self) -> None:
        """Note what runs now."""
        running = [b for b in self._ec2.costs() if b.end is None]
        self._nodes.append(len(running))
        self._rates.append(sum(b.usd_per_hour for b in running))

    def close(self) -> Account:
        now = self._clock.now()
        waited = self._waited + sum((now - since for since in self._waiting.values()), timedelta())
        bills = self._ec2.costs()
        return Account(
            usd=sum(b.usd for b in bills),
            evictions=len(self._evicted),
            launches=len(bills),
            pending_pod_seconds=waited.total_seconds(),
            nodes=tuple(self._nodes),
            usd_per_hour=tuple(self._rates),
        )
