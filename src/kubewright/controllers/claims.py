"""nodeclaim.lifecycle: a NodeClaim is launched, registered, initialized, given up in time, and at its end taken down.

The rules are in `lifecycle`; between them stand the calls to the cloud.
"""

from datetime import datetime, timedelta
from typing import cast

import structlog

from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.provider import Instance
from kubewright.controllers.context import Context
from kubewright.errors import CloudError, Conflict, InstanceNotFound, NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, finalization, initialization, launch, liveness, registration
from kubewright.lifecycle.effects import Delete, Effect, sooner
from kubewright.lifecycle.finalization import Stage

WORKERS = 1000


class ClaimLifecycle:
    """One reconcile brings one NodeClaim as far as it can come now."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._machines: dict[str, Instance] = {}
        """By claim UID: launched, but perhaps not yet seen so by the watch."""
        self._log = structlog.get_logger("kubewright.nodeclaim.lifecycle")
        self.controller = Controller("nodeclaim.lifecycle", self.reconcile, workers=WORKERS)
        context.mirror.node_claims.subscribe(self._claim_changed)
        context.mirror.nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        claim = self._on.mirror.node_claims.get(name)
        if claim is None or not self._on.mirror.is_managed(claim.spec.node_class_ref):
            return None
        try:
            if claim.metadata.deletion_timestamp is not None:
                return await self._finalize(claim)
            return await self._live(claim)
        except NotFound:
            return None

    # --- life ------------------------------------------------------------------------------------------------------------

    async def _live(self, read: NodeClaim) -> timedelta | None:
        actor = self._on.actor
        claim = await actor.update(read, launch.finalized(read))
        current = claim
        if launch.wanted(claim):
            launched = await self._launch(claim)
            if launched is None:
                return None
            current = launched
        now = self._on.clock.now()
        found = self._on.mirror.nodes_of(current)
        if found:
            # What is known of the machine is written before its Node is touched; without a Node one write does for both.
            claim = current = await actor.update(claim, current)
        current, step = registration.register(current, found, now)
        came_to_life = claims.is_set(current, claims.REGISTERED) and not claims.is_set(claim, claims.REGISTERED)
        fresh = await actor.act(step)
        found = tuple(cast("Node", fresh.get(n.metadata.uid, n)) for n in found)
        current, more = initialization.initialize(current, found, now)
        await actor.act(more)
        claim = await actor.update(claim, current)
        if came_to_life:
            pool = self._on.mirror.pool_of(claim)
            await self._tell_pool(self._on.healths.outcome(pool, claim, self._on.clock, came_to_life=True))
        verdict = liveness.check(claim, now)
        if verdict.failed:
            self._log.info("giving up a machine that did not come to life", nodeclaim=claim.name)
            pool = self._on.mirror.pool_of(claim)
            await self._tell_pool(self._on.healths.outcome(pool, claim, self._on.clock, came_to_life=False))
        await actor.act(verdict.step)
        return sooner(sooner(step.again, more.again), verdict.step.again)

    async def _launch(self, claim: NodeClaim) -> NodeClaim | None:
        """The claim with its machine, not written yet; None when it was given up."""
        actor = self._on.actor
        machine = self._machines.get(claim.metadata.uid)
        if machine is None:
            try:
                machine = await self._on.provider.create(claim)
            except CloudError as error:
                after, step = launch.failed(claim, error, self._on.clock.now())
                await actor.act(step)
                if any(isinstance(e, Delete) for e in step.effects):
                    self._log.info("launch failed, deleting the claim", nodeclaim=claim.name, error=str(error))
                    return None
                await actor.update(claim, after)
                raise
            self._machines[claim.metadata.uid] = machine
        launched = launch.Launched(
            machine.provider_id,
            dict(machine.labels),
            dict(machine.annotations),
            dict(machine.capacity),
            dict(machine.allocatable),
            machine.image_id,
        )
        return launch.succeeded(claim, launched, self._on.clock.now())

    async def _tell_pool(self, effects: tuple[Effect, ...]) -> None:
        """Best effort: the pool's health is a hint, and the pool may have changed under us."""
        try:
            await self._on.actor.act(effects)
        except (Conflict, NotFound) as error:
            self._log.debug("pool health was not written", error=str(error))

    # --- end -------------------------------------------------------------------------------------------------------------

    async def _finalize(self, claim: NodeClaim) -> timedelta | None:
        if launch.finalized(claim) is not claim:
            return None  # not ours to hold: it never had, or has lost, our finalizer
        machine = self._machines.get(claim.metadata.uid)
        if machine is not None and not claim.status.provider_id:
            # Bought, but the claim was deleted before that was written down: without this the machine would be an orphan.
            claim = await self._on.actor.update(claim, claims.with_status(claim, provider_id=machine.provider_id))
        ending = finalization.next_stage(claim, self._on.mirror.nodes_of(claim))
        await self._on.actor.act(ending.step)
        match ending.stage:
            case Stage.DRAINING:
                return ending.step.again
            case Stage.MACHINE:
                return await self._end_machine(claim)
            case Stage.DONE:
                return await self._release(claim)

    async def _end_machine(self, claim: NodeClaim) -> timedelta | None:
        gone = False
        try:
            await self._on.provider.delete(claim.status.provider_id)
        except InstanceNotFound:
            gone = True
        after, step = finalization.machine_asked(claim, self._on.clock.now(), gone=gone)
        claim = await self._on.actor.update(claim, after)
        await self._on.actor.act(step)
        if not gone:
            return step.again
        self._observe("nodeclaims_instance_termination_duration_seconds", claim, claims.since(claim, claims.INSTANCE_TERMINATING))
        return await self._release(claim)

    async def _release(self, claim: NodeClaim) -> timedelta | None:
        free, step = finalization.released(claim)
        await self._on.actor.update(claim, free)
        await self._on.actor.act(step)
        self._observe("nodeclaims_termination_duration_seconds", claim, claim.metadata.deletion_timestamp)
        self._machines.pop(claim.metadata.uid, None)
        return None

    def _observe(self, metric: str, claim: NodeClaim, began: datetime | None) -> None:
        if began is not None:
            took_s = (self._on.clock.now() - began).total_seconds()
            self._on.actor.observe(metric, took_s, {"nodepool": claims.pool_of(claim)})

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is None:
            assert old is not None
            self._machines.pop(old.metadata.uid, None)
            return
        if claims.is_set(new, claims.LAUNCHED):
            self._machines.pop(new.metadata.uid, None)
        self.controller.enqueue(new.key)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new if new is not None else old
        assert node is not None
        claim = self._on.mirror.claim_of(node)
        if claim is not None:
            self.controller.enqueue(claim.key)
