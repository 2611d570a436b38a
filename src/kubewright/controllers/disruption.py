"""disruption: finds nodes that should go, thinks twice, and sees each decision through.

One command at a time is being thought over. Nothing here must survive a restart: a command that was not carried out is found
again, and the marks of one that was half begun are taken off. Source: spec/disruption 1.1, 3.10, 3.11.
"""

from datetime import timedelta

import structlog

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim
from kubewright.controllers.context import Context
from kubewright.disruption import emptiness, marking
from kubewright.disruption.budgets import Usage
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.commands import Command
from kubewright.errors import Conflict, NotFound
from kubewright.kube.controller import Singleton
from kubewright.lifecycle import claims, nodes, state
from kubewright.lifecycle.disrupted import disrupted
from kubewright.lifecycle.effects import Count, Delete, EventKind, Publish
from kubewright.solver.problem import Snapshot

POLL = timedelta(seconds=10)
UNSYNCED_POLL = timedelta(seconds=1)
VALIDATION_DELAY = timedelta(seconds=15)
"""How long a command is thought over before it is begun: pods that were about to come, come. Source: spec/disruption 3.10."""
POOL_BUDGET_WINDOW = timedelta(minutes=1)
NO_USAGE = Usage()


class Disruption:
    """One step looks around once; it is called again when something is due."""

    def __init__(self, context: Context, *, validation_delay: timedelta = VALIDATION_DELAY) -> None:
        self._on = context
        self._delay = validation_delay
        self._pending: Command | None = None
        self._log = structlog.get_logger("kubewright.disruption")
        self.controller = Singleton("disruption", self.step, max_delay=timedelta(seconds=10))
        context.mirror.node_claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def step(self) -> timedelta:
        now = self._on.clock.now()
        if self._on.mirror.unlaunched(now):
            return UNSYNCED_POLL
        if silent := self._on.mirror.silent():
            # What looks empty may have been filled meanwhile. A command that waits is looked at again when the watches speak.
            self._log.warning("nothing is disrupted while watches are silent", kinds=silent)
            return POLL
        if self._pending is not None:
            due = self._pending.created + self._delay
            if now < due:
                return due - now
            command, self._pending = self._pending, None
            await self._on.mirror.refresh_pools()
            return await self._carry_on(command, self._on.mirror.snapshot(now))
        await self._on.mirror.refresh_pools()
        snapshot = self._on.mirror.snapshot(now)
        await self._clean_up(snapshot)
        found = emptiness.find(snapshot)
        self._measure(found)
        self._tell_blocked(found)
        self._tell_budgets(found, snapshot)
        if found.command is None:
            return POLL
        self._pending = found.command
        self._log.info("found nodes to disrupt, looking again before acting", command=str(found.command))
        return self._delay

    async def _carry_on(self, command: Command, snapshot: Snapshot) -> timedelta:
        confirmed = emptiness.confirm(command, snapshot)
        fallen = len(command.candidates) - (0 if confirmed is None else len(confirmed.candidates))
        if fallen:
            failed = Count("voluntary_disruption_failed_validations_total", {"consolidation_type": command.method}, fallen)
            await self._on.actor.act((failed,))
        if confirmed is None:
            self._log.info("the nodes are needed after all", command=str(command))
            return timedelta()
        await self._start(confirmed)
        return timedelta()

    async def _start(self, command: Command) -> None:
        """Mark, then delete: a pure delete goes on with those that could be marked."""
        self._log.info("disrupting node(s)", command=str(command))
        going = [c for c in command.candidates if await self._mark(c, command)]
        self._on.mirror.mark(c.provider_id for c in going)
        decided = {
            "decision": command.decision.value,
            "reason": command.reason.metric,
            "consolidation_type": command.method,
        }
        await self._on.actor.act((Count("voluntary_disruption_decisions_total", decided),))
        for name in sorted({c.pool.name for c in going}):
            by_pool = Count("voluntary_disruption_decisions_by_nodepool_total", {**decided, "nodepool": name})
            await self._on.actor.act((by_pool,))
        for candidate in going:
            await self._end(candidate, command)

    async def _mark(self, candidate: Candidate, command: Command) -> bool:
        """Taint the Node, then say on the NodeClaim why. False if it changed since it was read: it is judged anew next time."""
        assert candidate.known.node is not None
        try:
            await self._on.actor.update(candidate.known.node, marking.tainted(candidate.known.node))
            marked = marking.with_reason(candidate.claim, command.reason, self._on.clock.now())
            await self._on.actor.update(candidate.claim, marked)
        except (Conflict, NotFound) as error:
            self._log.info("a node changed while it was being marked", node=candidate.name, error=str(error))
            return False
        return True

    async def _end(self, candidate: Candidate, command: Command) -> None:
        told = f"Disrupting Node: {command.reason.value}"
        claim, node = candidate.claim, candidate.known.node
        assert node is not None
        metric = command.reason.metric
        await self._on.actor.act(
            (
                Publish(node, EventKind.NORMAL, "DisruptionTerminating", told, (node.metadata.uid, command.reason.value)),
                Publish(
                    claim,
                    EventKind.NORMAL,
                    "DisruptionTerminating",
                    f"Disrupting NodeClaim: {command.reason.value}",
                    (claim.metadata.uid, command.reason.value),
                ),
                Delete(claim),
                disrupted(claim, metric),
                disrupted(claim, metric, pods=len(candidate.reschedulable)),
            )
        )

    async def _clean_up(self, snapshot: Snapshot) -> None:
        """Take back marks that no command stands behind: those of an operator that was stopped in the middle."""
        for known in snapshot.nodes:
            if known.marked_for_deletion or known.node is None or known.claim is None:
                continue
            if nodes.has_taint(known.node, labels.DISRUPTED_TAINT) and known.node.metadata.deletion_timestamp is None:
                self._log.info("taking off the taint of a disruption that was not carried out", node=known.node.name)
                await self._on.actor.update(known.node, marking.untainted(known.node))
            if state.is_initialized(known):
                await self._on.actor.update(known.claim, claims.without_condition(known.claim, claims.DISRUPTION_REASON))

    def _measure(self, found: emptiness.Found) -> None:
        measure, reason = self._on.actor.measure, found.budgets.reason
        measure("voluntary_disruption_eligible_nodes", found.eligible, {"reason": reason.metric})
        for name, allowed in found.budgets.allowed.items():
            labelled = {"nodepool": name, "reason": reason.value}
            measure("nodepools_allowed_disruptions", allowed, labelled)
            measure("nodepools_nodes_consuming_budgets", found.budgets.used.get(name, NO_USAGE).disrupting, labelled)

    def _tell_blocked(self, found: emptiness.Found) -> None:
        """Why a node stays, on it and on its NodeClaim; the recorder keeps repeats away."""
        for blocked in found.blocked:
            if blocked.tell:
                for about in (blocked.known.node, blocked.known.claim):
                    if about is not None:
                        told = Publish(
                            about, EventKind.NORMAL, "DisruptionBlocked", blocked.why, (about.metadata.uid, blocked.why)
                        )
                        self._on.actor.publish(told)

    def _tell_budgets(self, found: emptiness.Found, snapshot: Snapshot) -> None:
        for name, problem in sorted(found.budgets.problems.items()):
            self._log.error(
                "a disruption budget cannot be read; nothing is disrupted in its NodePool", nodepool=name, error=problem
            )
        by_name = {p.node_pool.name: p.node_pool for p in snapshot.pools}
        for name in sorted({c.pool.name for c in found.held}):
            if found.budgets.allowed.get(name, 0) == 0:
                reason = found.budgets.reason.value
                self._on.actor.publish(
                    Publish(
                        by_name[name],
                        EventKind.NORMAL,
                        "DisruptionBlocked",
                        f'No allowed disruptions for disruption reason "{reason}" due to blocking budget',
                        (name, reason),
                        POOL_BUDGET_WINDOW,
                    )
                )

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        """A node that has just become Consolidatable need not wait for the next poll."""
        was = old is not None and claims.is_set(old, claims.CONSOLIDATABLE)
        if self._pending is None and not was and new is not None and claims.is_set(new, claims.CONSOLIDATABLE):
            self.controller.trigger_after(UNSYNCED_POLL)
