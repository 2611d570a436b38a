"""Expiration: a NodeClaim's own `expireAfter` ends it, without asking budgets or pods.

Source: spec/disruption 6.1.
"""

from datetime import datetime, timedelta

from kubewright.api import duration
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import launch
from kubewright.lifecycle.disrupted import disrupted
from kubewright.lifecycle.effects import NOTHING, Step


def expires_at(claim: NodeClaim) -> datetime | None:
    """When the claim ends by age; None when never."""
    life = duration.parse_nillable(claim.spec.expire_after)
    return None if life is None or claim.metadata.creation_timestamp is None else claim.metadata.creation_timestamp + life


def expire(claim: NodeClaim, now: datetime, pods_that_move: int) -> Step:
    """Delete a claim whose time has come; else ask again exactly then."""
    end = expires_at(claim)
    if end is None or claim.metadata.deletion_timestamp is not None:
        return NOTHING
    if now < end:
        return Step(again=max(end - now, timedelta()))
    return Step((*launch.gone(claim, "expired"), disrupted(claim, "expired", pods=pods_that_move)))
