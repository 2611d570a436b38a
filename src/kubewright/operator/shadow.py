"""`kubewright run --shadow`: decide beside whoever runs the cluster, write nothing, and keep the score of both.

What would have been bought is decided when a batch closes, on the cluster as it was when the batch began, so that the machines
which the other one buys meanwhile do not answer the question. A pod is bought for once; a node is removed once.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
import structlog

from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import Object
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.controllers.batcher import Batcher
from kubewright.disruption.candidates import price_of
from kubewright.disruption.commands import Command
from kubewright.disruption.memory import Memory
from kubewright.errors import KubewrightError
from kubewright.kube.client import KubeClient
from kubewright.lifecycle import claims, pods
from kubewright.metrics import Registry
from kubewright.operator.deciding import Solver
from kubewright.operator.disrupting import Disrupter
from kubewright.settings import Settings
from kubewright.solver.problem import PlannedClaim, Problem, Snapshot, StateNode
from kubewright.state.mirror import Mirror

T = TypeVar("T", bound=Object)

LOOK_EVERY = timedelta(seconds=10)
"""Between two looks for nodes to remove; as the reference polls."""
AGAIN_AFTER = timedelta(minutes=15)
"""A pod that still waits so long after a machine was decided on for it is decided on anew."""
RECENT = 100
US, OTHER = "kubewright", "cluster"


class WroteInShadow(KubewrightError):
    """Something tried to write although nothing may."""


class ReadOnly:
    """A `KubeClient` of which only the reading half works, for the provider too."""

    def __init__(self, client: KubeClient) -> None:
        self.get, self.list, self.watch, self.close = client.get, client.list, client.watch, client.close

    async def create(self, obj: T) -> T:
        raise WroteInShadow(f"create {obj.key}")

    async def patch(self, kind: type[T], name: str, *_: Any, **__: Any) -> T:
        raise WroteInShadow(f"patch {kind.RESOURCE.kind} {name}")

    async def delete(self, kind: type[T], name: str, *_: Any, **__: Any) -> None:
        raise WroteInShadow(f"delete {kind.RESOURCE.kind} {name}")

    async def evict(self, name: str, namespace: str, **_: Any) -> None:
        raise WroteInShadow(f"evict {namespace}/{name}")


class Sum(msgspec.Struct):
    nodes: int = 0
    usd_per_hour: float = 0.0

    def add(self, usd_per_hour: float, nodes: int = 1) -> None:
        self.nodes += nodes
        self.usd_per_hour += usd_per_hour


class Side(msgspec.Struct):
    """What one of the two did, or would have done, since the start."""

    bought: Sum = msgspec.field(default_factory=Sum)
    removed: Sum = msgspec.field(default_factory=Sum)


class Decision(msgspec.Struct, frozen=True):
    at: datetime
    what: str
    """"buy" or "remove"."""
    why: str
    node_pool: str
    machines: tuple[str, ...]
    pods: int
    usd_per_hour: float


class Score(msgspec.Struct):
    """What /shadow serves."""

    since: datetime
    kubewright: Side = msgspec.field(default_factory=Side)
    """What would have been bought and removed."""
    cluster: Side = msgspec.field(default_factory=Side)
    """What whoever runs the cluster did buy and remove."""
    unplaced_pods: int = 0
    """Of the last batch."""
    recent: list[Decision] = msgspec.field(default_factory=list)
    """The newest last; at most `RECENT`."""

    def note(self, decided: Decision) -> None:
        self.recent.append(decided)
        del self.recent[:-RECENT]


class Shadow:
    """Make it and run it in one event loop. `client` and `provider` belong to the caller, who closes them."""

    def __init__(
        self, client: KubeClient, provider: CloudProvider, settings: Settings, clock: Clock, registry: Registry | None = None
    ) -> None:
        self.registry = registry or Registry()
        self.mirror = Mirror(client, provider, clock, settings)
        self.score: Score | None = None
        self._clock = clock
        self._solver = Solver(settings, provider)
        self._disrupter = Disrupter(settings, provider)
        self._batcher = Batcher(settings.batch_idle_duration, settings.batch_max_duration)
        self._memory = Memory()
        self._began: datetime | None = None
        """When the batch that is being gathered began."""
        self._bought_for: dict[str, datetime] = {}
        """Pod UID → when a machine was decided on for it."""
        self._removed: dict[str, None] = {}
        """ProviderIDs that would be gone."""
        self._others: dict[str, float] = {}
        """NodeClaim UID → $/h of what the other one bought."""
        self._log = structlog.get_logger("kubewright.shadow")

    async def run(self) -> None:
        """Watch and decide until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.mirror.run(), name="mirror")
            tasks.create_task(self._decide(), name="decisions")

    async def _decide(self) -> None:
        await self.mirror.wait_synced()
        await self.mirror.refresh_pools()
        self.score = Score(self._clock.now())
        for claim in self.mirror.node_claims.objects.values():
            self._others[claim.metadata.uid] = -1.0  # was there before us
        self.mirror.pods.subscribe(self._pod_changed)
        self.mirror.node_claims.subscribe(self._claim_changed)
        self._measure()
        self._log.info("the mirror is complete, deciding without acting")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._buy_forever(), name="buying")
            tasks.create_task(self._look_forever(), name="looking")

    # --- buying ----------------------------------------------------------------------------------------------------------

    async def _buy_forever(self) -> None:
        while True:
            await self._batcher.wait()
            began, self._began = self._began, None
            await self.mirror.refresh_pools()
            now = self._clock.now()
            snapshot = as_of(self.mirror.snapshot(now), began or now)
            problem, _ = self._solver.ask(snapshot)
            problem = self._undecided(problem, now)
            if problem.pods:
                plan = await asyncio.to_thread(self._solver.decide, problem)
                assert self.score is not None
                self.score.unplaced_pods = len(plan.unplaced)
                uids = {pod.key: pod.metadata.uid for pod in problem.pods}
                placed = [key for keys in plan.existing.values() for key in keys]
                for key in (*placed, *(key for claim in plan.claims for key in claim.pods)):
                    self._bought_for[uids.get(key, key)] = now
                for claim in plan.claims:
                    self._buy(claim, "pods that wait", now)
                self._measure()

    def _buy(self, planned: PlannedClaim, why: str, now: datetime) -> None:
        assert self.score is not None
        self.score.kubewright.bought.add(planned.usd_per_hour)
        machine = planned.instance_types[0] if planned.instance_types else ""
        decided = Decision(now, "buy", why, planned.node_pool, (machine,), len(planned.pods), planned.usd_per_hour)
        self.score.note(decided)
        self._log.info("would buy a machine", NodePool=planned.node_pool, machine=machine, pods=len(planned.pods), why=why)

    def _undecided(self, problem: Problem, now: datetime) -> Problem:
        for uid, at in list(self._bought_for.items()):
            if now - at >= AGAIN_AFTER:
                del self._bought_for[uid]
        kept = tuple(pod for pod in problem.pods if pod.metadata.uid not in self._bought_for)
        return msgspec.structs.replace(problem, pods=kept)

    # --- removing --------------------------------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            snapshot = self.mirror.snapshot(self._clock.now())
            found = await asyncio.to_thread(self._disrupter.look, snapshot, self._memory)
            self._memory = found.memory
            for command in found.commands:
                self._remove(command, snapshot.now)
            self._measure()

    def _remove(self, command: Command, now: datetime) -> None:
        assert self.score is not None
        if any(c.provider_id in self._removed for c in command.candidates):
            return
        self._removed.update(dict.fromkeys(c.provider_id for c in command.candidates))
        spent = sum(c.usd_per_hour for c in command.candidates)
        self.score.kubewright.removed.add(spent, len(command.candidates))
        names = tuple(c.name for c in command.candidates)
        pools = ", ".join(sorted({c.pool.name for c in command.candidates}))
        moved = sum(len(c.movers) for c in command.candidates)
        self.score.note(Decision(now, "remove", command.reason.value, pools, names, moved, spent))
        self._log.info("would disrupt", command=str(command))
        for planned in command.replacements:
            self._buy(planned, command.reason.value, now)

    # --- what the other one does -----------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and pods.is_provisionable(new):
            if new.metadata.uid not in self._bought_for:
                self._began = self._began or self._clock.now()
                self._batcher.trigger(new.metadata.uid)
        elif old is not None and (new is None or new.spec.node_name):
            self._bought_for.pop(old.metadata.uid, None)

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        assert self.score is not None
        if new is not None:
            uid = new.metadata.uid
            if (
                uid not in self._others
                and claims.is_set(new, claims.LAUNCHED)
                and self.mirror.is_managed(new.spec.node_class_ref)
            ):
                self._others[uid] = self._price(new)
                self.score.cluster.bought.add(self._others[uid])
                self._measure()
        elif old is not None and self.mirror.is_managed(old.spec.node_class_ref):
            known = self._others.pop(old.metadata.uid, None)
            self._removed.pop(old.status.provider_id, None)
            if known is not None:
                self.score.cluster.removed.add(known if known >= 0 else self._price(old))
                self._measure()

    def _price(self, claim: NodeClaim) -> float:
        pool = self.mirror.offers(claims.pool_of(claim))
        return price_of(StateNode(None, claim), pool) if pool is not None else 0.0

    # --- what is shown ---------------------------------------------------------------------------------------------------

    @property
    def ready_checks(self) -> Mapping[str, Any]:
        """For /readyz."""
        return {"caches": lambda: self.score is not None}

    def as_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.score), indent=2) if self.score is not None else b"null"

    def as_table(self) -> str:
        """The score for people."""
        if self.score is None:
            return "The cluster is still being read.\n"
        rows = [("", "bought", "$/h", "removed", "$/h", "net $/h")]
        for name, side in ((US, self.score.kubewright), (OTHER, self.score.cluster)):
            net = side.bought.usd_per_hour - side.removed.usd_per_hour
            rows.append(
                (
                    f"{name} (would have)" if name == US else f"{name} (did)",
                    str(side.bought.nodes),
                    f"{side.bought.usd_per_hour:.4f}",
                    str(side.removed.nodes),
                    f"{side.removed.usd_per_hour:.4f}",
                    f"{net:+.4f}",
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        return f"Since {self.score.since:%Y-%m-%d %H:%M:%S} UTC\n" + "\n".join(line.rstrip() for line in lines) + "\n"

    def _measure(self) -> None:
        assert self.score is not None
        for name, side in ((US, self.score.kubewright), (OTHER, self.score.cluster)):
            for what, amount in (("bought", side.bought), ("removed", side.removed)):
                self.registry.set("kubewright_shadow_nodes", amount.nodes, by=name, what=what)
                self.registry.set("kubewright_shadow_usd_per_hour", amount.usd_per_hour, by=name, what=what)


def as_of(snapshot: Snapshot, began: datetime) -> Snapshot:
    """The cluster without the machines that were asked for since `began` (whole seconds, as the wire has them)."""
    since = began.replace(microsecond=0)

    def is_old(known: StateNode) -> bool:
        created = known.claim.metadata.creation_timestamp if known.claim is not None else None
        return created is None or created < since

    return msgspec.structs.replace(snapshot, nodes=tuple(known for known in snapshot.nodes if is_old(known)))
