"""nodeclaim.unused: notices machines that nobody uses, names them, and remembers on their NodePool.

Nothing here must survive a restart: the rule reads and writes annotations (see `lifecycle.unused`).
"""

from datetime import timedelta

import structlog

from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.context import Context
from kubewright.errors import NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import bought, claims, unused
from kubewright.lifecycle.effects import Count, EventKind, Publish
from kubewright.lifecycle.unused import Fate, Judged, Tally

REASON = "UnusedPurchase"


class UnusedPurchases:
    """Keyed by NodeClaim."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._log = structlog.get_logger("kubewright.purchases")
        self.controller = Controller("nodeclaim.unused", self.reconcile)
        context.mirror.node_claims.subscribe(self.controller.enqueue_object)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        mirror, now = self._on.mirror, self._on.clock.now()
        claim = mirror.node_claims.get(name)
        if claim is None:
            return None
        node = next(iter(mirror.nodes_of(claim)), None)
        here = mirror.pods_on(node.name) if node is not None else ()
        known = mirror.state_of(claim.status.provider_id) if claim.status.provider_id else None
        is_expected = known is not None and known.nominated_until is not None and known.nominated_until > now
        patience = self._on.settings.purchases.unused_after
        judged = unused.judge(claim, node, here, mirror.pods.get, mirror.pending, now, patience=patience, is_expected=is_expected)
        if judged is None or judged.fate is Fate.WAITING:
            return None if judged is None else judged.again
        if (unused.VERDICT in claim.metadata.annotations) == (judged.fate is not Fate.USED) and judged.fate is not Fate.USED:
            return None
        pool = mirror.pool_of(claim)
        try:
            # The pool first: whoever is killed in between counts again, which changes nothing.
            told = unused.tally(pool) if pool is not None else Tally()
            if pool is not None:
                told = unused.after(told, claim, judged, here, now)
                await self._on.actor.update(pool, unused.with_tally(pool, told))
            await self._on.actor.update(claim, unused.with_verdict(claim, judged.fate))
        except NotFound:
            return None
        if judged.fate is not Fate.USED:
            await self._tell(claim, node, pool, judged, told)
        return None

    async def _tell(self, claim: NodeClaim, node: Node | None, pool: NodePool | None, judged: Judged, told: Tally) -> None:
        text = _text(claim, judged, told, pool)
        labelled = {"nodepool": claims.pool_of(claim), "reason": judged.fate.value}
        self._log.warning("nobody uses a machine", NodeClaim={"name": claim.name}, reason=judged.fate.value, detail=text)
        await self._on.actor.act((Count("kubewright_unused_purchases_total", labelled),))
        for about in (claim, node, pool if told.points >= unused.PAUSE_AT else None):
            if about is not None:
                kind = EventKind.NORMAL if judged.fate is Fate.GONE else EventKind.WARNING
                self._on.actor.publish(Publish(about, kind, REASON, text, (about.metadata.uid, claim.name)))


def _text(claim: NodeClaim, judged: Judged, told: Tally, pool: NodePool | None) -> str:
    for_whom = bought.of(claim)
    assert for_whom is not None
    more = f" and {for_whom.count - 1} more" if for_whom.count > 1 else ""
    price = f" at ${for_whom.usd_per_hour:.4f}/h" if for_whom.usd_per_hour else ""
    text = f"Nobody uses {claim.name}, bought{price} for {for_whom.pods[0]}{more}: {judged.why}."
    held = [told.held[key] for key in {unused.workload(p) for p in judged.waiting} if key in told.held]
    if held:
        text += (
            f" NodePool {claims.pool_of(claim)} buys for that workload again after {claims.rfc3339(max(h.until for h in held))}."
        )
    if pool is not None and told.until is not None and told.points >= unused.PAUSE_AT:
        text += f" NodePool {pool.name} buys nothing until {claims.rfc3339(told.until)}."
    return text
