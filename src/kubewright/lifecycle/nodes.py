"""Small questions about Nodes and NodeClaims that several rules ask.

Source: spec/scheduling 4.1, 4.3, 10.6.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node, Taint
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import Object, is_true

T = TypeVar("T", bound=Object)


def is_ready(node: Node) -> bool:
    return is_true(node.status.conditions, "Ready")


def is_registered(node: Node) -> bool:
    return node.metadata.labels.get(labels.REGISTERED) == "true"


def is_initialized(node: Node) -> bool:
    return node.metadata.labels.get(labels.INITIALIZED) == "true"


def has_taint(node: Node, taint: Taint) -> bool:
    """Whether a taint of that key and effect is there, whatever its value."""
    return any(same_taint(taint, t) for t in node.spec.taints)


def same_taint(a: Taint, b: Taint) -> bool:
    """Kubernetes tells taints apart by key and effect."""
    return (a.key, a.effect) == (b.key, b.effect)


def of_claim(claim: NodeClaim, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The Nodes of the claim's instance, by name; none before it is launched."""
    if not claim.status.provider_id:
        return ()
    found = (n for n in nodes if n.spec.provider_id == claim.status.provider_id)
    return tuple(sorted(found, key=lambda n: n.name))


def with_metadata(obj: T, **changes: object) -> T:
    """The same object with some of its metadata replaced."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))


def with_taints(node: Node, taints: Iterable[Taint]) -> Node:
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=tuple(taints)))
