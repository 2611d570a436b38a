"""The counters that every end of a NodeClaim feeds. Source: spec/scheduling 12.1, spec/disruption 8.1."""

from datetime import timedelta

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims
from kubewright.lifecycle.effects import Count


def disrupted(claim: NodeClaim, reason: str, *, pods: int | None = None, policy: str = "") -> Count:
    """One NodeClaim ended for `reason`; with `pods`, the count of pods that must move instead of the claim itself."""
    facts = {
        "reason": reason,
        "nodepool": claims.pool_of(claim),
        "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
        "consolidation_policy": policy,
        "termination_mode": termination_mode(claim),
    }
    if pods is None:
        return Count("nodeclaims_disrupted_total", facts)
    return Count("pods_disruption_initiated_total", facts, pods)


def policy_label(policy: str) -> str:
    """A consolidationPolicy as metrics write it: `when_empty_or_underutilized`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in policy).lstrip("_")


def termination_mode(claim: NodeClaim) -> str:
    allowed = claims.grace(claim)
    if allowed is None:
        return "graceful"
    return "eventual" if allowed > timedelta() else "forceful"
