"""disruption: looks for nodes that should go, thinks twice where that is due, and hands what holds to the order queue.

The decisions are `disruption.decide` and `disruption.validate`. Commands that are being thought over are only remembered: after a
restart they are found again. Source: spec/disruption 1.1, 3.10.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
import structlog

from kubewright.api import labels
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import find_condition
from kubewright.controllers import verdicts
from kubewright.controllers.context import Context
from kubewright.controllers.orders import OrderQueue
from kubewright.controllers.stays import StayConditions
from kubewright.controllers.steering import Steering
from kubewright.disruption import marking
from kubewright.disruption.commands import Command
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Reason
from kubewright.disruption.validation import Rejected
from kubewright.errors import Conflict, NotFound
from kubewright.kube.controller import Singleton
from kubewright.lifecycle import claims, nodes, orders, pods, state
from kubewright.lifecycle.effects import Count, EventKind, Publish, sooner
from kubewright.solver.problem import Snapshot

POLL = timedelta(seconds=10)
UNSYNCED_POLL = timedelta(seconds=1)
SOON = timedelta(seconds=1)
"""After something was found: there may be more."""
POOL_BUDGET_WINDOW = timedelta(minutes=1)
UNCONSOLIDATABLE_WINDOW = timedelta(minutes=15)
BLOCKED_WINDOW = timedelta(minutes=2)

Look = Callable[[Snapshot, Memory], Decisions]
Confirm = Callable[[Command, Snapshot, Memory], Command | Rejected]


class Disruption:
    """One step looks around once; it is called again when something is due."""

    def __init__(self, context: Context, queue: OrderQueue, look: Look, confirm: Confirm) -> None:
        """`look` finds commands, `confirm` judges one again just before it is begun."""
        self._on = context
        self._queue = queue
        self._look = look
        self._confirm = confirm
        self._pending: list[Command] = []
        self._memory = Memory()
        self._steering = Steering(context)
        self._stays = StayConditions(context)
        self._soon: frozenset[str] = frozenset()
        self._log = structlog.get_logger("kubewright.disruption")
        self.last: Decisions | None = None
        """What the last look found, and why the rest stays."""
        self.controller = Singleton("disruption", self.step, max_delay=timedelta(seconds=10))
        context.mirror.node_claims.subscribe(self._claim_changed)
        context.mirror.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        none = ({"consolidation_type": kind} for kind in ("multi", "single"))
        await self._on.actor.act(tuple(Count("voluntary_disruption_consolidation_timeouts_total", n, 0) for n in none))
        await self.controller.run()

    async def step(self) -> timedelta:
        now = self._on.clock.now()
        self._queue.recover()
        if self._on.mirror.unlaunched(now):
            return UNSYNCED_POLL
        if silent := self._on.mirror.silent():
            # What looks empty may have been filled meanwhile. A command that waits is looked at again when the watches speak.
            self._log.warning("nothing is disrupted while watches are silent", kinds=silent)
            return POLL
        await self._on.mirror.refresh_pools()
        await self._clean_up(self._on.mirror.snapshot(now))
        begun = await self._begin_what_is_due()
        if begun and self._on.mirror.unlaunched(self._on.clock.now()):
            return UNSYNCED_POLL
        found = await self._look_around()
        due = min((c.due for c in self._pending), default=None)
        until_due = None if due is None else max(due - self._on.clock.now(), timedelta())
        again = sooner(SOON if found.commands else POLL, until_due)
        assert again is not None
        return again

    # --- thinking twice --------------------------------------------------------------------------------------------------

    async def _begin_what_is_due(self) -> bool:
        """Judge every command again whose time has come, and begin those that hold; whether there was any."""
        now = self._on.clock.now()
        due = [c for c in self._pending if c.due <= now]
        begun = False
        for command in due:
            snapshot = self._on.mirror.snapshot(now)
            judged = await asyncio.to_thread(self._confirm, command, snapshot, self._remembered(snapshot))
            self._pending.remove(command)
            if isinstance(judged, Rejected):
                await self._reject(command, judged)
                continue
            if fallen := len(command.candidates) - len(judged.candidates):
                await self._count_failed(command, fallen)
            await self._begin(judged, snapshot)
            begun = True
        return begun

    async def _begin(self, command: Command, snapshot: Snapshot) -> None:
        await self._queue.begin(command, _pools(snapshot))

    async def _reject(self, command: Command, why: Rejected) -> None:
        self._log.info("the nodes are needed after all", command=str(command), category=why.category, why=why.text)
        await self._count_failed(command, len(command.candidates))
        if command.method and command.reason is not Reason.EMPTY:
            self._tell(command, "ConsolidationRejected", f"{command}, {why.category}: {why.text}")

    async def _count_failed(self, command: Command, nodes_fallen: int) -> None:
        labelled = {"consolidation_type": command.method}
        await self._on.actor.act((Count("voluntary_disruption_failed_validations_total", labelled, nodes_fallen),))

    # --- looking around --------------------------------------------------------------------------------------------------

    async def _look_around(self) -> Decisions:
        loop = asyncio.get_running_loop()
        began = loop.time()
        snapshot = self._on.mirror.snapshot(self._on.clock.now())
        # In a thread, so that leases, watches and orders go on; a virtual loop runs it inline.
        found = await asyncio.to_thread(self._look, snapshot, self._remembered(snapshot))
        self.last, self._memory = found, found.memory
        self._measure(found, loop.time() - began)
        await verdicts.tell(self._on.actor, found, snapshot, self._on.settings.disruption.balance)
        self._tell_stays(found, snapshot)
        self._tell_budgets(found, snapshot)
        if found.out_of_steps:
            labelled = {"consolidation_type": "multi"}
            await self._on.actor.act((Count("voluntary_disruption_consolidation_timeouts_total", labelled),))
        for command in found.commands:
            if command.delay > timedelta():
                self._log.info("found nodes to disrupt, looking again before acting", command=str(command))
                self._pending.append(command)
                if command.reason is not Reason.EMPTY:
                    self._tell(command, "ConsolidationCandidate", str(command))
            else:
                await self._begin(command, snapshot)
        await self._steer(found, snapshot)
        await self._stays.tell(found, snapshot)
        return found

    async def _steer(self, found: Decisions, snapshot: Snapshot) -> None:
        """Keep pods that move, or come, off the nodes that are next, and off those that are being thought over."""
        if found.soon is not None:
            self._soon = frozenset(found.soon)
        thought_over = {c.name for command in self._pending for c in command.candidates}
        wanted = self._soon | thought_over if self._on.settings.disruption.steering else frozenset[str]()
        await self._steering.steer(wanted, snapshot)

    def _remembered(self, snapshot: Snapshot) -> Memory:
        """What deciding must know that no object says: who is spoken for, and whose machines do not join."""
        thought_over = {c.provider_id for command in self._pending for c in command.candidates}
        backing_off = {
            state.provider_id(n) for n in snapshot.nodes if n.claim is not None and orders.is_held(n.claim, snapshot.now)
        }
        failed = {p.node_pool.name: self._on.healths.of(p.node_pool).failed_in_a_row for p in snapshot.pools}
        return msgspec.structs.replace(
            self._memory,
            queued=frozenset(self._queue.in_hand() | thought_over),
            resting=frozenset(backing_off),
            failed_joins={name: count for name, count in failed.items() if count},
        )

    async def _clean_up(self, snapshot: Snapshot) -> None:
        """Take off marks that no order stands behind; the next time, where somebody changed the node just now."""
        in_hand = self._queue.in_hand()
        for known in snapshot.nodes:
            if known.marked_for_deletion or known.node is None or known.claim is None or state.provider_id(known) in in_hand:
                continue
            try:
                if nodes.has_taint(known.node, labels.DISRUPTED_TAINT) and known.node.metadata.deletion_timestamp is None:
                    self._log.info("taking off the taint of a disruption that was not carried out", node=known.node.name)
                    await self._on.actor.update(known.node, marking.untainted(known.node))
                if find_condition(known.claim.status.conditions, claims.DISRUPTION_REASON) and state.is_initialized(known):
                    await self._on.actor.update(known.claim, claims.without_condition(known.claim, claims.DISRUPTION_REASON))
            except (Conflict, NotFound) as error:
                self._log.debug("a mark was not taken off yet", node=known.node.name, error=str(error))

    # --- telling ---------------------------------------------------------------------------------------------------------

    def _measure(self, found: Decisions, took_s: float) -> None:
        measure = self._on.actor.measure
        # One look asks every method in turn until one finds something: its time is told for the last that was asked.
        last = found.commands[0] if found.commands else None
        kind = (last.reason.metric, last.method) if last is not None else (Reason.UNDERUTILIZED.metric, "multi")
        labelled = {"reason": kind[0], "consolidation_type": kind[1]}
        self._on.actor.observe("voluntary_disruption_decision_evaluation_duration_seconds", took_s, labelled)
        for reason, count in sorted(found.eligible.items()):
            measure("voluntary_disruption_eligible_nodes", count, {"reason": reason.lower()})
        for budget in found.budgets:
            for name, allowed in sorted(budget.allowed.items()):
                of_pool = {"nodepool": name, "reason": budget.reason.value}
                measure("nodepools_allowed_disruptions", allowed, of_pool)
                used = budget.used.get(name)
                measure("nodepools_nodes_consuming_budgets", used.disrupting if used is not None else 0, of_pool)

    def _tell_stays(self, found: Decisions, snapshot: Snapshot) -> None:
        """Why nodes stay, on them and on their NodeClaims; the recorder keeps repeats away."""
        for known in snapshot.nodes:
            for stay in found.stays.get(state.name(known), ()):
                if not stay.event:
                    continue
                window = UNCONSOLIDATABLE_WINDOW if stay.event == "Unconsolidatable" else BLOCKED_WINDOW
                for about in (known.node, known.claim):
                    if about is not None:
                        told = Publish(about, EventKind.NORMAL, stay.event, stay.text, (about.metadata.uid, stay.text), window)
                        self._on.actor.publish(told)

    def _tell_budgets(self, found: Decisions, snapshot: Snapshot) -> None:
        by_name = _pools(snapshot)
        for budget in found.budgets:
            reason = budget.reason.value
            for name, problem in sorted(budget.problems.items()):
                self._log.error(
                    "a disruption budget cannot be read; nothing is disrupted in its NodePool", nodepool=name, error=problem
                )
            for name in found.held.get(reason, ()):
                if budget.allowed.get(name, 0) == 0:
                    text = f'No allowed disruptions for disruption reason "{reason}" due to blocking budget'
                    self._on.actor.publish(
                        Publish(by_name[name], EventKind.NORMAL, "DisruptionBlocked", text, (name, reason), POOL_BUDGET_WINDOW)
                    )

    def _tell(self, command: Command, reason: str, text: str) -> None:
        for candidate in command.candidates:
            for about in (candidate.known.node, candidate.claim):
                if about is not None:
                    self._on.actor.publish(Publish(about, EventKind.NORMAL, reason, text, (about.metadata.uid, text)))

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        """A node that may go from now on need not wait for the next poll."""
        for kind in (claims.CONSOLIDATABLE, claims.DRIFTED):
            was = old is not None and claims.is_set(old, kind)
            if not was and new is not None and claims.is_set(new, kind):
                self.controller.trigger_after(SOON)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A node whose last pod goes is empty from now on, and not from the next poll."""
        if old is None or not old.spec.node_name or not pods.is_reschedulable(old):
            return
        if new is not None and pods.is_reschedulable(new):
            return
        if not any(pods.is_reschedulable(p) for p in self._on.mirror.pods_on(old.spec.node_name)):
            self.controller.trigger_after(SOON)


def _pools(snapshot: Snapshot) -> Mapping[str, NodePool]:
    return {p.node_pool.name: p.node_pool for p in snapshot.pools}
