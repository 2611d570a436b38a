"""Tags: how we know which machines are ours, and for which NodeClaim each was bought. Source: spec/aws 7.3, 13."""

from collections.abc import Mapping

from kubewright.api import aws_labels, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws.api import Tag

CLUSTER = "eks:eks-cluster-name"
NODE_CLASS = aws_labels.EC2_NODE_CLASS
NODE_POOL = labels.NODEPOOL
NODE_CLAIM = "karpenter.sh/nodeclaim"
NAME = "Name"
UID = "kubewright.sh/nodeclaim-uid"
"""Ours: finds a machine again that was bought before its NodeClaim could be written."""

_FORBIDDEN = frozenset({CLUSTER, NODE_POOL, NODE_CLAIM, NODE_CLASS})


def owned(cluster: str) -> str:
    return f"kubernetes.io/cluster/{cluster}"


def of_class(cluster: str, node_class: str, written: Mapping[str, str]) -> dict[str, str]:
    """For what belongs to a NodeClass: launch templates, instance profiles."""
    return {**written, owned(cluster): "owned", CLUSTER: cluster, NODE_CLASS: node_class}


def of_claim(cluster: str, claim: NodeClaim, written: Mapping[str, str]) -> dict[str, str]:
    """For a machine, its volumes and its fleet. IAM policies demand the first four on every create call."""
    return {
        **of_class(cluster, claim.spec.node_class_ref.name, written),
        NODE_POOL: claim.metadata.labels.get(labels.NODEPOOL, ""),
        NODE_CLAIM: claim.name,
        UID: claim.metadata.uid,
    }


def forbidden(written: Mapping[str, str]) -> list[str]:
    """Keys that a NodeClass may not set, sorted."""
    return sorted(k for k in written if k in _FORBIDDEN or k.startswith("kubernetes.io/cluster"))


def as_tags(found: Mapping[str, str]) -> tuple[Tag, ...]:
    return tuple(Tag(key=key, value=value) for key, value in sorted(found.items()))
