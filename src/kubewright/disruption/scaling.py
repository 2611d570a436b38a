"""A static NodePool has as many nodes as it says: how many to buy, and which to let go when there are too many.

Nodes that a command is replacing count as nodes still, so that nothing is bought for them twice; their replacements are bought by
that command. Source: spec/scheduling 9.3, spec/disruption 6.9, 7.6. Differs on purpose: what is bought is what is missing after
those, where the reference buys for a node under replacement as well and then removes one too many.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from kubewright.api import duration, quantity
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.disruption import cost
from kubewright.lifecycle import claims, pods, state

NODES = "nodes"


class Census(msgspec.Struct, frozen=True):
    """A static pool's NodeClaims by what becomes of them, each by name."""

    active: tuple[NodeClaim, ...] = ()
    replaced: tuple[NodeClaim, ...] = ()
    """A disruption command has marked them; it buys their successors itself."""
    going: tuple[NodeClaim, ...] = ()

    @property
    def total(self) -> int:
        return len(self.active) + len(self.replaced) + len(self.going)


def census(owned: Iterable[NodeClaim]) -> Census:
    """`owned` are all NodeClaims of the pool, those included that were just created and that no watch has shown yet."""
    active: list[NodeClaim] = []
    replaced: list[NodeClaim] = []
    going: list[NodeClaim] = []
    for claim in sorted(owned, key=lambda c: c.name):
        if state.is_claim_going(claim):
            going.append(claim)
        elif claims.is_set(claim, claims.DISRUPTION_REASON):
            replaced.append(claim)
        else:
            active.append(claim)
    return Census(tuple(active), tuple(replaced), tuple(going))


def missing(pool: NodePool, counted: Census) -> tuple[int, int]:
    """(how many nodes to buy now, how many more are wanted than `limits.nodes` allows)."""
    wanted = max(0, (pool.spec.replicas or 0) - len(counted.active) - len(counted.replaced))
    written = (pool.spec.limits or {}).get(NODES)
    if written is None:
        return wanted, 0
    room = max(0, quantity.parse(written) // int(quantity.ONE) - counted.total)
    return min(wanted, room), max(0, wanted - room)


def surplus(pool: NodePool, counted: Census, on: Mapping[str, Sequence[Pod]], now: datetime) -> tuple[NodeClaim, ...]:
    """The NodeClaims to let go, in the order in which they go; `on` has the pods of each by the NodeClaim's name.

    What was never launched goes first, then what is empty, then what disturbs least; pinned pods go last and are not spared.
    """
    excess = len(counted.active) - (pool.spec.replicas or 0)
    if excess <= 0:
        return ()
    return tuple(sorted(counted.active, key=lambda c: _order(c, on.get(c.name, ()), now))[:excess])


def _order(claim: NodeClaim, bound: Sequence[Pod], now: datetime) -> tuple[bool, bool, bool, float, str]:
    running = [p for p in bound if not pods.is_terminal(p)]
    pinned = any(not pods.is_disruptable(p, now) for p in running)
    is_empty = not pinned and all(pods.is_daemon(p) for p in running)
    disturbance = sum(cost.of_pod(p) for p in running) * cost.remaining_life(
        claim, duration.parse_nillable(claim.spec.expire_after or "Never"), now
    )
    return bool(claim.status.provider_id), not is_empty, pinned, disturbance, claim.name
