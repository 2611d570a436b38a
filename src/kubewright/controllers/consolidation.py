"""nodeclaim.disruption: keeps the Drifted and Consolidatable conditions of each NodeClaim true.

The rules are `lifecycle.drift` and `disruption.consolidatable`; the cloud has a say in drift. Source: spec/disruption 3.1, 3.3.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object, find_condition
from kubewright.controllers.context import Context
from kubewright.disruption.consolidatable import consolidatable
from kubewright.errors import InstanceNotFound, NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, drift
from kubewright.lifecycle.effects import sooner
from kubewright.solver.problem import Pool


class _Asked(NamedTuple):
    """What the cloud answered, when, and to what."""

    at: datetime
    judged_by: tuple[object, ...]
    answer: str


class DisruptionConditions:
    """Keyed by NodeClaim."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._asked: dict[str, _Asked] = {}
        self._changes: dict[str, int] = {}
        """Name of a NodeClass → how often it was seen to change."""
        self._log = structlog.get_logger("kubewright.nodeclaim.disruption")
        self.controller = Controller("nodeclaim.disruption", self.reconcile, workers=10)
        context.mirror.node_claims.subscribe(self._claim_changed)
        context.mirror.node_pools.subscribe(self._pool_changed)
        context.mirror.on_node_class(self._class_changed)

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
        now = self._on.clock.now()
        after, again = consolidatable(claim, pool, now)
        if claims.is_set(claim, claims.LAUNCHED):
            after, again = drift.marked(after, await self._drift(claim, pool), now), sooner(again, drift.POLL)
        else:
            after = drift.marked(after, "", now)
        if claims.is_set(after, claims.DRIFTED) and not claims.is_set(claim, claims.DRIFTED):
            self._log.info("marking drifted", NodeClaim={"name": name}, reason=_reason(after))
        try:
            await self._on.actor.update(claim, after)
        except NotFound:
            return None
        return again

    async def _drift(self, claim: NodeClaim, pool: NodePool) -> str:
        offered = self._on.mirror.offers(pool.name) or Pool(pool)
        now = self._on.clock.now()
        found = drift.reason(claim, offered, now)
        if found:
            return found
        # The cloud is asked again when what it judges by has changed, else now and then: claims change all the time.
        judged_by = (
            claim.status.provider_id,
            claim.status.image_id,
            self._changes.get(claim.spec.node_class_ref.name, 0),
            *sorted(claim.metadata.annotations.items()),
        )
        asked = self._asked.get(claim.name)
        if asked is not None and asked.judged_by == judged_by and now - asked.at < drift.POLL:
            return asked.answer
        try:
            answer = await self._on.provider.drift_reason(claim)
        except InstanceNotFound:
            answer = ""  # garbage collection's business
        self._asked[claim.name] = _Asked(now, judged_by, answer)
        return answer

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)
        elif old is not None:
            self._asked.pop(old.name, None)

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        """What it asks for, and its hash; not the status that others write all the time."""
        if new is None or (old is not None and (old.spec, _hashes(old)) == (new.spec, _hashes(new))):
            return
        for claim in self._on.mirror.node_claims.objects.values():
            if claims.pool_of(claim) == new.name:
                self.controller.enqueue(claim.key)

    def _class_changed(self, old: Object | None, new: Object | None) -> None:
        """Its spec or its status may make machines drift: images, subnets, security groups."""
        changed = new if new is not None else old
        assert changed is not None
        self._changes[changed.name] = self._changes.get(changed.name, 0) + 1
        for claim in self._on.mirror.node_claims.objects.values():
            if claim.spec.node_class_ref.name == changed.name:
                self.controller.enqueue(claim.key)


def _hashes(pool: NodePool) -> tuple[str | None, str | None]:
    held = pool.metadata.annotations
    return held.get(labels.NODEPOOL_HASH), held.get(labels.NODEPOOL_HASH_VERSION)


def _reason(claim: NodeClaim) -> str:
    found = find_condition(claim.status.conditions, claims.DRIFTED)
    return "" if found is None else found.reason
