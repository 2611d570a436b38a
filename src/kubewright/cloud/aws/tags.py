"""Tags: how we know which machines are ours, and for which NodeClaim each was bought. Source: spec/aws 7.3, 13."""

import hashlib
from collections.abc import Mapping, Sequence

from kubewright.api import aws_labels, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws.api import Tag

CLUSTER = "eks:eks-cluster-name"
NODE_CLASS = aws_labels.EC2_NODE_CLASS
NODE_POOL = labels.NODEPOOL
NODE_CLAIM = "karpenter.sh/nodeclaim"
NAME = "Name"
LAUNCH = "kubewright.sh/launch-"
"""Ours, with a number behind it: for which NodeClaims the fleet was asked, so that a machine bought before its NodeClaim could be
written is found again."""
FIRST_LAUNCH = f"{LAUNCH}0"
CLUSTER_UID = "kubewright.sh/cluster-uid"
"""Ours: two clusters may have one name, and neither may end the other's machines."""
MOST = 50
"""Tags that a resource can have. Source: EC2."""
_PER_TAG = 19
"""Names in one value of at most 256 characters."""

_FORBIDDEN = frozenset({CLUSTER, NODE_POOL, NODE_CLAIM, NODE_CLASS})


def owned(cluster: str) -> str:
    return f"kubernetes.io/cluster/{cluster}"


def of_class(cluster: str, node_class: str, written: Mapping[str, str]) -> dict[str, str]:
    """For what belongs to a NodeClass: launch templates, instance profiles."""
    return {**written, owned(cluster): "owned", CLUSTER: cluster, NODE_CLASS: node_class}


def of_pool(cluster: str, claim: NodeClaim, written: Mapping[str, str], cluster_uid: str = "") -> dict[str, str]:
    """For a machine, its volumes and its fleet: the same for all NodeClaims of a pool, so that one fleet can serve many.

    IAM policies demand the first four on every create call.
    """
    found = {
        **of_class(cluster, claim.spec.node_class_ref.name, written),
        NODE_POOL: claim.metadata.labels.get(labels.NODEPOOL, ""),
    }
    return {**found, CLUSTER_UID: cluster_uid} if cluster_uid else found


def short(uid: str) -> str:
    """A NodeClaim's name in launch tags."""
    return hashlib.sha256(uid.encode()).hexdigest()[:12]


def of_launch(uids: Sequence[str]) -> dict[str, str]:
    """Which NodeClaims a fleet is for."""
    names = [short(uid) for uid in uids]
    return {f"{LAUNCH}{at // _PER_TAG}": ".".join(names[at : at + _PER_TAG]) for at in range(0, len(names), _PER_TAG)}


def room_for_launches(others: int) -> int:
    """How many NodeClaims can be named beside so many other tags."""
    return max(0, MOST - others) * _PER_TAG


def launched_for(found: Mapping[str, str]) -> frozenset[str]:
    """The short names of the NodeClaims that a machine's fleet was for."""
    return frozenset(name for key, value in found.items() if key.startswith(LAUNCH) for name in value.split("."))


def forbidden(written: Mapping[str, str]) -> list[str]:
    """Keys that a NodeClass may not set, sorted."""
    return sorted(k for k in written if k in _FORBIDDEN or k.startswith("kubernetes.io/cluster"))


def as_tags(found: Mapping[str, str]) -> tuple[Tag, ...]:
    return tuple(Tag(key=key, value=value) for key, value in sorted(found.items()))
