"""disruption.queue: carries out what was decided — mark, buy, wait, delete — or takes it back.

What it needs after a crash stands on the objects (`lifecycle.orders`); the memory here only saves work.
Source: spec/disruption 3.11. Differs on purpose: a failed order takes the machines it bought along, one that gets ready late is
carried out, and what a pod or a freeze forbids meanwhile is not done.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import structlog

from kubewright.api import labels
from kubewright.api.core import Node, Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.context import Context
from kubewright.disruption import marking
from kubewright.disruption.commands import Command
from kubewright.disruption.freeze import frozen_until
from kubewright.disruption.reasons import Class, Reason
from kubewright.errors import Conflict, KubeError, NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, orders, pods, purchase
from kubewright.lifecycle.disrupted import disrupted, policy_label
from kubewright.lifecycle.effects import Count, Delete, EventKind, Publish
from kubewright.lifecycle.orders import Fate, Order

WORKERS = 100
POLL = timedelta(seconds=1)
SEEN_WITHIN = timedelta(seconds=15)
"""By then the watch has shown what was written when an order was begun."""
FORGOTTEN_AFTER = timedelta(hours=1)
"""How long an order that is over is known as such."""


class OrderQueue:
    """Keyed by order."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._orders: dict[str, Order] = {}
        self._expected: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By order: NodeClaims it was written on, and NodeClaims bought for it, that the watch has not all shown yet."""
        self._closed: dict[str, datetime] = {}
        """Orders that are over, and since when: the watch may go on showing them for a moment."""
        self._log = structlog.get_logger("kubewright.disruption.queue")
        self.controller = Controller(
            "disruption.queue", self.reconcile, workers=WORKERS, base_delay=POLL, max_delay=timedelta(seconds=10)
        )
        context.mirror.node_claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    def in_hand(self) -> frozenset[str]:
        """ProviderIDs that no other decision may touch: of nodes that go, and of machines bought for orders under way."""
        by_name = self._on.mirror.node_claims.objects
        names = (name for order in self._orders.values() for name in (*order.claims, *order.replacements))
        return frozenset(by_name[name].status.provider_id for name in names if name in by_name) - {""}

    def recover(self) -> None:
        """Take up the orders that an earlier process left on the objects; call it before anybody plans for pods."""
        now = self._on.clock.now()
        self._closed = {known: since for known, since in self._closed.items() if now - since < FORGOTTEN_AFTER}
        for order in orders.standing(self._on.mirror.node_claims.objects.values()):
            if order.id not in self._orders and order.id not in self._closed:
                self._log.info("taking up a disruption that was under way", order=order.id, nodeclaims=order.claims)
                self._orders[order.id] = order
                if orders.fate(order, self._by_name(), now).fate is not Fate.UNDO:
                    # Only those it is written on: of a removal that was cut short the others are not going.
                    self._mark_going(c.name for c in orders.staying_of(order, self._by_name()))
                self.controller.enqueue(order.id)

    # --- begin -----------------------------------------------------------------------------------------------------------

    async def begin(self, command: Command, planned_from: Mapping[str, NodePool]) -> None:
        """Write the order on all its NodeClaims, close their Nodes, buy the replacements; the rest is done by `reconcile`.

        `planned_from` are the NodePools as the command was decided on. A pure delete goes on with the nodes that could be marked.
        """
        now = self._on.clock.now()
        taken = {*self._on.mirror.node_claims.objects}
        names = []
        for planned in command.replacements:
            names.append(purchase.name_for(planned, now, taken))
            taken.add(names[-1])
        order = Order(
            id=command.id,
            reason=command.reason.value,
            begun=now,
            deadline=orders.deadline_of(now, sum(len(o.claims) for o in self._orders.values()) + len(command.candidates)),
            claims=tuple(c.claim.name for c in command.candidates),
            replacements=tuple(names),
            method=command.method,
            decision=command.decision.value,
            graceful=_class_of(command.reason) is Class.GRACEFUL,
        )
        self._log.info("disrupting node(s)", command=str(command))
        marked = frozenset(
            [c.claim.name for c in command.candidates if await self._mark(c.claim, c.known.node, order)]  # one by one
        )
        if not marked:
            return
        bought: frozenset[str] = frozenset()
        if len(marked) == len(command.candidates):
            bought = await self._buy(order, command, planned_from)
        # Until the machines are ordered nobody may plan for the pods that will move, or they would be bought twice.
        self._orders[order.id] = order
        self._expected[order.id] = (marked, bought)
        if len(bought) == len(names):
            self._mark_going(marked)
            self._expect(command, names)
            await self._count_decision(command)
        self.controller.enqueue(order.id)

    async def _buy(self, order: Order, command: Command, planned_from: Mapping[str, NodePool]) -> frozenset[str]:
        """Names of the replacements that could be ordered."""
        buying = (
            self._on.purchases.buy(
                name,
                planned,
                planned_from[planned.node_pool],
                command.reason.metric,
                annotations={orders.REPLACES: order.id},
            )
            for name, planned in zip(order.replacements, command.replacements, strict=True)
        )
        found = await asyncio.gather(*buying, return_exceptions=True)
        for name, answer in zip(order.replacements, found, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, KubeError):
                raise answer
            if not isinstance(answer, NodeClaim):
                self._log.error("a replacement could not be bought", order=order.id, nodeclaim=name, error=str(answer or ""))
        return frozenset(a.name for a in found if isinstance(a, NodeClaim))

    async def _mark(self, claim: NodeClaim, node: Node | None, order: Order) -> bool:
        """Write the order, then taint the Node. False if either changed since it was read: it is judged anew next time."""
        assert node is not None
        try:
            await self._on.actor.update(claim, orders.ordered(claim, order, self._on.clock.now()))
            await self._on.actor.update(node, marking.tainted(node))
        except (Conflict, NotFound) as error:
            self._log.info("a node changed while it was being marked", node=node.name, error=str(error))
            return False
        return True

    def _mark_going(self, names: Iterable[str]) -> None:
        """The nodes of these NodeClaims take no more pods, and their pods are planned for."""
        by_name = self._by_name()
        self._on.mirror.mark([by_name[n].status.provider_id for n in names if n in by_name])

    def _expect(self, command: Command, names: list[str]) -> None:
        until = self._on.clock.now() + self._on.nominated_for
        moving = {p.key: p for c in command.candidates for p in c.known.pods}
        for name, planned in zip(names, command.replacements, strict=True):
            self._on.purchases.tell_nominations((moving.get(key) for key in planned.pods), f"nodeclaim/{name}")
        for name in sorted(command.destinations):
            self._on.mirror.nominate(name, until)
            self._on.purchases.tell_nominations((moving.get(key) for key in command.destinations[name]), f"node/{name}")

    async def _count_decision(self, command: Command) -> None:
        decided = {
            "decision": command.decision.value,
            "reason": command.reason.metric,
            "consolidation_type": command.method,
        }
        pools = sorted({c.pool.name for c in command.candidates})
        by_pool = (Count("voluntary_disruption_decisions_by_nodepool_total", {**decided, "nodepool": name}) for name in pools)
        await self._on.actor.act((Count("voluntary_disruption_decisions_total", decided), *by_pool))

    # --- carry on --------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> timedelta | None:
        order = self._orders.get(key)
        if order is None:
            return None
        now, by_name = self._on.clock.now(), self._by_name()
        if not self._is_seen(order, by_name):
            return POLL
        judged = orders.fate(order, by_name, now)
        match judged.fate:
            case Fate.OVER:
                self._forget(order)
                return None
            case Fate.UNDO:
                await self._fail(order, judged.why)
                return None
            case _:
                if frozen := self._frozen(order, by_name):
                    await self._take_back(order, frozen)
                    return None
        if judged.fate is Fate.WAIT:
            for name in judged.missing:
                self._tell_waiting(order, by_name[name])
            return min(POLL, max(order.deadline - now, timedelta()))
        if self._on.mirror.silent():
            return POLL
        staying = orders.staying_of(order, by_name)
        if held := self._pinned(order, staying):
            if now >= order.deadline:
                await self._fail(order, held)
                return None
            return POLL
        for claim in staying:
            await self._end(order, claim)
        until = now + self._on.nominated_for
        for name in order.replacements:
            self._on.mirror.nominate(self._node_name(name), until)
        return POLL

    def _is_seen(self, order: Order, by_name: Mapping[str, NodeClaim]) -> bool:
        """Whether the watch has shown what was written when the order was begun; after a while it is believed anyway."""
        marked, bought = self._expected.get(order.id, (frozenset(), frozenset()))
        shown = all(name not in by_name or orders.is_ordered(by_name[name], order) for name in marked)
        if (shown and bought <= by_name.keys()) or self._on.clock.now() - order.begun > SEEN_WITHIN:
            self._expected.pop(order.id, None)
        return order.id not in self._expected

    def _frozen(self, order: Order, by_name: Mapping[str, NodeClaim]) -> str:
        if self._on.settings.disruption.frozen:
            return "the cluster is frozen"
        for claim in orders.staying_of(order, by_name):
            pool = self._on.mirror.pool_of(claim)
            until = "" if pool is None else frozen_until(pool.metadata.annotations, self._on.clock.now())
            if pool is not None and until:
                return f"NodePool {pool.name} is frozen {until}"
            for pod in self._pods_of(claim):
                if until := frozen_until(pod.metadata.annotations, self._on.clock.now()):
                    return f"Pod {pod.key} is frozen {until}"
        return ""

    def _pinned(self, order: Order, staying: tuple[NodeClaim, ...]) -> str:
        """Why the claims may not go after all, told on the node; "" if they may."""
        for claim in staying:
            found = self._on.mirror.nodes_of(claim)
            pod = orders.pinned(order, claim, self._pods_of(claim), self._on.clock.now())
            why = "" if pod is None else f'Pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
            if any(node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true" for node in found):
                why = f'Disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
            if why:
                for about in (*found, claim):
                    told = Publish(about, EventKind.NORMAL, "DisruptionBlocked", why, (about.metadata.uid, why))
                    self._on.actor.publish(told)
                return why
        return ""

    def _pods_of(self, claim: NodeClaim) -> list[Pod]:
        return [p for node in self._on.mirror.nodes_of(claim) for p in self._on.mirror.pods_on(node.name)]

    def _tell_waiting(self, order: Order, bought: NodeClaim) -> None:
        launching = (bought.metadata.uid, order.reason)
        for reason, text, dedupe in (
            ("DisruptionLaunching", f"Launching NodeClaim: {order.reason}", launching),
            ("DisruptionWaitingReadiness", "Waiting on readiness to continue disruption", (bought.metadata.uid,)),
        ):
            self._on.actor.publish(Publish(bought, EventKind.NORMAL, reason, text, dedupe))

    async def _end(self, order: Order, claim: NodeClaim) -> None:
        found = self._on.mirror.nodes_of(claim)
        for about in (*found, claim):
            kind = "Node" if isinstance(about, Node) else "NodeClaim"
            told = f"Disrupting {kind}: {order.reason}"
            self._on.actor.publish(
                Publish(about, EventKind.NORMAL, "DisruptionTerminating", told, (about.metadata.uid, order.reason))
            )
        pool = self._on.mirror.pool_of(claim)
        policy = policy_label(pool.spec.disruption.consolidation_policy) if order.method and pool is not None else ""
        moving = sum(1 for p in self._pods_of(claim) if pods.is_reschedulable(p))
        reason = Reason(order.reason).metric
        await self._on.actor.act(
            (
                Delete(claim),
                disrupted(claim, reason, policy=policy),
                disrupted(claim, reason, pods=moving, policy=policy),
            )
        )

    # --- take back -------------------------------------------------------------------------------------------------------

    async def _fail(self, order: Order, why: str) -> None:
        by_name = self._by_name()
        missing = [n for n in order.replacements if n not in by_name or not claims.is_set(by_name[n], claims.INITIALIZED)]
        labelled = {
            "decision": order.decision,
            "reason": Reason(order.reason).metric,
            "consolidation_type": order.method,
        }
        await self._tell_health(order)
        await self._take_back(order, why, failed=True)
        await self._on.actor.act((Count("voluntary_disruption_queue_failures_total", labelled, max(len(missing), 1)),))

    async def _tell_health(self, order: Order) -> None:
        """A machine that was waited for in vain did not join: its NodePool's health must hear of it before it is gone."""
        for name in order.replacements:
            bought = self._by_name().get(name)
            if bought is None or bought.metadata.deletion_timestamp is not None or claims.is_set(bought, claims.REGISTERED):
                continue
            outcome = self._on.healths.outcome(self._on.mirror.pool_of(bought), bought, self._on.clock, came_to_life=False)
            try:
                await self._on.actor.act(outcome)
            except (Conflict, NotFound) as error:
                self._log.debug("pool health was not written", error=str(error))

    async def _take_back(self, order: Order, why: str, *, failed: bool = False) -> None:
        """Machines first, marks last: while a mark stands, whoever comes after a crash knows that this was not finished."""
        self._log.warning("taking back a disruption", order=order.id, nodeclaims=order.claims, why=why)
        now, by_name = self._on.clock.now(), self._by_name()
        for name in order.replacements:
            bought = by_name.get(name)
            if bought is not None and bought.metadata.annotations.get(orders.REPLACES) == order.id and not self._is_used(bought):
                await self._on.actor.act((Delete(bought), disrupted(bought, "rolled_back")))
        for name in order.claims:
            claim = by_name.get(name)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                continue
            for node in self._on.mirror.nodes_of(claim):
                if node.metadata.deletion_timestamp is None:
                    await self._on.actor.update(node, marking.untainted(node))
            if orders.is_ordered(claim, order):
                await self._on.actor.update(claim, orders.undone(claim, failed_at=now if failed else None))
            self._on.mirror.unmark((claim.status.provider_id,))
        self._forget(order)

    def _is_used(self, bought: NodeClaim) -> bool:
        """Whether a machine has found other work meanwhile."""
        return any(pods.is_reschedulable(p) for p in self._pods_of(bought))

    # --- small things ----------------------------------------------------------------------------------------------------

    def _by_name(self) -> Mapping[str, NodeClaim]:
        return self._on.mirror.node_claims.objects

    def _node_name(self, claim: str) -> str:
        found = self._by_name().get(claim)
        nodes_of = self._on.mirror.nodes_of(found) if found is not None else ()
        return nodes_of[0].name if nodes_of else claim

    def _forget(self, order: Order) -> None:
        self._orders.pop(order.id, None)
        self._expected.pop(order.id, None)
        self._closed[order.id] = self._on.clock.now()

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        claim = new if new is not None else old
        assert claim is not None
        order = orders.order_of(claim)
        for found in (claim.metadata.annotations.get(orders.REPLACES), None if order is None else order.id):
            if found is not None and found in self._orders:
                self.controller.enqueue(found)


def _class_of(reason: Reason) -> Class:
    return Class.EVENTUAL if reason is Reason.DRIFTED else Class.GRACEFUL
