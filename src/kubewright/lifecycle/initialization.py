"""Initialization: a registered Node is ready for what it was bought for.

Source: spec/scheduling 11.4. A node is never un-initialized.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kubewright.api import labels, quantity
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims, nodes
from kubewright.lifecycle.effects import NOTHING, Step, Update
from kubewright.scheduling import taints


def initialize(claim: NodeClaim, found: Sequence[Node], now: datetime) -> tuple[NodeClaim, Step]:
    """The claim with its Initialized condition brought up to date, and what to do to the Node first."""
    if claims.status_of(claim, claims.INITIALIZED) != "Unknown" or not claims.is_set(claim, claims.REGISTERED):
        return claim, NOTHING
    if len(found) != 1:
        return _waiting(claim, now, "NodeNotFound", "Node not registered with cluster"), NOTHING
    node = found[0]
    missing = what_is_missing(claim, node)
    if missing is not None:
        return _waiting(claim, now, *missing), NOTHING
    labelled = msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(node.metadata, labels={**node.metadata.labels, labels.INITIALIZED: "true"}),
    )
    known = claims.with_condition(claim, claims.INITIALIZED, "True", now=now)
    return known, Step((Update(node, labelled, locked=False),) if labelled != node else ())


def what_is_missing(claim: NodeClaim, node: Node) -> tuple[str, str] | None:
    """Reason and message of the first thing the Node still lacks; None when it is complete."""
    if not nodes.is_ready(node):
        return "NodeNotReady", "Node status is NotReady"
    for wanted in claim.spec.startup_taints:
        if nodes.has_taint(node, wanted):
            return "StartupTaintsExist", f'StartupTaint "{wanted}" still exists'
    for taint in node.spec.taints:
        if taints.is_ephemeral(taint):
            return "KnownEphemeralTaintsExist", f'KnownEphemeralTaint "{taint}" still exists'
    for name, text in sorted(claim.spec.resources.requests.items()):
        if quantity.parse(text) != 0 and quantity.parse(node.status.allocatable.get(name, 0)) == 0:
            return "ResourceNotRegistered", f'Resource "{name}" was requested but not registered'
    if drivers := claim.metadata.annotations.get(labels.REQUESTED_DRA_DRIVERS):
        # Claims with DRA drivers are never made by us (the solver refuses such pods), only inherited.
        first = drivers.split(",", maxsplit=1)[0]
        return "DRADriverPoolsNotPublished", f'DRA driver "{first}" has not published a complete resource pool'
    return None


def _waiting(claim: NodeClaim, now: datetime, reason: str, message: str) -> NodeClaim:
    return claims.with_condition(claim, claims.INITIALIZED, "Unknown", reason, message, now=now)
