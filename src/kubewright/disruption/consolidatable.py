"""The Consolidatable condition: nothing has moved on the node for as long as its NodePool's `consolidateAfter` asks.

It stands on the NodeClaim, so the timer survives a restart. Source: spec/disruption 3.1.
"""

from datetime import datetime, timedelta

from kubewright.api import duration
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.lifecycle import claims


def quiet_since(claim: NodeClaim) -> datetime | None:
    """When a pod last came or went, else when the node was initialized; None before that."""
    if not claims.is_set(claim, claims.INITIALIZED):
        return None
    return claim.status.last_pod_event_time or claims.since(claim, claims.INITIALIZED)


def consolidatable(claim: NodeClaim, pool: NodePool, now: datetime) -> tuple[NodeClaim, timedelta | None]:
    """The claim with the condition set or cleared, and when it will be due if it is not yet."""
    after = duration.parse_nillable(pool.spec.disruption.consolidate_after)
    start = quiet_since(claim)
    if after is None or start is None or pool.spec.replicas is not None:
        return claims.without_condition(claim, claims.CONSOLIDATABLE), None
    due = start + after
    if now < due:
        return claims.without_condition(claim, claims.CONSOLIDATABLE), due - now
    if claims.is_set(claim, claims.CONSOLIDATABLE):
        return claim, None
    return claims.with_condition(claim, claims.CONSOLIDATABLE, "True", now=now), None


def is_under_consolidate_after(claim: NodeClaim | None, pool: NodePool | None, now: datetime) -> bool:
    """Whether the node is still settling, so that a simulation must not put moved pods on it.

    Source: spec/scheduling 4.4.
    """
    if claim is None or pool is None:
        return False
    after = duration.parse_nillable(pool.spec.disruption.consolidate_after)
    start = quiet_since(claim)
    return after is not None and after > timedelta() and start is not None and now - start < after
