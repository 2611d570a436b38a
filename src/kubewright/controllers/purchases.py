"""Planned claims become NodeClaims here, whoever planned them: the provisioner, a disruption, a static pool."""

from collections.abc import Iterable, Mapping

import structlog

from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.controllers.actor import Actor
from kubewright.controllers.inflight import InFlight
from kubewright.errors import AlreadyExists
from kubewright.kube.client import KubeClient
from kubewright.kube.ratelimit import TokenBucket
from kubewright.lifecycle import bought, nodes, purchase
from kubewright.lifecycle.effects import Count, EventKind, Publish
from kubewright.solver.problem import PlannedClaim
from kubewright.state.mirror import Mirror

NOMINATED_PER_S, NOMINATED_BURST = 5, 10


class Purchases:
    """What this process buys, and what it has bought that has no machine yet."""

    def __init__(self, client: KubeClient, mirror: Mirror, actor: Actor) -> None:
        self.in_flight = InFlight()
        self._client = client
        self._mirror = mirror
        self._actor = actor
        self._nominations = TokenBucket(NOMINATED_PER_S, NOMINATED_BURST)
        self._log = structlog.get_logger("kubewright.purchases")
        mirror.node_claims.subscribe(self._claim_changed)

    async def buy(
        self, name: str, planned: PlannedClaim, pool: NodePool, reason: str, *, annotations: Mapping[str, str] | None = None
    ) -> NodeClaim | None:
        """Create the NodeClaim `name` as `pool` was when it was planned; safe to repeat under the same name.

        None if the NodePool is gone or another by now, or if a claim of that name is there already. `reason` is told to metrics;
        `annotations` are added to the claim's own.

        Raises:
            KubeError: the API server refuses it.
        """
        now = self._mirror.node_pools.get(planned.node_pool)
        if now is None or now.metadata.uid != pool.metadata.uid:
            self._log.info("the NodePool is gone, its claim is not made", nodepool=planned.node_pool)
            return None
        claim = purchase.node_claim(planned, pool, name)
        more = {**bought.note(planned, reason), **(annotations or {})}
        claim = nodes.with_metadata(claim, annotations={**claim.metadata.annotations, **more})
        try:
            made = await self._client.create(claim)
        except AlreadyExists:
            return None  # ours, from a try whose answer was lost, or another's: the watch tells, and the next pass counts it
        self._mirror.assume(made)
        self.in_flight.note(made, planned)
        self._log.info(
            "created nodeclaim",
            NodeClaim={"name": name},
            NodePool={"name": planned.node_pool},
            requests=dict(made.spec.resources.requests),
            pods=len(planned.pods),
            **{"instance-types": purchase.types_text(planned)},
        )
        relaxed = "true" if planned.min_values_relaxed else "false"
        labelled = {"reason": reason, "nodepool": planned.node_pool, "min_values_relaxed": relaxed}
        await self._actor.act((Count("nodeclaims_created_total", labelled),))
        return made

    def tell_nominations(self, pods: Iterable[Pod | None], where: str) -> None:
        """Tell each pod where it should go; None are pods that are not known any more."""
        for pod in pods:
            if pod is not None:
                told = Publish(pod, EventKind.NORMAL, "Nominated", f"Pod should schedule on: {where}", (pod.metadata.uid,))
                self._actor.publish(told, limiter=self._nominations)

    def _claim_changed(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        claim = new if new is not None else old
        assert claim is not None
        if new is None or new.status.provider_id or new.metadata.deletion_timestamp is not None:
            self.in_flight.forget(claim.name)
