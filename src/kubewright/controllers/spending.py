"""Asks the caps on spending before machines are bought, and keeps count of what was bought lately on the NodePools."""

from collections import Counter

import structlog

from kubewright.controllers.context import Context
from kubewright.disruption.candidates import prices
from kubewright.errors import Conflict, NotFound
from kubewright.lifecycle import bought, nodes, spending
from kubewright.lifecycle.effects import Count, EventKind, Publish
from kubewright.lifecycle.spending import Admitted
from kubewright.solver.problem import Plan, PlannedClaim, Snapshot

REASON = "SpendingCapped"


class Spending:
    """`admit` before, `note` right before what was admitted is bought: a crash in between counts too much, never too little."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._caps = context.settings.purchases
        self._own: dict[str, dict[int, int]] = {}
        """NodePool UID → minute → machines that this process bought; the watch may be behind."""
        self._log = structlog.get_logger("kubewright.purchases")

    async def admit(self, plan: Plan, snapshot: Snapshot) -> Admitted:
        """What of the plan may be bought now; the rest is told of."""
        if not (self._caps.spend_cap_usd_per_hour or self._caps.per_hour) or not plan.claims:
            return Admitted(plan.claims)
        lately = spending.total(self._lately(pool.key) for pool in self._on.mirror.node_pools.objects.values())
        found = spending.admit(plan.claims, self._running(snapshot), lately, self._caps)
        for one, why in found.refused:
            await self._tell(one, why)
        if self._caps.per_hour:
            await self._note(Counter(one.node_pool for one in found.claims))
        return found

    def _running(self, snapshot: Snapshot) -> float:
        """USD per hour of every machine of ours, and of those on their way as they were planned."""
        usd = sum((price for known, price in prices(snapshot.nodes, snapshot.pools) if known.claim is not None), 0.0)
        for claim in self._on.mirror.node_claims.objects.values():
            told = bought.of(claim) if not claim.status.provider_id else None
            usd += told.usd_per_hour if told is not None else 0.0
        return usd

    def _lately(self, name: str) -> dict[int, int]:
        pool = self._on.mirror.node_pools.get(name)
        if pool is None:
            return {}
        now = self._on.clock.now()
        seen = spending.lately(pool.metadata.annotations.get(spending.LATELY, ""), now)
        own = spending.recent(self._own.get(pool.metadata.uid, {}), now)
        return {at: max(seen.get(at, 0), own.get(at, 0)) for at in seen.keys() | own.keys()}

    async def _note(self, counts: Counter[str]) -> None:
        now = self._on.clock.now()
        for name in sorted(counts):
            pool = self._on.mirror.node_pools.get(name)
            if pool is None:
                continue
            text = spending.noted(self._lately(name), counts[name], now)
            self._own[pool.metadata.uid] = spending.lately(text, now)
            after = nodes.with_metadata(pool, annotations={**pool.metadata.annotations, spending.LATELY: text})
            try:
                await self._on.actor.update(pool, after, locked=False)
            except (Conflict, NotFound) as error:
                self._log.info("what was bought lately could not be noted", nodepool=name, error=str(error))

    async def _tell(self, planned: PlannedClaim, why: str) -> None:
        pool = self._on.mirror.node_pools.get(planned.node_pool)
        self._log.warning("a machine is not bought", nodepool=planned.node_pool, pods=len(planned.pods), reason=why)
        await self._on.actor.act((Count("kubewright_capped_purchases_total", {"nodepool": planned.node_pool}),))
        if pool is not None:
            told = f"A machine for {len(planned.pods)} pod(s) is not bought: {why}"
            self._on.actor.publish(Publish(pool, EventKind.WARNING, REASON, told, (pool.metadata.uid,)))
