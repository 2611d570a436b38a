"""Small questions about NodeClaims, and how a rule changes one: a new value, compared with the old one when it is written.

Source: spec/scheduling 10.4 to 10.6.
"""

from datetime import datetime, timedelta

import msgspec

from kubewright.api import conditions, duration, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import find_condition

LAUNCHED = "Launched"
REGISTERED = "Registered"
INITIALIZED = "Initialized"
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
DRAINED = "Drained"
VOLUMES_DETACHED = "VolumesDetached"
INSTANCE_TERMINATING = "InstanceTerminating"
DISRUPTION_REASON = "DisruptionReason"
CONSISTENT = "ConsistentStateFound"
DEPENDENTS = conditions.NODE_CLAIM.dependents


def status_of(claim: NodeClaim, kind: str) -> str:
    """The condition's status ("True", "False" or "Unknown"); a condition that is not there yet is Unknown."""
    found = find_condition(claim.status.conditions, kind)
    return "Unknown" if found is None else found.status


def is_set(claim: NodeClaim, kind: str) -> bool:
    return status_of(claim, kind) == "True"


def since(claim: NodeClaim, kind: str) -> datetime | None:
    """When the condition last changed its status; for a dependent one that is not there yet, when the claim was created."""
    found = find_condition(claim.status.conditions, kind)
    if found is not None and found.last_transition_time is not None:
        return found.last_transition_time
    return claim.metadata.creation_timestamp if found is None and kind in DEPENDENTS else None


def with_condition(claim: NodeClaim, kind: str, status: str, reason: str = "", message: str = "", *, now: datetime) -> NodeClaim:
    """The claim with one condition set and Ready worked out anew."""
    found = conditions.set_condition(
        claim.status.conditions, kind, status, reason, message, kinds=conditions.NODE_CLAIM, meta=claim.metadata, now=now
    )
    return with_status(claim, conditions=found)


def without_condition(claim: NodeClaim, kind: str) -> NodeClaim:
    """The claim without an independent condition."""
    return with_status(claim, conditions=conditions.clear_condition(claim.status.conditions, kind, kinds=conditions.NODE_CLAIM))


def with_status(claim: NodeClaim, **changes: object) -> NodeClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, **changes))


def grace(claim: NodeClaim) -> timedelta | None:
    """The claim's terminationGracePeriod; None when a drain may take as long as it takes."""
    text = claim.spec.termination_grace_period
    return None if text is None else duration.parse(text)


def pool_of(claim: NodeClaim) -> str:
    """Name of the NodePool it was bought for, "" if it has none."""
    return claim.metadata.labels.get(labels.NODEPOOL, "")


def termination_time(claim: NodeClaim | None) -> datetime | None:
    """After which pods are no longer asked but deleted, from the claim's annotation; None without a deadline.

    Raises:
        ValueError: the annotation is not an RFC 3339 time.
    """
    text = None if claim is None else claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
    if claim is None or text is None:
        return None
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"NodeClaim {claim.name}: annotation {labels.TERMINATION_TIMESTAMP} is {text!r};"
            " write a time such as 2026-01-02T15:04:05Z"
        ) from error


def rfc3339(moment: datetime) -> str:
    """The moment as Kubernetes writes it: UTC, whole seconds."""
    return str(msgspec.to_builtins(moment.replace(microsecond=0)))
