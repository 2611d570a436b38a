"""Launch: a NodeClaim gets its machine, or is told why not.

The call to the cloud stands between `wanted` and what follows; it is safe to repeat for the same claim.
Source: spec/scheduling 11.2.
"""

from datetime import datetime

import msgspec

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim
from kubewright.errors import CloudError, InsufficientCapacity, LaunchFailed, NodeClassNotReady
from kubewright.lifecycle import claims
from kubewright.lifecycle.disrupted import disrupted
from kubewright.lifecycle.effects import Delete, Effect, EventKind, Publish, Step

MESSAGE_LIMIT = 300


class Launched(msgspec.Struct, frozen=True):
    """What the cloud gave: the same facts as `cloud.provider.Instance`, which is out of this floor's reach."""

    provider_id: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    image_id: str = ""


def finalized(claim: NodeClaim) -> NodeClaim:
    """The claim with our finalizer, which must be there before anything is bought for it."""
    if labels.TERMINATION_FINALIZER in claim.metadata.finalizers:
        return claim
    metadata = msgspec.structs.replace(claim.metadata, finalizers=(*claim.metadata.finalizers, labels.TERMINATION_FINALIZER))
    return msgspec.structs.replace(claim, metadata=metadata)


def wanted(claim: NodeClaim) -> bool:
    """Whether the cloud must (still) be asked for the claim's machine."""
    return claims.status_of(claim, claims.LAUNCHED) == "Unknown"


def succeeded(claim: NodeClaim, machine: Launched, now: datetime) -> NodeClaim:
    """The claim with what is now known of its machine.

    Labels the claim already has win over the cloud's; the cloud's annotations win over the claim's.
    """
    metadata = msgspec.structs.replace(
        claim.metadata,
        labels={**machine.labels, **claim.metadata.labels},
        annotations={**claim.metadata.annotations, **machine.annotations},
    )
    known = claims.with_status(
        msgspec.structs.replace(claim, metadata=metadata),
        provider_id=machine.provider_id,
        image_id=machine.image_id,
        capacity=dict(machine.capacity),
        allocatable=dict(machine.allocatable),
    )
    return claims.with_condition(known, claims.LAUNCHED, "True", now=now)


def failed(claim: NodeClaim, error: CloudError, now: datetime) -> tuple[NodeClaim, Step]:
    """The claim with the reason shown, and what else to do; when the claim must go, the step says so.

    Where it does not, the caller raises the error again so that the launch is retried.
    """
    if isinstance(error, InsufficientCapacity):
        told = Publish(
            claim,
            EventKind.WARNING,
            "InsufficientCapacityError",
            f"NodeClaim {claim.name} event: {shorten(error.message)}",
            (claim.metadata.uid,),
        )
        return claim, Step((told, *gone(claim, "insufficient_capacity")))
    if isinstance(error, NodeClassNotReady):
        return claim, Step(gone(claim, "nodeclass_not_ready"))
    reason = error.condition_reason if isinstance(error, LaunchFailed) else "LaunchFailed"
    return claims.with_condition(claim, claims.LAUNCHED, "Unknown", reason, shorten(error.message), now=now), Step()


def gone(claim: NodeClaim, reason: str) -> tuple[Effect, ...]:
    return (Delete(claim), disrupted(claim, reason))


def shorten(message: str) -> str:
    """At most 300 bytes of it, cut between characters."""
    encoded = message.encode()
    return message if len(encoded) <= MESSAGE_LIMIT else encoded[:MESSAGE_LIMIT].decode(errors="ignore") + "..."
