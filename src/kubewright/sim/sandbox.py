"""The sandbox: the production operator on a pretend cluster and the fake EC2, wired and run from manifests to quiet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubewright.api import crds
from kubewright.api.manifests import Manifest
from kubewright.clock import Clock
from kubewright.cloud.aws.catalogue import Catalogue, embedded
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.errors import KubeError, ManifestError
from kubewright.explain.cost import Cost
from kubewright.explain.karpenter import karpenter_text
from kubewright.explain.why import brief
from kubewright.lifecycle.unused import workload
from kubewright.operator import Operator
from kubewright.operator.disrupting import Disrupts
from kubewright.records.directory import Directory
from kubewright.records.keeper import Keeper
from kubewright.settings import Settings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import ClusterSettings, PretendCluster
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.ec2.instances import Bill
from kubewright.sim.joiner import Joiner, JoinerSettings
from kubewright.sim.narrator import Narrator
from kubewright.sim.plane import selling_region
from kubewright.sim.rehearsal import problems
from kubewright.sim.report import Report, is_over, report
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


class Sandbox:
    """A cluster in memory with the operator on it. `async with` runs it; the block drives it.

    The same seed and the same calls give the same history.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        settings: Settings | None = None,
        known: Catalogue | None = None,
        joining: JoinerSettings | None = None,
        records: Directory | None = None,
        pace: ClusterSettings | None = None,
        disrupter: Disrupts | None = None,
    ) -> None:
        """`known` is what the cloud sells, the embedded catalogue by default, in us-west-2 or its first region.

        `records` takes a record of every pass; `pace` is how fast nodes and pods are; `disrupter` decides about disruption in
        place of our own rules.
        """
        self.clock = clock
        self.settings = settings or Settings(cluster_name="sandbox")
        self.store = Store(clock, seed=seed, crds=tuple(crds.CRDS.values()))
        known = known or embedded()
        self.ec2 = FakeEc2(clock, seed, faults, region=selling_region(known), known=known)
        self.cluster = PretendCluster(self.store, pace)
        self._known = known
        self._joining = joining
        self._seed = seed
        self._failed: list[str] = []
        self._keeper = Keeper(records, self.settings, clock) if records is not None else None
        self._disrupter = disrupter
        self._operator: Operator | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Sandbox"]:
        """Everything runs while the block does; what fails here ends the block, and what the block raises comes out as it is."""
        joiner = Joiner(DirectClient(self.store), self.clock, self._joining, seed=self._seed, died=self.cluster.kill_node)
        self.ec2.on_running(joiner.running)
        self.ec2.on_terminated(joiner.terminated)
        client = DirectClient(self.store)
        provider = AwsProvider(self.ec2, client, self.clock, self.settings, self.ec2.settings, known=self._known)
        operator = self._operator = Operator(
            client, provider, self.settings, self.clock, keeper=self._keeper, disrupter=self._disrupter
        )
        raised: Exception | None = None
        async with self.cluster, asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(joiner.run(), name="joiner"), tasks.create_task(operator.run(), name="operator")]
            try:
                yield self
            except Exception as error:  # noqa: BLE001  # raised again below, outside the group that would wrap it
                raised = error
            finally:
                for task in reversed(work):
                    task.cancel()
        if raised is not None:
            raise raised

    def apply(self, manifests: Sequence[Manifest], steps: Sequence[Step] = ()) -> None:
        """Create or update every object, or none; `steps` are only looked through.

        Raises:
            ManifestError: the API server refuses some of them, or a step cannot be done; nothing was changed.
        """
        found = problems(self.store, manifests, steps)
        if found:
            raise ManifestError(found)
        for manifest in sorted(manifests, key=lambda m: _RANK.get(m.object["kind"], 9)):
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

    def do(self, action: Mapping[str, Any] | Scale | Delete | Interrupt) -> str:
        """Carry out what a scenario's step says; why it could not be done, "" when it was."""
        try:
            match action:
                case Scale():
                    version = self._served(action.kind)
                    self.store.patch(version, action.kind, action.namespace, action.name, {"spec": {"replicas": action.replicas}})
                case Delete():
                    version = self._served(action.kind)
                    space = action.namespace if self.store.kind(version, action.kind).namespaced else ""
                    self.store.delete(version, action.kind, space, action.name)
                case Interrupt():
                    found = self._running(action)[: action.count]
                    for bill in found:
                        self.ec2.interrupt(bill.instance_id)
                    if not found:
                        return f"no {action.capacity_type} machine runs that the cloud could take back"
                case _:
                    self.put(action)
        except KubeError as refused:
            return str(refused)
        return ""

    def price_of(self, provider_id: str) -> float:
        """USD per hour of a machine; 0 when nobody knows it."""
        machine = self.ec2.machines.all.get(provider_id.rpartition("/")[2])
        return (self.ec2.market.price(machine.pool, self.clock.now()) or 0.0) if machine else 0.0

    async def play(self, steps: Sequence[Step], narrator: Narrator, limit: timedelta | None) -> bool:
        """Carry out the steps in their time and go on until the cluster is quiet or `limit` has passed; whether it is quiet.

        Without a limit it goes on until it is cancelled, quiet or not.
        """
        start = self.clock.now()
        waiting = list(steps)
        while limit is None or self.clock.now() - start < limit:
            now = self.clock.now()
            while waiting and now - start >= waiting[0].after:
                step = waiting.pop(0)
                narrator.tell(now, step.say or "a step of the scenario")
                problem = self.do(step.action)
                if problem:
                    self._failed.append(f"{step.where}: {problem}")
                    narrator.tell(now, f"that could not be done: {problem}")
            narrator.tell(now)
            is_still = not waiting and now - narrator.changed_at >= QUIET and not self._busy()
            if is_still and limit is not None:
                return True
            await asyncio.sleep(1)
        return False

    def report(self, start: datetime, narrator: Narrator, *, quiet: bool) -> Report:
        """What there is now, and what everything has cost."""
        elapsed = self.clock.now() - start
        planned = self._operator.provisioner.planned if self._operator is not None else Cost()
        return report(self.store, self.ec2, elapsed, narrator.ran, self._refused(), self._failed, planned, quiet=quiet)

    def _refused(self) -> dict[str, str]:
        """Pod → why the last pass found no place for it; events tell only what the first passes thought of it."""
        last = self._operator.provisioner.last if self._operator is not None else None
        if last is None:
            return {}
        problem, plan = last
        found: dict[str, str] = {}
        known: dict[tuple[str, str], str] = {}
        for pod in problem.pods:
            if pod.key in plan.unplaced:
                told = "; ".join(map(karpenter_text, plan.unplaced[pod.key]))
                alike = (workload(pod), told)
                if alike not in known:
                    known[alike] = brief(problem, plan, pod.key) or told
                found[pod.key] = known[alike]
        return found

    def narrator(self, say: Callable[[str], None]) -> Narrator:
        return Narrator(self.store, self.clock.now(), say, self.price_of)

    def _busy(self) -> bool:
        """Whether something is bound to happen: a Job's pod that will end, a machine that comes or goes."""
        jobs = any(
            o["kind"] == "Job"
            for p in self.store.list("v1", "Pod")[0]
            if not is_over(p)
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
        """The apiVersion a kind is served in."""
        return next(served.api_version for served in self.store.kinds if served.kind == kind)


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
