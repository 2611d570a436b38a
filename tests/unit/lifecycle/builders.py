"""Objects with full defaults, for rules that look at one or two things only."""

from datetime import UTC, datetime, timedelta

import msgspec

from kubewright.api import labels
from kubewright.api.core import Node, NodeSpec, NodeStatus, Pod, PodDisruptionBudget, PodSpec, PodStatus, Taint
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassReference, NodePool, ResourceRequests
from kubewright.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from kubewright.lifecycle import claims
from kubewright.solver.problem import StateNode

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PROVIDER_ID = "aws:///eu-west-1a/i-0001"
CLASS = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
DAEMON = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="ds", uid="ds-uid")
STATEFUL = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="sts", uid="sts-uid")
MIRROR = OwnerReference(api_version="v1", kind="Node", name="n", uid="n-uid")
REPLICA = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs-uid")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def claim(name="c-1", *, stage="", pool="general", **spec) -> NodeClaim:
    """`stage`: "", "Launched", "Registered" or "Initialized", reached at T0."""
    made = NodeClaim(
        metadata=ObjectMeta(
            name=name,
            uid=f"{name}-uid",
            resource_version="1",
            generation=1,
            creation_timestamp=T0,
            labels={labels.NODEPOOL: pool},
            finalizers=(labels.TERMINATION_FINALIZER,),
            owner_references=(OwnerReference(api_version="karpenter.sh/v1", kind="NodePool", name=pool, uid=f"{pool}-uid"),),
        ),
        spec=NodeClaimSpec(node_class_ref=CLASS, resources=ResourceRequests(requests={"cpu": "1"}), **spec),
        status=NodeClaimStatus(),
    )
    order = ("Launched", "Registered", "Initialized")
    if stage:
        made = claims.with_status(made, provider_id=PROVIDER_ID, capacity={"cpu": "4"}, allocatable={"cpu": "4"})
        for kind in order[: order.index(stage) + 1]:
            made = claims.with_condition(made, kind, "True", now=T0)
    return made


def deleted(obj, when=T0):
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, deletion_timestamp=when))


def labelled(obj, **changes):
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))


def node(name="n-1", *, ready=True, registered=False, initialized=False, taints=(), provider_id=PROVIDER_ID, **metadata) -> Node:
    own = {labels.NODEPOOL: "general", labels.INSTANCE_TYPE: "m5.large", "karpenter.k8s.aws/ec2nodeclass": "default"}
    if registered:
        own[labels.REGISTERED] = "true"
    if initialized:
        own[labels.INITIALIZED] = "true"
    return Node(
        metadata=ObjectMeta(name=name, uid=f"{name}-uid", resource_version="7", **{"labels": own, **metadata}),
        spec=NodeSpec(provider_id=provider_id, taints=tuple(taints)),
        status=NodeStatus(
            capacity={"cpu": "4", "memory": "16Gi"},
            allocatable={"cpu": "4", "memory": "15Gi"},
            conditions=(Condition(type="Ready", status="True" if ready else "False"),),
        ),
    )


def pod(
    name="p-1", *, namespace="default", on="n-1", owner=REPLICA, phase="Running", labels=None, annotations=None, **spec
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"{name}-uid",
            resource_version="3",
            labels=labels or {"app": "web"},
            annotations=annotations or {},
            owner_references=(owner,) if owner else (),
        ),
        spec=PodSpec(node_name=on, **spec),
        status=PodStatus(phase=phase, start_time=T0),
    )


def pdb(name="pdb", *, allowed=0, labels=None, namespace="default", generation=1, **spec) -> PodDisruptionBudget:
    made = PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace=namespace, generation=generation))
    return msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(made.spec, selector=LabelSelector(match_labels=labels or {"app": "web"}), **spec),
        status=msgspec.structs.replace(made.status, disruptions_allowed=allowed, observed_generation=1),
    )


def pool(name="general", *, generation=1, **disruption) -> NodePool:
    made = NodePool(metadata=ObjectMeta(name=name, uid=f"{name}-uid", generation=generation, resource_version="1"))
    return msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(made.spec, disruption=msgspec.structs.replace(made.spec.disruption, **disruption)),
    )


def known(name="n-1", *, pods=(), marked=False, ready=True, stage="Initialized", pool="general", quiet=True) -> StateNode:
    """An initialized machine of ours, quiet long enough to be consolidatable if `quiet`."""
    identity = f"aws:///eu-west-1a/{name}"
    one = claims.with_status(claim(f"c-{name}", stage=stage, pool=pool), provider_id=identity)
    if quiet:
        one = claims.with_condition(one, claims.CONSOLIDATABLE, "True", now=T0)
    own = node(name, ready=ready, registered=True, initialized=stage == "Initialized", provider_id=identity)
    own = labelled(own, labels={**own.metadata.labels, labels.NODEPOOL: pool})
    return StateNode(own, one, tuple(pods), marked)


TAINT = Taint(key="dedicated", value="gpu", effect="NoSchedule")
