"""Questions about a StateNode: the one truth about a machine that has a NodeClaim, a Node, or both.

Until it is registered the NodeClaim speaks, from then on the Node. Source: spec/scheduling 4.1 to 4.3.
"""

from kubewright.api import quantity
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import Labels
from kubewright.lifecycle import claims, nodes
from kubewright.solver.problem import StateNode


def is_registered(known: StateNode) -> bool:
    """Unmanaged nodes count as registered."""
    return known.claim is None or (known.node is not None and nodes.is_registered(known.node))


def is_initialized(known: StateNode) -> bool:
    """Unmanaged nodes count as initialized."""
    return known.claim is None or (known.node is not None and nodes.is_initialized(known.node))


def name(known: StateNode) -> str:
    if known.claim is not None and not is_registered(known):
        return known.claim.name
    assert known.node is not None
    return known.node.name


def provider_id(known: StateNode) -> str:
    if known.node is not None and known.node.spec.provider_id:
        return known.node.spec.provider_id
    return "" if known.claim is None else known.claim.status.provider_id


def labels_of(known: StateNode) -> Labels:
    if known.claim is not None and not is_registered(known):
        return known.claim.metadata.labels
    assert known.node is not None
    return known.node.metadata.labels


def is_going(known: StateNode) -> bool:
    """Whether the objects themselves say that the machine will go; an explicit mark is the mirror's to add."""
    if known.claim is not None:
        return is_claim_going(known.claim)
    return known.node is not None and known.node.metadata.deletion_timestamp is not None


def is_claim_going(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is not None or claims.is_set(claim, claims.INSTANCE_TERMINATING)


def capacity(known: StateNode) -> dict[str, int]:
    """What the machine has, in billionths, with `nodes: 1`.

    Before initialization the kubelet may report zeros for devices it has not found yet: the NodeClaim fills them.
    """
    found: dict[str, int] = {}
    if known.claim is not None and not is_initialized(known):
        found.update(quantity.parse_map(known.claim.status.capacity))
    if known.node is not None:
        for key, amount in quantity.parse_map(known.node.status.capacity).items():
            if amount or key not in found:
                found[key] = amount
    return {**found, "nodes": int(quantity.ONE)}
