"""The end of a NodeClaim: its Nodes drain and go, then its machine, then the claim.

Source: spec/disruption 5.1, spec/scheduling 11.6.
"""

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims
from kubewright.lifecycle.effects import Count, Delete, EventKind, Publish, Step, Update

POLL = timedelta(seconds=5)
"""How often a machine that is asked to end is asked about."""
FIRST_POLL = timedelta(seconds=1)
"""How often in the first seconds: clouds that end a machine quickly should not be waited for."""
QUICK = timedelta(seconds=3)


class Stage(enum.StrEnum):
    DRAINING = "draining"
    """Nodes are still there; their own finalization drains them."""
    MACHINE = "machine"
    """The cloud must be asked to end the machine: call it, then `machine_asked`."""
    DONE = "done"
    """Nothing stands behind the claim any more: `released`."""


class Ending(msgspec.Struct, frozen=True):
    stage: Stage
    step: Step = Step()


def next_stage(claim: NodeClaim, found: Sequence[Node]) -> Ending:
    """What a claim that is being deleted needs now.

    `found`: the Nodes of its instance. The step is done first; when it changes the claim the stage is asked for again.
    """
    dated = with_deadline(claim)
    if dated is not claim:
        told = Publish(
            claim,
            EventKind.WARNING,
            "TerminationGracePeriodExpiring",
            f"All pods will be deleted by {dated.metadata.annotations[labels.TERMINATION_TIMESTAMP]}",
            (claim.metadata.uid,),
        )
        return Ending(Stage.DRAINING, Step((Update(claim, dated), told), timedelta()))
    if claims.is_set(claim, claims.REGISTERED) and found:
        leaving = tuple(Delete(n) for n in found if n.metadata.deletion_timestamp is None)
        return Ending(Stage.DRAINING, Step(leaving))
    if claim.status.provider_id:
        return Ending(Stage.MACHINE)
    return Ending(Stage.DONE)


def with_deadline(claim: NodeClaim) -> NodeClaim:
    """The claim with its termination time written down: deletion + grace, unless one is there already or no grace is set."""
    allowed = claims.grace(claim)
    deleted = claim.metadata.deletion_timestamp
    if allowed is None or deleted is None or labels.TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return claim
    annotations = {**claim.metadata.annotations, labels.TERMINATION_TIMESTAMP: claims.rfc3339(deleted + allowed)}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def machine_asked(claim: NodeClaim, now: datetime, *, gone: bool) -> tuple[NodeClaim, Step]:
    """The claim after the cloud was asked to end its machine; once that is gone, the claim may be released."""
    ending = claims.with_condition(claim, claims.INSTANCE_TERMINATING, "True", now=now)
    return ending, Step() if gone else Step(again=poll_after(ending, now))


def poll_after(claim: NodeClaim, now: datetime) -> timedelta:
    """When to ask again about a machine that was told to end."""
    began = claims.since(claim, claims.INSTANCE_TERMINATING)
    return FIRST_POLL if began is None or now - began < QUICK else POLL


def released(claim: NodeClaim) -> tuple[NodeClaim, Step]:
    """The claim without our finalizer, which lets the API server remove it."""
    kept = tuple(f for f in claim.metadata.finalizers if f != labels.TERMINATION_FINALIZER)
    free = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=kept))
    told = Count(
        "nodeclaims_terminated_total",
        {
            "nodepool": claims.pool_of(claim),
            "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
            "zone": claim.metadata.labels.get(labels.ZONE, ""),
        },
    )
    return free, Step((told,))
