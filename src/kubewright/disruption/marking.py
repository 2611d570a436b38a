"""How a disruption shows on the objects before anything is deleted: a taint on the Node, a reason on the NodeClaim.

Source: spec/disruption 3.11.
"""

from datetime import datetime

from kubewright.api import labels
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.disruption.reasons import Reason
from kubewright.lifecycle import claims, nodes


def tainted(node: Node) -> Node:
    """The Node with `karpenter.sh/disrupted:NoSchedule`, so that nothing new comes."""
    if nodes.has_taint(node, labels.DISRUPTED_TAINT):
        return node
    return nodes.with_taints(node, (*node.spec.taints, labels.DISRUPTED_TAINT))


def untainted(node: Node) -> Node:
    return nodes.with_taints(node, (t for t in node.spec.taints if not nodes.same_taint(t, labels.DISRUPTED_TAINT)))


def with_reason(claim: NodeClaim, reason: Reason, now: datetime) -> NodeClaim:
    return claims.with_condition(claim, claims.DISRUPTION_REASON, "True", reason.value, reason.value, now=now)
