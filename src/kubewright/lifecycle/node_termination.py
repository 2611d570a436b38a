"""The end of a Node: taint, drain, let volumes go, end the machine, then release it.

Source: spec/disruption 5.2.
"""

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node, Pod, VolumeAttachment
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import find_condition
from kubewright.lifecycle import claims, nodes, pods
from kubewright.lifecycle.drain import Drain, drain
from kubewright.lifecycle.effects import Count, Effect, EventKind, Publish, Step

EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
MINIMUM_DRAIN = timedelta(seconds=5)
"""A node counts as drained no sooner: a pod bound just before the taint may arrive late."""
POLL = timedelta(seconds=1)


class Stage(enum.StrEnum):
    WAITING = "waiting"
    """The step says for what and how long."""
    MACHINE = "machine"
    """Drained and detached: the cloud must be asked to end the machine."""
    DONE = "done"
    """There is no machine of ours behind it: `released`."""


class Leaving(msgspec.Struct, frozen=True):
    """A Node that is being deleted, and what hangs on it."""

    node: Node
    claim: NodeClaim | None = None
    """None if it has no NodeClaim, or several, which is nobody's."""
    pods: tuple[Pod, ...] = ()
    """All pods on the Node."""
    attachments: tuple[VolumeAttachment, ...] = ()
    volumes_of: tuple[tuple[str, str], ...] = ()
    """(pod key, name of a PersistentVolume it uses)."""


class Progress(msgspec.Struct, frozen=True):
    stage: Stage
    claim: NodeClaim | None
    """With its conditions brought up to date; to be written."""
    step: Step = Step()
    leave: tuple[Pod, ...] = ()
    """Pods for the eviction queue."""


def is_ours(node: Node, node_class_labels: Sequence[str]) -> bool:
    """Whether the Node's end is our business: it has our finalizer and one of our NodeClass labels."""
    return labels.TERMINATION_FINALIZER in node.metadata.finalizers and any(
        label in node.metadata.labels for label in node_class_labels
    )


def closed(node: Node) -> Node:
    """The Node as it must be before it drains: tainted once and for all, and out of the load balancers."""
    kept = [t for t in node.spec.taints if t.key != labels.DISRUPTED_TAINT.key or t.effect == labels.DISRUPTED_TAINT.effect]
    if not any(nodes.same_taint(t, labels.DISRUPTED_TAINT) for t in kept):
        kept.append(labels.DISRUPTED_TAINT)
    changed = {**node.metadata.labels, EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}
    return nodes.with_metadata(nodes.with_taints(node, kept), labels=changed)


def progress(leaving: Leaving, now: datetime) -> Progress:
    """How far the end of a closed Node has come, and what to do next.

    Raises:
        ValueError: the claim's termination time cannot be read.
    """
    node = leaving.node
    deadline = claims.termination_time(leaving.claim)
    claim, drained = _draining(leaving.claim, now)
    todo = drain(leaving.pods, now, deadline)
    effects: list[Effect] = []
    if deadline is not None:
        effects.append(
            Publish(
                node,
                EventKind.WARNING,
                "TerminationGracePeriodExpiring",
                f"All pods will be deleted by {claims.rfc3339(deadline)}",
                (node.metadata.uid,),
            )
        )
    if not todo.is_done:
        effects.append(_still_draining(node, todo))
        return Progress(Stage.WAITING, claim, Step(tuple(effects), POLL), todo.leave)
    if claim is None:
        return Progress(Stage.DONE, None, Step(tuple(effects)))
    if not drained:
        began = claims.since(claim, claims.DRAINED)
        if began is not None and now - began < MINIMUM_DRAIN:
            return Progress(Stage.WAITING, claim, Step(tuple(effects), min(POLL, MINIMUM_DRAIN - (now - began))))
        claim = claims.with_condition(claim, claims.DRAINED, "True", now=now)
        effects.append(Count("nodes_drained_total", {"nodepool": node.metadata.labels.get(labels.NODEPOOL, "")}))
    after = _volumes(leaving, claim, now, deadline)
    return msgspec.structs.replace(after, step=Step(tuple(effects)).then(after.step))


def _draining(claim: NodeClaim | None, now: datetime) -> tuple[NodeClaim | None, bool]:
    """The claim with a Drained condition, and whether it says that the drain is over."""
    if claim is None:
        return None, False
    if find_condition(claim.status.conditions, claims.DRAINED) is None:
        return claims.with_condition(claim, claims.DRAINED, "Unknown", "Draining", "Draining", now=now), False
    return claim, claims.is_set(claim, claims.DRAINED)


def _still_draining(node: Node, todo: Drain) -> Publish:
    return Publish(
        node,
        EventKind.WARNING,
        "FailedDraining",
        f"Failed to drain node, {len(todo.waiting)} pods are waiting to be evicted",
        (node.name,),
    )


def _volumes(leaving: Leaving, claim: NodeClaim, now: datetime, deadline: datetime | None) -> Progress:
    waiting = blocking_attachments(leaving, now)
    if not waiting:
        claim = claims.with_condition(claim, claims.VOLUMES_DETACHED, "True", now=now)
        return Progress(Stage.MACHINE, claim)
    if deadline is not None and now > deadline:
        reason = "TerminationGracePeriodElapsed"
        claim = claims.with_condition(claim, claims.VOLUMES_DETACHED, "False", reason, reason, now=now)
        return Progress(Stage.MACHINE, claim)
    named = ", ".join(a.name for a in waiting[:5]) + (f" and {len(waiting) - 5} other(s)" if len(waiting) > 5 else "")
    told = Publish(
        leaving.node,
        EventKind.NORMAL,
        "AwaitingVolumeDetachment",
        f"Awaiting deletion of VolumeAttachments bound to node ({named})",
        (leaving.node.name,),
    )
    reason = "AwaitingVolumeDetachment"
    claim = claims.with_condition(claim, claims.VOLUMES_DETACHED, "Unknown", reason, reason, now=now)
    return Progress(Stage.WAITING, claim, Step((told,), POLL))


def blocking_attachments(leaving: Leaving, now: datetime) -> tuple[VolumeAttachment, ...]:
    """Attachments to wait for, by name: not those without a PersistentVolume, nor those whose pod will never be drained."""
    staying = {p.key for p in leaving.pods if not pods.is_drainable(p, now)}
    kept = {volume for pod, volume in leaving.volumes_of if pod in staying}
    found = (a for a in leaving.attachments if a.spec.source.persistent_volume_name not in (None, *kept))
    return tuple(sorted(found, key=lambda a: a.name))


def released(node: Node) -> tuple[Node, Step]:
    """The Node without our finalizer, which lets the API server remove it."""
    kept = tuple(f for f in node.metadata.finalizers if f != labels.TERMINATION_FINALIZER)
    told = Count(
        "nodes_terminated_total",
        {"nodepool": node.metadata.labels.get(labels.NODEPOOL, ""), "zone": node.metadata.labels.get(labels.ZONE, "")},
    )
    return nodes.with_metadata(node, finalizers=kept), Step((told,))
