"""nodeclaim.expiration and nodeclaim.garbagecollection: NodeClaims that end by age, or because their machine has vanished.

Source: spec/disruption 6.1, 6.3.
"""

from datetime import timedelta

from kubewright.api.karpenter import NodeClaim
from kubewright.controllers.context import Context
from kubewright.kube.controller import Controller, Singleton
from kubewright.lifecycle import collection, expiration, launch, pods
from kubewright.lifecycle.disrupted import disrupted

COLLECT_EVERY = timedelta(minutes=2)


class Expiration:
    """Deletes each NodeClaim at the end of its `expireAfter`, asking nobody."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self.controller = Controller("nodeclaim.expiration", self.reconcile)
        context.mirror.node_claims.subscribe(self.controller.enqueue_object)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        claim = self._on.mirror.node_claims.get(name)
        if claim is None or not self._on.mirror.is_managed(claim.spec.node_class_ref):
            return None
        step = expiration.expire(claim, self._on.clock.now(), moving(self._on, claim))
        await self._on.actor.act(step)
        return step.again


class Collection:
    """Every two minutes, deletes NodeClaims whose machine the cloud does not list any more, and those twice without a Node."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._without: frozenset[str] = frozenset()
        """ProviderIDs of machines that had no Node when last looked at."""
        self.controller = Singleton("nodeclaim.garbagecollection", self.collect)

    async def run(self) -> None:
        await self.controller.run()

    async def collect(self) -> timedelta:
        mirror = self._on.mirror
        # The claims are read first: a machine launched during the list belongs to a claim that is not judged yet.
        found = [c for c in mirror.node_claims.objects.values() if mirror.is_managed(c.spec.node_class_ref)]
        alive = {i.provider_id for i in await self._on.provider.list() if not i.terminating}
        by_id = {c.status.provider_id: mirror.nodes_of(c) for c in found if c.status.provider_id}
        for claim in collection.orphans(found, alive, by_id):
            await self._delete(claim)
        if not mirror.silent():
            await self._collect_nodeless(collection.nodeless(found, by_id))
        return COLLECT_EVERY

    async def _collect_nodeless(self, found: tuple[NodeClaim, ...]) -> None:
        """The first time nothing more is planned onto them; the second time they go."""
        without = frozenset(c.status.provider_id for c in found)
        self._on.mirror.unmark(self._without - without)
        self._on.mirror.mark(without)
        for claim in found:
            if claim.status.provider_id in self._without:
                await self._delete(claim)
        self._without = without

    async def _delete(self, claim: NodeClaim) -> None:
        moved = disrupted(claim, "garbage_collected", pods=moving(self._on, claim))
        await self._on.actor.act((*launch.gone(claim, "garbage_collected"), moved))


def moving(context: Context, claim: NodeClaim) -> int:
    """How many pods of the claim's Nodes would need another home."""
    on = (pod for node in context.mirror.nodes_of(claim) for pod in context.mirror.pods_on(node.name))
    return sum(1 for pod in on if pods.is_reschedulable(pod))
