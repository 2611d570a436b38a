"""Node repair: a machine that has been unwell for longer than its provider's policy bears is replaced, unless too many are.

Source: spec/disruption 6.2.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import Condition
from kubewright.lifecycle import claims, launch, nodes
from kubewright.lifecycle.disrupted import disrupted
from kubewright.lifecycle.effects import Count, EventKind, Publish, Step, Update

THRESHOLD_PERCENT = 20
"""Of the nodes, rounded up, may be unwell for one of them to be repaired."""
BLOCKED_POLL = timedelta(minutes=5)
TOLD_EVERY = timedelta(minutes=15)


class Policy(msgspec.Struct, frozen=True):
    """What a provider takes for an illness: the facts of `cloud.provider.RepairPolicy`, which is out of this floor's reach."""

    condition_type: str
    condition_status: str
    toleration: timedelta


class Diagnosis(msgspec.Struct, frozen=True):
    condition: Condition
    due: datetime
    """When it has lasted long enough."""


def diagnose(node: Node, policies: Sequence[Policy]) -> Diagnosis | None:
    """What the node suffers from, the soonest due first; None if it is well."""
    found = [
        Diagnosis(condition, condition.last_transition_time + policy.toleration)
        for policy in policies
        for condition in node.status.conditions
        if (condition.type, condition.status) == (policy.condition_type, policy.condition_status)
        and condition.last_transition_time is not None
    ]
    return min(found, key=lambda d: (d.due, d.condition.type), default=None)


def allowed(total: int) -> int:
    """How many of `total` nodes may be unwell."""
    return -(-THRESHOLD_PERCENT * total // 100)


def repair(
    node: Node,
    claim: NodeClaim,
    among: Iterable[Node],
    policies: Sequence[Policy],
    now: datetime,
    *,
    pods_that_move: int = 0,
) -> Step:
    """End the node's machine if it has been unwell for too long; ask again when that will be so.

    `among`: the nodes of its NodePool, or all nodes if it has none. If too many of them are unwell now, however briefly, the
    fault is likelier with who looks at them, and nothing is done. Budgets and pins are not asked: its pods have lost their home.
    """
    illness = diagnose(node, policies)
    if illness is None or claim.metadata.deletion_timestamp is not None:
        return Step()
    if now < illness.due:
        return Step(again=illness.due - now)
    others = tuple(among)
    unwell = sum(1 for n in others if diagnose(n, policies) is not None)
    if unwell > allowed(len(others)):
        where = "nodepool" if labels.NODEPOOL in node.metadata.labels else "cluster"
        text = (
            f"more than {THRESHOLD_PERCENT}% nodes are unhealthy in the {where}:"
            f" {unwell} of {len(others)} unhealthy, {allowed(len(others))} allowed"
        )
        told = (
            Publish(about, EventKind.WARNING, "NodeRepairBlocked", text, (about.metadata.uid,), TOLD_EVERY)
            for about in (node, claim)
        )
        return Step(tuple(told), BLOCKED_POLL)
    hurried = without_delay(claim, now)
    count = {
        "condition": _snake(illness.condition.type),
        "nodepool": claims.pool_of(claim),
        "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
        "image_id": claim.status.image_id,
    }
    return Step(
        (
            *((Update(claim, hurried),) if hurried is not claim else ()),
            *launch.gone(claim, "unhealthy"),
            disrupted(claim, "unhealthy", pods=pods_that_move),
            Count("nodeclaims_unhealthy_disrupted_total", count),
        )
    )


def without_delay(claim: NodeClaim, now: datetime) -> NodeClaim:
    """The claim with its termination time now, whatever its grace period; one that is past already stays."""
    try:
        known = claims.termination_time(claim)
    except ValueError:
        known = None  # what cannot be read is replaced
    if known is not None and known <= now:
        return claim
    annotations = {**claim.metadata.annotations, labels.TERMINATION_TIMESTAMP: claims.rfc3339(now)}
    return nodes.with_metadata(claim, annotations=annotations)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
