"""nodepool.*: what a NodePool's status and annotations say about it, kept current.

The rules are in `lifecycle.pools`. Source: spec/scheduling 10.2.
"""

from datetime import timedelta

from kubewright.api import hash as pool_hash
from kubewright.api import quantity, validation
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object
from kubewright.controllers.context import Context
from kubewright.errors import Conflict, NotFound
from kubewright.kube.controller import Controller, Singleton
from kubewright.lifecycle import claims, pools, state
from kubewright.lifecycle.effects import Update

COUNT_EVERY = timedelta(seconds=5)


class PoolStatus:
    """Validation, readiness, registration health and hash of each NodePool."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Controller("nodepool", self.reconcile)
        context.mirror.node_pools.subscribe(self.controller.enqueue_object)
        context.mirror.on_node_class(self._class_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        pool = self._on.mirror.node_pools.get(name)
        if pool is None or not self._on.mirror.is_managed(pool.spec.template.spec.node_class_ref):
            return None
        now = self._on.clock.now()
        node_class = self._on.mirror.node_class(pool.spec.template.spec.node_class_ref)
        after = pools.validated(pool, validation.runtime_problems(pool), now)
        after = pools.class_seen(after, node_class, now)
        if pools.health_is_stale(after, node_class):
            self._on.healths.forget(after)
            after = pools.health_reset(after, node_class, now)
        value = pool_hash.node_pool_hash(pool)
        await self._rehash_claims(pool, value)
        after = pools.hashed(after, value, pool_hash.NODE_POOL_HASH_VERSION)
        try:
            await self._on.actor.update(pool, after)
        except NotFound:
            return None
        return None

    async def _rehash_claims(self, pool: NodePool, value: str) -> None:
        """Claims first: the pool's own version changes last, so that a crash in between begins anew."""
        for name in sorted(self._on.mirror.node_claims.objects):
            claim = self._on.mirror.node_claims.objects[name]
            if claims.pool_of(claim) == pool.name:
                after = pools.rehashed(pool, claim, value, pool_hash.NODE_POOL_HASH_VERSION)
                if after is not claim:
                    await self._on.actor.act((Update(claim, after),))

    def _class_changed(self, old: Object | None, new: Object | None) -> None:
        changed = new if new is not None else old
        assert changed is not None
        for pool in self._on.mirror.node_pools.objects.values():
            if pool.spec.template.spec.node_class_ref.name == changed.name:
                self.controller.enqueue(pool.key)


class PoolCounter:
    """Every five seconds, writes what each NodePool's nodes hold together; only when it changed."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Singleton("nodepool.counter", self.count)

    async def run(self) -> None:
        await self.controller.run()

    async def count(self) -> timedelta:
        now = self._on.clock.now()
        waiting = self._on.mirror.unlaunched(now)
        self._on.actor.measure("cluster_state_synced", 0 if waiting else 1, {})
        self._on.actor.measure("cluster_state_node_count", len(self._on.mirror.snapshot(now).nodes), {})
        if waiting:
            return timedelta(seconds=1)
        held: dict[str, list[dict[str, int]]] = {}
        for known in self._on.mirror.snapshot(now).nodes:
            if known.claim is not None and not known.marked_for_deletion:
                held.setdefault(claims.pool_of(known.claim), []).append(state.capacity(known))
        for name in sorted(self._on.mirror.node_pools.objects):
            pool = self._on.mirror.node_pools.objects[name]
            if self._on.mirror.is_managed(pool.spec.template.spec.node_class_ref):
                after = pools.counted(pool, held.get(name, ()))
                self._measure(after)
                await self._write(pool, after)
        return COUNT_EVERY

    def _measure(self, pool: NodePool) -> None:
        for metric, amounts in (("nodepools_usage", pool.status.resources), ("nodepools_limit", pool.spec.limits or {})):
            for name, text in amounts.items():
                labelled = {"nodepool": pool.name, "resource_type": name}
                self._on.actor.measure(metric, quantity.parse(text) / quantity.ONE, labelled)

    async def _write(self, pool: NodePool, after: NodePool) -> None:
        try:
            await self._on.actor.update(pool, after, locked=False)
        except (Conflict, NotFound):
            return


class Hydration:
    """nodeclaim.hydration: gives NodeClaims and Nodes of older versions the NodeClass label that later rules rely on."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Controller("nodeclaim.hydration", self.reconcile)
        context.mirror.node_claims.subscribe(self.controller.enqueue_object)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        claim = self._on.mirror.node_claims.get(name)
        if claim is None or not self._on.mirror.is_managed(claim.spec.node_class_ref):
            return None
        try:
            await self._label(claim)
        except NotFound:
            return None
        return None

    async def _label(self, claim: NodeClaim) -> None:
        actor = self._on.actor
        await actor.update(claim, pools.hydrated(claim, claim), locked=False)
        for node in self._on.mirror.nodes_of(claim):
            if claims.is_set(claim, claims.REGISTERED):
                await actor.update(node, pools.hydrated(node, claim), locked=False)
