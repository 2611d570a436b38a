"""nodeclaim.disruption: keeps the Consolidatable condition of each NodeClaim true to its pool's `consolidateAfter`.

Source: spec/disruption 3.1.
"""

from datetime import timedelta

from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.context import Context
from kubewright.disruption.consolidatable import consolidatable
from kubewright.errors import NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims


class DisruptionConditions:
    """Keyed by NodeClaim."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Controller("nodeclaim.disruption", self.reconcile, workers=10)
        context.mirror.node_claims.subscribe(self._claim_changed)
        context.mirror.node_pools.subscribe(self._pool_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        mirror = self._on.mirror
        claim = mirror.node_claims.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None or not mirror.is_managed(claim.spec.node_class_ref):
            return None
        pool = mirror.pool_of(claim)
        if pool is None:
            return None
        after, again = consolidatable(claim, pool, self._on.clock.now())
        try:
            await self._on.actor.update(claim, after)
        except NotFound:
            return None
        return again

    def _claim_changed(self, _: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        """Only its disruption settings matter here, not the status that others write all the time."""
        if new is None or (old is not None and old.spec == new.spec):
            return
        for claim in self._on.mirror.node_claims.objects.values():
            if claims.pool_of(claim) == new.name:
                self.controller.enqueue(claim.key)
