"""Names and small pieces of JSON that problems are made of."""

from typing import Any

J = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CT = "karpenter.sh/capacity-type"
TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
POOL = "karpenter.sh/nodepool"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
RESERVATION = "karpenter.test.sh/reservation-id"
CPUS_LABEL = "karpenter.k8s.aws/instance-cpu"
CATEGORY = "karpenter.k8s.aws/instance-category"
GENERATION = "karpenter.k8s.aws/instance-generation"
FAMILY = "karpenter.k8s.aws/instance-family"
WELL_KNOWN = (CATEGORY, CPUS_LABEL, FAMILY, GENERATION)
"""The provider's labels, the same in every problem: the reference never forgets one."""
TIER = "example.com/tier"
SHARE = "example.com/share"
"""A custom label that pools have several values of, to be spread over like zones."""
GPU = "example.com/gpu"
HUGE = "hugepages-2Mi"
DRIVER = "ebs.csi.aws.com"
STARTING = "example.com/starting"

ZONES = ("zone-a", "zone-b", "zone-c")
APPS = ("red", "green", "blue")
NAMESPACES = ("default", "other")
CPUS = ("100m", "250m", "500m", "1", "1500m", "3")
MEMORIES = ("100Mi", "256Mi", "1Gi", "2Gi", "4Gi")

MUST, MAY = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
NODE_CLASS = {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def expression(key: str, operator: str, *values: str) -> J:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def one_of(key: str, *values: str) -> J:
    return expression(key, "In", *values)


def terms(*wanted: J) -> J:
    """A node selector of one term per expression."""
    return {"nodeSelectorTerms": [{"matchExpressions": [w]} for w in wanted]}


def owner(api: str, kind: str, name: str) -> J:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{kind.lower()}-{name}", "controller": True}


def key_of(one: J) -> str:
    return f"{one['metadata'].get('namespace', 'default')}/{one['metadata']['name']}"
