"""provisioner: pods that nothing can take → a plan → NodeClaims.

Source: spec/scheduling 1.3, 1.4, 1.9, 3.9.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import msgspec
import structlog

from kubewright.api import labels
from kubewright.api.core import Node, Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.batcher import Batcher
from kubewright.controllers.context import Context
from kubewright.controllers.failures import Failures, Say
from kubewright.controllers.spending import Spending
from kubewright.errors import KubewrightError
from kubewright.explain import cost as costs
from kubewright.lifecycle import bought, nodes, pods, pools, purchase, unused
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.solver.problem import Plan, PlannedClaim, Problem, Snapshot

TRIGGER_AGAIN = timedelta(seconds=10)
"""A pod that still has no home asks for another pass this long after the last."""
PATIENCE = timedelta(seconds=10)
"""How long a pass waits for launches under way."""
WARN_EVERY = timedelta(seconds=30)
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 1.0, 60.0

Decide = Callable[[Problem], Plan]
Ask = Callable[[Snapshot], tuple[Problem, Mapping[str, tuple[Refusal, ...]]]]


class Provisioner:
    """The loop from pending pods to NodeClaims; one pass at a time."""

    def __init__(self, context: Context, decide: Decide, ask: Ask, say: Say) -> None:
        """`ask` turns a snapshot into the problem and the pods it leaves out; `decide` solves it; `say` words refusals."""
        self._on = context
        self._decide = decide
        self._ask = ask
        self._spending = Spending(context)
        self._failures = Failures(context.actor, context.clock, say)
        self._batcher = Batcher(context.settings.batch_idle_duration, context.settings.batch_max_duration)
        self.passed: Callable[[Snapshot, Plan], Awaitable[None]] | None = None
        """Called after each pass, before anything is bought."""
        self._claims_changed = asyncio.Event()
        self._usable = asyncio.Event()
        self._in_flight = context.purchases.in_flight
        self._again: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger("kubewright.provisioner")
        self.last: tuple[Problem, Plan] | None = None
        """What the last pass was asked and answered."""
        self.planned = costs.Cost()
        """Of all passes together."""
        context.mirror.pods.subscribe(self._pod_changed)
        context.mirror.nodes.subscribe(self._node_changed)
        context.mirror.node_claims.subscribe(self._claim_changed)
        context.mirror.node_pools.subscribe(self._pool_changed)

    def trigger(self, who: str) -> None:
        """Ask for a pass; `who` has a reason that no pod's event tells."""
        self._batcher.trigger(who)

    async def run(self) -> None:
        """Batch, wait until every machine under way is known, pass; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_warm(), name="instance types")
            tasks.create_task(self._failures.run(), name="explanations")
            await self._provision_forever()

    async def _keep_warm(self) -> None:
        """Ask for instance types as soon as a NodePool becomes usable: the first answer takes long and pods would wait."""
        while True:
            await self._usable.wait()
            self._usable.clear()
            await self._on.mirror.refresh_pools()

    async def _provision_forever(self) -> None:
        failures = 0
        try:
            while True:
                await self._batcher.wait()
                await self._all_launched()
                try:
                    await self.provision()
                except Exception as error:  # noqa: BLE001 — whatever it is: it is logged, and the pods come back
                    failures += 1
                    delay_s = min(FIRST_BACK_OFF_S * 2 ** min(failures - 1, 10), LAST_BACK_OFF_S)
                    self._log.error(
                        "provisioning failed, trying again",
                        error=str(error) or repr(error),
                        retry_after_s=delay_s,
                        exc_info=None if isinstance(error, KubewrightError) else error,
                    )
                    await asyncio.sleep(delay_s)
                    self._batcher.trigger("")
                else:
                    failures = 0
        finally:
            if self._again is not None:
                self._again.cancel()

    async def provision(self) -> Plan:
        """One pass."""
        await self._on.mirror.refresh_pools()
        snapshot = self._on.mirror.snapshot(self._on.clock.now())
        problem, ignored = self._ask(snapshot)
        slow = self._on.mirror.unlaunched(snapshot.now)
        if not self._in_flight.knows(slow):
            self._batcher.trigger("unlaunched")  # one appeared while this pass was being prepared
            return Plan()
        problem, in_vain = unused.relieved(self._in_flight.held(problem, slow))
        waiting = {pod.key: pod for pod in snapshot.pods}
        self._on.actor.measure("scheduler_ignored_pods_count", len(ignored), {})
        self._failures.ignored(waiting, ignored)
        if not problem.pods:
            if self.passed is not None:
                await self.passed(snapshot, Plan())
            self._trigger_later(bool(ignored))
            return Plan()
        # In a thread, so that leases and watches go on; a virtual loop runs it inline.
        loop = asyncio.get_running_loop()
        began = loop.time()
        plan = await asyncio.to_thread(self._decide, problem)
        self._on.actor.observe("scheduler_scheduling_duration_seconds", loop.time() - began, {"controller": "provisioner"})
        told = _with_reasons(plan, in_vain)
        self.last = (problem, told)
        self._tell_cost(plan)
        left_out = len(plan.unplaced.keys() - self._standing_in())
        self._on.actor.measure("scheduler_unschedulable_pods_count", left_out, {"controller": "provisioner"})
        self._failures.unplaced(waiting, problem, told)
        await self._nominate(plan, waiting)
        planned_from = {p.node_pool.name: p.node_pool for p in snapshot.pools}
        if self.passed is not None:
            await self.passed(snapshot, plan)
        admitted = await self._spending.admit(plan, snapshot)
        for planned, why in admitted.refused:
            capped = (Refusal(Because.NO_POOL, planned.node_pool, "", f"not bought now: {why}"),)
            self._failures.ignored(waiting, dict.fromkeys(planned.pods, capped))
        async with asyncio.TaskGroup() as tasks:
            for name, planned in self._named(admitted.claims, snapshot):
                buying = self._buy(name, planned, planned_from[planned.node_pool], waiting)
                tasks.create_task(buying, name=f"buy {name}")
        self._trigger_later(again=True)
        return plan

    def _tell_cost(self, plan: Plan) -> None:
        if not plan.claims:
            return
        found = costs.cost(plan)
        self.planned = self.planned.plus(found)
        self._on.actor.measure("kubewright_plan_cost_usd_per_hour", found.usd_per_hour, {})
        self._on.actor.measure("kubewright_plan_bound_usd_per_hour", found.bound_usd_per_hour, {})
        self._on.actor.measure("kubewright_plan_gap_ratio", found.gap, {})
        self._on.actor.measure("kubewright_plan_first_fit_usd_per_hour", found.first_fit_usd_per_hour, {})
        self._log.info(
            "planned machines",
            nodeclaims=len(plan.claims),
            usd_per_hour=round(found.usd_per_hour, 4),
            bound_usd_per_hour=round(found.bound_usd_per_hour, 4),
            gap_percent=round(100 * found.gap, 2),
            first_fit_usd_per_hour=round(found.first_fit_usd_per_hour, 4),
            optimal=plan.optimal,
        )

    async def _all_launched(self) -> None:
        """Until no NodeClaim is without a machine: what such a one will hold cannot be counted yet.

        After `PATIENCE` the pass goes on without the pods of those that drag on, if it is known which these are.
        """
        started = told = self._on.clock.now()
        while names := self._on.mirror.unlaunched(self._on.clock.now()):
            now = self._on.clock.now()
            if now - started >= PATIENCE and self._in_flight.knows(names):
                self._log.info("going on without machines that are slow to launch", nodeclaims=names)
                return
            if now - told >= WARN_EVERY:
                told = now
                self._log.warning("waiting for machines to be launched before the next pass", nodeclaims=names)
            self._claims_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._claims_changed.wait()

    def _named(self, wanted: Sequence[PlannedClaim], snapshot: Snapshot) -> list[tuple[str, PlannedClaim]]:
        taken = {*self._on.mirror.node_claims.objects}
        found = []
        for planned in wanted:
            name = purchase.name_for(planned, snapshot.now, taken)
            taken.add(name)
            found.append((name, planned))
        return found

    def _standing_in(self) -> frozenset[str]:
        """Keys of pods that stand in for CapacityBuffers, of whom nobody needs to hear."""
        known = self._on.mirror.buffers
        return known.keys if known is not None else frozenset()

    async def _buy(self, name: str, planned: PlannedClaim, pool: NodePool, waiting: dict[str, Pod]) -> None:
        virtual = self._standing_in()
        real = msgspec.structs.replace(planned, pods=tuple(key for key in planned.pods if key not in virtual))
        makers = {unused.workload(waiting[key]) for key in real.pods if key in waiting}
        told = bought.note(real, "provisioned" if real.pods else "buffer", makers)
        try:
            made = await self._on.purchases.buy(name, planned, pool, "provisioned", annotations=told)
        except KubewrightError as error:
            self._log.error("creating a NodeClaim failed", nodeclaim=name, error=str(error))
            self._batcher.trigger(name)
            return
        if made is not None:
            self._on.purchases.tell_nominations((waiting.get(key) for key in planned.pods), f"nodeclaim/{name}")

    async def _nominate(self, plan: Plan, waiting: dict[str, Pod]) -> None:
        until = self._on.clock.now() + self._on.nominated_for
        virtual = self._standing_in()
        for name in sorted(plan.existing):
            if virtual.issuperset(plan.existing[name]):
                continue  # room that is kept for a CapacityBuffer; nobody will come
            self._on.mirror.nominate(name, until, plan.existing[name])
            node = self._on.mirror.nodes.get(name)
            claim = self._on.mirror.claim_of(node) if node is not None else self._on.mirror.node_claims.get(name)
            parts = [f"nodeclaim/{claim.name}"] if claim is not None else []
            parts += [f"node/{node.name}"] if node is not None else []
            self._on.purchases.tell_nominations((waiting.get(key) for key in plan.existing[name]), ", ".join(parts))

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _trigger_later(self, again: bool) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if again:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(TRIGGER_AGAIN.total_seconds(), self._retrigger)

    def _retrigger(self) -> None:
        self._again = None
        if self._is_wanted() or self._on.mirror.is_any_going():
            self._batcher.trigger("again")

    def _is_wanted(self) -> bool:
        return any(pods.is_provisionable(p) for p in self._on.mirror.pending())

    def _pod_changed(self, _: Pod | None, new: Pod | None) -> None:
        if new is not None and pods.is_provisionable(new):
            self._batcher.trigger(new.metadata.uid)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        was = old is not None and nodes.has_taint(old, labels.DISRUPTED_TAINT)
        if new is not None and not was and nodes.has_taint(new, labels.DISRUPTED_TAINT):
            self._batcher.trigger(new.metadata.uid)

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        self._claims_changed.set()
        # The pods it was bought for, if any, are homeless again: there is no reason to wait for their next turn.
        if old is not None and new is None and self._is_wanted():
            self._batcher.trigger(old.metadata.uid)

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        """A NodePool that has become usable is what pods may have waited for."""
        was = old is not None and pools.is_ready(old)
        if new is None or was or not pools.is_ready(new):
            return
        self._usable.set()
        if self._is_wanted():
            self._batcher.trigger(new.metadata.uid)


def _with_reasons(plan: Plan, why: Mapping[str, str]) -> Plan:
    """The plan as it is told of: a pod that is kept out of a NodePool hears of that first."""
    if not why or not plan.unplaced:
        return plan
    first = {key: Refusal(Because.NO_POOL, "", key, text) for key, text in why.items()}
    unplaced = {key: (first[key], *found) if key in first else found for key, found in plan.unplaced.items()}
    return msgspec.structs.replace(plan, unplaced=unplaced)
