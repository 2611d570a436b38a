"""The CRD of NodeClaim, with what AWS restricts. Source: spec/scheduling 10.4."""

from kubewright.api.crds import parts
from kubewright.api.crds.parts import column, moment, quantity_map, record, string, with_rules
from kubewright.api.rules import core

NODE_CLAIM = parts.crd(
    "karpenter.sh",
    "NodeClaim",
    "nodeclaims",
    description="One machine that is asked for, and the node it became.",
    columns=[
        column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
        column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
        column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
        column("Node", ".status.nodeName"),
        parts.READY,
        parts.AGE,
        column("ImageID", ".status.imageID", wide=True),
        column("ID", ".status.providerID", wide=True),
        column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", wide=True),
        column("NodeClass", ".spec.nodeClassRef.name", wide=True),
        column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', wide=True),
    ],
    spec=with_rules(
        record(
            "What machine is wanted; never changes.",
            {
                "expireAfter": parts.expire_after(),
                "nodeClassRef": parts.node_class_ref(),
                "requirements": parts.requirements(parts.NODE_CLAIM_KEYS, core.REQUIREMENTS),
                "resources": record(
                    "What the machine must have room for.", {"requests": quantity_map("Least of each resource.")}
                ),
                "startupTaints": parts.taints("Taints that somebody else takes off once the node is prepared."),
                "taints": parts.taints("Taints that stay on the node."),
                "terminationGracePeriod": parts.termination_grace_period(),
            },
            ("nodeClassRef", "requirements"),
        ),
        [core.SPEC_IS_IMMUTABLE],
    ),
    status=record(
        "What was observed of the machine.",
        {
            "allocatable": quantity_map("What pods may use."),
            "capacity": quantity_map("What the machine has."),
            "conditions": parts.conditions(strict=False),
            "imageID": string("Image that the machine runs."),
            "lastPodEventTime": moment("When a pod last came to the node or left it."),
            "nodeName": string("Name of the node it became."),
            "providerID": string("The cloud's name for the machine."),
        },
    ),
)
