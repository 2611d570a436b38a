"""The sandbox: the production operator on a pretend cluster and the fake EC2, wired and run from manifests to quiet."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubewright.api import crds, labels
from kubewright.api.manifests import Manifest
from kubewright.clock import Clock
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.errors import KubeError, ManifestError
from kubewright.operator import Operator
from kubewright.settings import Settings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.ec2.machines import Bill
from kubewright.sim.joiner import Joiner
from kubewright.sim.narrator import Narrator, workload
from kubewright.sim.scenario import Delete, Interrupt, Scale, Step

QUIET = timedelta(seconds=150)
"""Nothing told for this long, and nothing under way: the run is over."""

PRESETS: Mapping[str, Faults] = {
    "none": Faults(),
    "spot-storm": Faults(interruptions_per_hour=6.0),
    "scarce": Faults(dry_share=0.5, pool_size=2),
    "throttled": Faults(calls_per_s=1.0, calls_burst=2),
    "flaky": Faults(fail_before=0.1, fail_after=0.1, describe_lag_s=20.0),
}
"""What can be made hard, by name."""


class NodeRow(msgspec.Struct, frozen=True):
    """A node as the closing table shows it."""

    name: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    pods: Mapping[str, int]
    """Workload → pods on it."""
    usd_per_hour: float


class Report(msgspec.Struct, frozen=True):
    """What a run came to."""

    elapsed: timedelta
    """Simulated."""
    nodes: Sequence[NodeRow]
    bills: Sequence[Bill]
    ran: Mapping[str, Mapping[str, int]]
    """NodeClaim → workload → pods that ran there at any time."""
    pending: Mapping[str, str]
    """Pod → why it has no node."""
    limit_reached: bool
    """The time was up before the cluster was quiet."""


class Sandbox:
    """A cluster in memory with the operator on it. `async with` runs it; the block drives it.

    The same seed and the same calls give the same history.
    """

    def __init__(self, clock: Clock, *, seed: int = 0, faults: Faults | None = None, settings: Settings | None = None) -> None:
        self.clock = clock
        self.settings = settings or Settings(cluster_name="sandbox")
        self.store = Store(clock, seed=seed, crds=tuple(crds.CRDS.values()))
        self.ec2 = FakeEc2(clock, seed, faults)
        self.cluster = PretendCluster(self.store)
        self._seed = seed

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Sandbox"]:
        """Everything runs while the block does; what fails ends the block with its error."""
        joiner = Joiner(DirectClient(self.store), self.clock, seed=self._seed, died=self.cluster.kill_node)
        self.ec2.on_running(joiner.running)
        self.ec2.on_terminated(joiner.terminated)
        client = DirectClient(self.store)
        provider = AwsProvider(self.ec2, client, self.clock, self.settings, self.ec2.settings)
        operator = Operator(client, provider, self.settings, self.clock)
        async with self.cluster, asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(joiner.run(), name="joiner"), tasks.create_task(operator.run(), name="operator")]
            try:
                yield self
            finally:
                for task in reversed(work):
                    task.cancel()

    def apply(self, manifests: Sequence[Manifest]) -> None:
        """Create or update every object, or none.

        Raises:
            ManifestError: the API server refuses some of them; nothing was changed.
        """
        ordered = sorted(manifests, key=lambda m: _RANK.get(m.object["kind"], 9))
        made = {m.object["metadata"]["name"] for m in ordered if m.object["kind"] == "Namespace"}
        problems = [p for m in ordered for p in self._refusals(m, made)]
        if problems:
            raise ManifestError(problems)
        for manifest in ordered:
            self.put(manifest.object)

    def put(self, obj: Mapping[str, Any]) -> None:
        """Create the object, or bring the one that is there to it."""
        kind = self.store.kind(obj["apiVersion"], obj["kind"])
        whole = _in_namespace(obj) if kind.namespaced else dict(obj)
        there = self.store.table(kind).get((whole["metadata"].get("namespace", ""), whole["metadata"]["name"]))
        if there is None:
            self.store.create(whole, strict=True)
        else:
            self.store.patch(
                obj["apiVersion"],
                obj["kind"],
                whole["metadata"].get("namespace", ""),
                whole["metadata"]["name"],
                {key: whole[key] for key in whole if key not in ("apiVersion", "kind", "status")},
            )

    def do(self, action: Mapping[str, Any] | Scale | Delete | Interrupt) -> None:
        """Carry out what a scenario's step says."""
        match action:
            case Scale():
                version = self._served(action.kind)
                self.store.patch(version, action.kind, action.namespace, action.name, {"spec": {"replicas": action.replicas}})
            case Delete():
                self.store.delete(self._served(action.kind), action.kind, action.namespace, action.name)
            case Interrupt():
                for bill in self._running(action)[: action.count]:
                    self.ec2.interrupt(bill.instance_id)
            case _:
                self.put(action)

    def price_of(self, provider_id: str) -> float:
        """USD per hour of a machine; 0 when nobody knows it."""
        machine = self.ec2.machines.all.get(provider_id.rpartition("/")[2])
        return (self.ec2.market.price(machine.pool, self.clock.now()) or 0.0) if machine else 0.0

    async def play(self, steps: Sequence[Step], narrator: Narrator, limit: timedelta) -> bool:
        """Carry out the steps in their time and go on until the cluster is quiet or `limit` has passed; whether it is quiet."""
        start = self.clock.now()
        waiting = list(steps)
        while self.clock.now() - start < limit:
            now = self.clock.now()
            while waiting and now - start >= waiting[0].after:
                step = waiting.pop(0)
                narrator.tell(now, step.say or "a step of the scenario")
                assert step.action is not None
                self.do(step.action)
            narrator.tell(now)
            if not waiting and now - narrator.changed_at >= QUIET and not self._busy():
                return True
            await asyncio.sleep(1)
        return False

    def report(self, start: datetime, narrator: Narrator, *, limit_reached: bool) -> Report:
        """What there is now, and what everything has cost."""
        claims = {c["status"].get("providerID"): c for c in self.store.list("karpenter.sh/v1", "NodeClaim")[0]}
        rows, pods = [], self.store.list("v1", "Pod")[0]
        for node in self.store.list("v1", "Node")[0]:
            name, known = node["metadata"]["name"], node["metadata"].get("labels", {})
            here = Counter(workload(p) for p in pods if p["spec"].get("nodeName") == name and not _ended(p))
            claim = claims.get(node["spec"].get("providerID"))
            rows.append(
                NodeRow(
                    claim["metadata"]["name"] if claim else name,
                    known.get(labels.NODEPOOL, ""),
                    known.get(labels.INSTANCE_TYPE, ""),
                    known.get(labels.ZONE, ""),
                    known.get(labels.CAPACITY_TYPE, ""),
                    dict(sorted(here.items())),
                    self.price_of(node["spec"].get("providerID", "")),
                )
            )
        pending = {
            f"{p['metadata']['namespace']}/{p['metadata']['name']}": _why(p) for p in pods if not p["spec"].get("nodeName")
        }
        return Report(
            self.clock.now() - start,
            sorted(rows, key=lambda r: (r.node_pool, r.name)),
            self.ec2.costs(),
            narrator.ran,
            pending,
            limit_reached,
        )

    def narrator(self, say: Callable[[str], None]) -> Narrator:
        return Narrator(self.store, self.clock.now(), say, self.price_of)

    def _busy(self) -> bool:
        """Whether something is bound to happen: a Job's pod that will end, a machine that comes or goes."""
        jobs = any(
            o["kind"] == "Job"
            for p in self.store.list("v1", "Pod")[0]
            if not _ended(p)
            for o in p["metadata"].get("ownerReferences", ())
        )
        claims = self.store.list("karpenter.sh/v1", "NodeClaim")[0]
        moving = any(
            c["metadata"].get("deletionTimestamp")
            or not any(x["type"] == "Initialized" and x["status"] == "True" for x in c.get("status", {}).get("conditions", ()))
            for c in claims
        )
        return jobs or moving

    def _running(self, wanted: Interrupt) -> list[Bill]:
        return sorted(
            (
                b
                for b in self.ec2.costs()
                if b.end is None and b.capacity_type == wanted.capacity_type and wanted.node_pool in ("", b.node_pool)
            ),
            key=lambda b: (b.start, b.instance_id),
        )

    def _served(self, kind: str) -> str:
        """The apiVersion a kind is served in. Raises ManifestError: nothing serves it."""
        for served in self.store.kinds:
            if served.kind == kind:
                return served.api_version
        raise ManifestError([f"Scenario: kind {kind!r} is not served here; write for example Deployment, StatefulSet or Job"])

    def _refusals(self, manifest: Manifest, namespaces: set[str]) -> list[str]:
        obj = manifest.object
        where = f"{manifest.file}:{manifest.line}: {obj['kind']} {obj['metadata'].get('name', '')!r}"
        kind = self.store.kind(obj["apiVersion"], obj["kind"])
        whole = _in_namespace(obj) if kind.namespaced else dict(obj)
        space = whole["metadata"].get("namespace", "")
        if space in namespaces:
            # It comes with the same manifests; ask about the object as if it were there.
            whole = {**whole, "metadata": {**whole["metadata"], "namespace": "default"}}
        elif kind.namespaced and self.store.table(self.store.kind("v1", "Namespace")).get(("", space)) is None:
            mend = f"  apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: {space}"
            return [f"{where}: metadata.namespace: found {space!r}, which does not exist; add\n{mend}"]
        try:
            self.store.create(whole, strict=True, dry_run=True)
        except KubeError as refused:
            if refused.reason == "AlreadyExists":
                return []
            return [f"{where}: {refused.message}"]
        return []


_RANK = {
    "Namespace": 0,
    "CustomResourceDefinition": 1,
    "PriorityClass": 2,
    "StorageClass": 2,
    "EC2NodeClass": 3,
    "NodePool": 4,
    "DaemonSet": 5,
}


def _in_namespace(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "namespace": obj["metadata"].get("namespace") or "default"}}


def _ended(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _why(pod: Mapping[str, Any]) -> str:
    found = next((c for c in pod.get("status", {}).get("conditions", ()) if c["type"] == "PodScheduled"), None)
    return str(found.get("message", "")) if found else "not looked at yet"
