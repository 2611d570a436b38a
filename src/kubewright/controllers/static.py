"""static.provisioning, static.deprovisioning: a NodePool with `spec.replicas` has as many nodes as it says.

The rules are in `disruption.scaling`. Source: spec/scheduling 9.3, spec/disruption 6.9.
"""

from collections.abc import Callable
from datetime import timedelta

import structlog
from msgspec.structs import replace

from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.context import Context
from kubewright.controllers.provisioner import Ask
from kubewright.disruption.scaling import census, missing, surplus
from kubewright.disruption.static import template_claim
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, pools, purchase, state
from kubewright.lifecycle.effects import Delete

AGAIN = timedelta(minutes=1)
AT_LIMIT = timedelta(seconds=30)
WORKERS = 10


class StaticIsOff:
    """With the feature gate off nobody cares for static pools; that is said, once for each."""

    def __init__(self, context: Context) -> None:
        self._log = structlog.get_logger("kubewright.static")
        context.mirror.node_pools.subscribe(self._pool_changed)

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        if new is not None and new.spec.replicas is not None and (old is None or old.spec.replicas is None):
            self._log.warning(
                "a NodePool has spec.replicas and is left alone: set the feature gate StaticCapacity=true",
                NodePool={"name": new.name},
            )


class StaticProvisioning:
    """Buys what is missing. One reconcile of a pool at a time, so no two count the same room under its limit."""

    def __init__(self, context: Context, ask: Ask) -> None:
        self._on = context
        self._ask = ask
        self._log = structlog.get_logger("kubewright.static.provisioning")
        self.controller = Controller("static.provisioning", self.reconcile, workers=WORKERS)
        context.mirror.node_pools.subscribe(self._pool_changed)
        context.mirror.node_claims.subscribe(_when_gone(self.controller.enqueue))

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        mirror = self._on.mirror
        pool = mirror.node_pools.get(name)
        if pool is None or pool.spec.replicas is None or not mirror.is_managed(pool.spec.template.spec.node_class_ref):
            return None
        if not pools.is_ready(pool):
            return None  # becoming ready is an event
        counted = census(mirror.claims_of(pool))
        count, refused = missing(pool, counted)
        if refused:
            self._log.info("nodes limit reached", NodePool={"name": name}, wanted=count + refused, granted=count)
        if not count:
            return AT_LIMIT if refused else AGAIN
        found = next((p for p in await mirror.refresh_pools() if p.node_pool.name == name), None)
        if found is None:
            return AGAIN
        now = self._on.clock.now()
        problem, _ = self._ask(mirror.snapshot(now))
        planned = template_claim(found, problem)
        if isinstance(planned, str):
            self._log.warning("a static NodePool cannot buy its nodes", NodePool={"name": name}, error=planned)
            return AT_LIMIT
        # Counted once more: asking what is for sale may have taken a while.
        count, _ = missing(pool, census(mirror.claims_of(pool)))
        taken = {*mirror.node_claims.objects, *(c.name for c in mirror.claims_of(pool))}
        for number in range(count):
            one = replace(planned, name=f"{planned.name}-{number}")
            claim = purchase.name_for(one, now, taken)
            taken.add(claim)
            await self._on.purchases.buy(claim, one, found.node_pool, "provisioned")
        return AT_LIMIT if refused else AGAIN

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        if new is None or new.spec.replicas is None:
            return
        if old is None or old.spec != new.spec or pools.is_ready(old) != pools.is_ready(new):
            self.controller.enqueue(new.key)


class StaticDeprovisioning:
    """Lets go what is too many. Budgets, PodDisruptionBudgets and pins do not stop it; the drain that follows heeds them."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._log = structlog.get_logger("kubewright.static.deprovisioning")
        self.controller = Controller("static.deprovisioning", self.reconcile, workers=WORKERS)
        context.mirror.node_pools.subscribe(self._pool_changed)
        context.mirror.node_claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        mirror = self._on.mirror
        pool = mirror.node_pools.get(name)
        if pool is None or pool.spec.replicas is None or pool.metadata.deletion_timestamp is not None:
            return None
        if not mirror.is_managed(pool.spec.template.spec.node_class_ref):
            return None
        counted = census(mirror.claims_of(pool))
        on = {c.name: tuple(p for node in mirror.nodes_of(c) for p in mirror.pods_on(node.name)) for c in counted.active}
        for claim in surplus(pool, counted, on, self._on.clock.now()):
            self._log.info("deleting a node that is too many", NodePool={"name": name}, NodeClaim={"name": claim.name})
            await self._on.actor.act((Delete(claim),))
            if claim.status.provider_id:
                mirror.mark((claim.status.provider_id,))
        return AGAIN

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        if new is not None and new.spec.replicas is not None and (old is None or old.spec.replicas != new.spec.replicas):
            self.controller.enqueue(new.key)

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        """A claim that came, or that a command has let go of again."""
        if new is None:
            return
        was = old is not None and claims.is_set(old, claims.DISRUPTION_REASON)
        if old is None or (was and not claims.is_set(new, claims.DISRUPTION_REASON)):
            self.controller.enqueue(claims.pool_of(new))


def _when_gone(enqueue: Callable[[str], None]) -> Callable[[NodeClaim | None, NodeClaim | None], None]:
    def changed(old: NodeClaim | None, new: NodeClaim | None) -> None:
        """A claim that goes makes room under the limit once it is gone, and one is missing as soon as it is going."""
        if old is None:
            return
        if new is None or (state.is_claim_going(new) and not state.is_claim_going(old)):
            enqueue(claims.pool_of(old))

    return changed
