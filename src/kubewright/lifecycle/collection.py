"""Garbage collection: NodeClaims whose machine, or whose Node, has vanished behind our back.

Machines without a NodeClaim are the provider's to collect. Source: spec/disruption 6.3. Beyond the reference: a machine whose
Node somebody removed, finalizer and all, is no use to anybody and is ended, too.
"""

from collections.abc import Collection, Mapping, Sequence

from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims, nodes


def orphans(
    found: Sequence[NodeClaim], alive: Collection[str], nodes_by_provider_id: Mapping[str, Sequence[Node]]
) -> tuple[NodeClaim, ...]:
    """Claims to delete, by name: registered, not going already, and their machine is not among the cloud's `alive` ones.

    A claim with a Node that still says Ready is kept: the cloud's list may be behind. Unregistered ones are liveness's.
    """
    return tuple(
        claim
        for claim in sorted(found, key=lambda c: c.name)
        if claims.is_set(claim, claims.REGISTERED)
        and claim.metadata.deletion_timestamp is None
        and claim.status.provider_id not in alive
        and not any(nodes.is_ready(n) for n in nodes_by_provider_id.get(claim.status.provider_id, ()))
    )


def nodeless(found: Sequence[NodeClaim], nodes_by_provider_id: Mapping[str, Sequence[Node]]) -> tuple[NodeClaim, ...]:
    """Claims that were registered once and have no Node now, by name; a watch may be behind, so one look is not enough."""
    return tuple(
        claim
        for claim in sorted(found, key=lambda c: c.name)
        if claims.is_set(claim, claims.REGISTERED)
        and claim.metadata.deletion_timestamp is None
        and not nodes_by_provider_id.get(claim.status.provider_id)
    )
