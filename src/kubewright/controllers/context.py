"""What every controller is given."""

from dataclasses import dataclass, field
from datetime import timedelta

from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.controllers.actor import Actor
from kubewright.controllers.purchases import Purchases
from kubewright.kube.client import KubeClient
from kubewright.lifecycle import pools
from kubewright.lifecycle.effects import Effect, Update
from kubewright.lifecycle.pools import Health
from kubewright.settings import Settings
from kubewright.state.mirror import Mirror


class Healths:
    """How the machines of each NodePool did lately, by pool UID; refilled from the condition after a restart."""

    def __init__(self) -> None:
        self._known: dict[str, Health] = {}

    def of(self, pool: NodePool) -> Health:
        return self._known.get(pool.metadata.uid) or pools.remembered(pool)

    def forget(self, pool: NodePool) -> None:
        self._known[pool.metadata.uid] = Health()

    def outcome(self, pool: NodePool | None, claim: NodeClaim, clock: Clock, *, came_to_life: bool) -> tuple[Effect, ...]:
        """Note how a claim of the pool did, and say what that changes on the pool."""
        if pool is None or not pools.owns(pool, claim):
            return ()
        health = self.of(pool).after(came_to_life)
        self._known[pool.metadata.uid] = health
        after = pools.health_after(pool, health, claim, clock.now(), came_to_life=came_to_life)
        return (Update(pool, after),) if after != pool else ()


@dataclass(frozen=True)
class Context:
    client: KubeClient
    provider: CloudProvider
    mirror: Mirror
    actor: Actor
    clock: Clock
    settings: Settings
    purchases: Purchases
    healths: Healths = field(default_factory=Healths)

    @property
    def nominated_for(self) -> timedelta:
        """How long pods are expected on a node they were planned for. Source: spec/disruption 7.3."""
        return max(2 * self.settings.batch_max_duration, timedelta(seconds=10))
