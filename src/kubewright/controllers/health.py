"""node.health and nodeclaim.consistency: nodes that are unwell are replaced, and those that are smaller than sold are told of.

The rules are `lifecycle.repair` and `lifecycle.consistency`. Source: spec/disruption 6.2, 6.7.
"""

from datetime import timedelta

import structlog

from kubewright.api import labels
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.controllers.ages import moving
from kubewright.controllers.context import Context
from kubewright.errors import NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, consistency, repair
from kubewright.lifecycle.effects import Delete, EventKind, Publish
from kubewright.lifecycle.repair import Policy


class NodeRepair:
    """Keyed by Node."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._policies = tuple(
            Policy(p.condition_type, p.condition_status, p.toleration) for p in context.provider.repair_policies()
        )
        self._log = structlog.get_logger("kubewright.node.health")
        self.controller = Controller("node.health", self.reconcile)
        context.mirror.nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        mirror = self._on.mirror
        node = mirror.nodes.get(name)
        claim = None if node is None else mirror.claim_of(node)
        if node is None or claim is None or len(mirror.nodes_of(claim)) > 1:
            return None
        step = repair.repair(
            node,
            claim,
            self._among(node),
            self._policies,
            self._on.clock.now(),
            pods_that_move=moving(self._on, claim),
        )
        if any(isinstance(e, Delete) for e in step.effects):
            illness = repair.diagnose(node, self._policies)
            assert illness is not None
            self._log.info("replacing an unhealthy node", Node={"name": name}, condition=illness.condition.type)
        try:
            await self._on.actor.act(step)
        except NotFound:
            return None
        return step.again

    def _among(self, node: Node) -> list[Node]:
        """The nodes of its NodePool, or all nodes if it has none."""
        pool = node.metadata.labels.get(labels.NODEPOOL)
        everybody = self._on.mirror.nodes.objects.values()
        return [n for n in everybody if pool is None or n.metadata.labels.get(labels.NODEPOOL) == pool]

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None and (old is None or _health(old) != _health(new)):
            self.controller.enqueue(new.name)


class Consistency:
    """Keyed by NodeClaim."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Controller("nodeclaim.consistency", self.reconcile, workers=10)
        context.mirror.node_claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        claim = self._on.mirror.node_claims.get(name)
        if claim is None or not self._on.mirror.is_managed(claim.spec.node_class_ref):
            return None
        after, problems = consistency.checked(claim, self._on.mirror.nodes_of(claim), self._on.clock.now())
        for problem in problems:
            told = Publish(claim, EventKind.WARNING, "FailedConsistencyCheck", problem, (claim.metadata.uid, problem))
            self._on.actor.publish(told)
        try:
            await self._on.actor.update(claim, after)
        except NotFound:
            return None
        return consistency.SCAN_EVERY

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        """When it has come to life; from then on time asks."""
        was = old is not None and claims.is_set(old, claims.INITIALIZED)
        if new is not None and not was and claims.is_set(new, claims.INITIALIZED):
            self.controller.enqueue(new.name)


def _health(node: Node) -> list[tuple[object, ...]]:
    return [(c.type, c.status, c.last_transition_time) for c in node.status.conditions]
