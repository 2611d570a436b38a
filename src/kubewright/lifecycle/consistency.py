"""Consistency: whether a machine is as large as it was sold. Only told, never acted on.

Source: spec/disruption 6.7.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.api import quantity
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims

SCAN_EVERY = timedelta(minutes=10)
LEAST_PERCENT = 90
"""Of what the NodeClaim promised, that the Node must have."""


def shortfalls(claim: NodeClaim, node: Node) -> tuple[str, ...]:
    """Every resource asked for of which the Node has clearly less than its NodeClaim promised, in words."""
    found = []
    for name, text in sorted(claim.spec.resources.requests.items()):
        promised = quantity.parse(claim.status.capacity.get(name, 0))
        if quantity.parse(text) == 0 or promised <= 0:
            continue
        there = quantity.parse(node.status.capacity.get(name, 0))
        if there * 100 < promised * LEAST_PERCENT:
            share = 100 * there / promised
            found.append(
                f"expected {claim.status.capacity[name]} of resource {name}, but found"
                f" {node.status.capacity.get(name, '0')} ({share:.1f}% of expected)"
            )
    return tuple(found)


def checked(claim: NodeClaim, found: Sequence[Node], now: datetime) -> tuple[NodeClaim, tuple[str, ...]]:
    """The claim with its ConsistentStateFound condition brought up to date, and what is wrong with its Node."""
    if claim.metadata.deletion_timestamp is not None or len(found) != 1 or not claims.is_set(claim, claims.INITIALIZED):
        return claim, ()
    problems = shortfalls(claim, found[0])
    if problems:
        text = "; ".join(problems)
        return claims.with_condition(claim, claims.CONSISTENT, "False", "ConsistencyCheckFailed", text, now=now), problems
    return claims.with_condition(claim, claims.CONSISTENT, "True", now=now), ()
