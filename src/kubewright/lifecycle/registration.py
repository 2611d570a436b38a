"""Registration: the machine's Node has appeared; it takes over what the NodeClaim says, and pods may come.

Source: spec/scheduling 11.3.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node, Taint
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import OwnerReference
from kubewright.lifecycle import claims, nodes
from kubewright.lifecycle.effects import NOTHING, Count, Effect, EventKind, Publish, Step, Update


def register(claim: NodeClaim, found: Sequence[Node], now: datetime) -> tuple[NodeClaim, Step]:
    """The claim with its Registered condition brought up to date, and what to do to the Node first.

    `found`: the Nodes of the claim's instance.
    """
    if claims.status_of(claim, claims.REGISTERED) != "Unknown" or not claims.is_set(claim, claims.LAUNCHED):
        return claim, NOTHING
    if not found:
        return _waiting(claim, now, "Unknown", "NodeNotFound", "Node not registered with cluster"), NOTHING
    if len(found) > 1:
        return _waiting(claim, now, "False", "MultipleNodesFound", "Invariant violated, matched multiple nodes"), NOTHING
    node = found[0]
    effects: list[Effect] = []
    if not nodes.is_registered(node) and not nodes.has_taint(node, labels.UNREGISTERED_TAINT):
        effects.append(
            Publish(
                claim,
                EventKind.WARNING,
                "UnregisteredTaintMissing",
                f"Missing {labels.UNREGISTERED_TAINT.key} taint which prevents registration related race conditions on"
                f" Karpenter-managed nodes",
                (claim.metadata.uid,),
            )
        )
    # A Node is young: its kubelet and the node controllers write to it all the time, and none of it matters here.
    effects.append(Update(node, registered_node(node, claim), locked=False))
    effects.append(
        Count(
            "nodes_created_total",
            {"nodepool": claims.pool_of(claim), "zone": claim.metadata.labels.get(labels.ZONE, "")},
        )
    )
    known = claims.with_condition(claims.with_status(claim, node_name=node.name), claims.REGISTERED, "True", now=now)
    return known, Step(tuple(effects))


def registered_node(node: Node, claim: NodeClaim) -> Node:
    """The Node as it must be once registered: ours to end, owned by its claim, with its labels, annotations and taints."""
    metadata = msgspec.structs.replace(
        node.metadata,
        labels={**node.metadata.labels, **claim.metadata.labels, labels.REGISTERED: "true"},
        annotations={**node.metadata.annotations, **claim.metadata.annotations},
        finalizers=_with(node.metadata.finalizers, labels.TERMINATION_FINALIZER),
        owner_references=_owned(node, claim),
    )
    kept = [t for t in node.spec.taints if not nodes.same_taint(t, labels.UNREGISTERED_TAINT)]
    if node.metadata.labels.get(labels.DO_NOT_SYNC_TAINTS) != "true":
        kept = merged(kept, (*claim.spec.taints, *claim.spec.startup_taints))
    return nodes.with_taints(msgspec.structs.replace(node, metadata=metadata), kept)


def merged(taints: Sequence[Taint], more: Sequence[Taint]) -> list[Taint]:
    """`taints`, and those of `more` whose key and effect are not there yet."""
    found = list(taints)
    for taint in more:
        if not any(nodes.same_taint(t, taint) for t in found):
            found.append(taint)
    return found


def _owned(node: Node, claim: NodeClaim) -> tuple[OwnerReference, ...]:
    owner = OwnerReference(
        api_version=NodeClaim.RESOURCE.api_version,
        kind=NodeClaim.RESOURCE.kind,
        name=claim.name,
        uid=claim.metadata.uid,
        block_owner_deletion=True,
    )
    others = tuple(o for o in node.metadata.owner_references if o.uid != owner.uid)
    return node.metadata.owner_references if owner in node.metadata.owner_references else (*others, owner)


def _with(finalizers: tuple[str, ...], ours: str) -> tuple[str, ...]:
    return finalizers if ours in finalizers else (*finalizers, ours)


def _waiting(claim: NodeClaim, now: datetime, status: str, reason: str, message: str) -> NodeClaim:
    return claims.with_condition(claim, claims.REGISTERED, status, reason, message, now=now)
