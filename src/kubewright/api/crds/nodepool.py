"""The CRD of NodePool, with what AWS restricts. Source: spec/scheduling 10.1."""

from kubewright.api.crds import parts
from kubewright.api.crds.parts import atomic, choice, integer, record, string, string_map, with_rules
from kubewright.api.rules import aws, core

_BUDGET = record(
    "How many nodes may be disrupted at once, and when.",
    {
        "duration": string(
            "How long the budget is in force after each time of the schedule.",
            pattern="^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
        ),
        "nodes": string(
            "Most nodes at once, as a number or a percentage.", default="10%", pattern="^((100|[0-9]{1,2})%|[0-9]+)$"
        ),
        "reasons": {
            "type": "array",
            "description": "Kinds of disruption that the budget limits; all when left out.",
            "items": {"type": "string", "enum": ["Underutilized", "Empty", "Drifted"]},
            "maxItems": 50,
            "x-kubernetes-list-type": "set",
        },
        "schedule": string(
            "When the budget comes into force: five cron fields in UTC, or a word such as @daily.",
            pattern=r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
        ),
    },
    ("nodes",),
)

_DISRUPTION = record(
    "When nodes of the pool may be removed or replaced.",
    {
        "budgets": with_rules(
            atomic("Limits on disruption at any time; the tightest one in force counts.", _BUDGET, maxItems=50)
            | {"default": [{"nodes": "10%"}]},
            [core.SCHEDULE_WITH_DURATION],
        ),
        "consolidateAfter": string(
            "How long a node must see no pod come or go before it may be consolidated, or Never.",
            pattern=parts.DURATION_OR_NEVER,
        ),
        "consolidationPolicy": choice(
            "Which nodes may be consolidated.",
            ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
            default="WhenEmptyOrUnderutilized",
        ),
    },
    ("consolidateAfter",),
    default={"consolidateAfter": "0s"},
)

_TEMPLATE = record(
    "What the pool's NodeClaims look like.",
    {
        "metadata": record(
            "What is copied to the nodes.",
            {
                "annotations": string_map("Annotations for the nodes.") | {"x-kubernetes-map-type": "granular"},
                "labels": with_rules(
                    string_map(
                        "Labels for the nodes.",
                        {"type": "string", "maxLength": 63, "pattern": parts.LABEL_VALUE},
                        maxProperties=100,
                    )
                    | {"x-kubernetes-map-type": "atomic"},
                    core.label_map(aws.LABEL_MAP),
                ),
            },
        ),
        "spec": record(
            "What machines the pool may buy, and how their nodes behave.",
            {
                "expireAfter": parts.expire_after(),
                "nodeClassRef": parts.node_class_ref(core.GROUP_IS_IMMUTABLE, core.KIND_IS_IMMUTABLE),
                "requirements": parts.requirements(parts.NODE_POOL_KEYS, core.REQUIREMENTS),
                "startupTaints": parts.taints(
                    "Taints that somebody else takes off once the node is prepared; pods need not tolerate them."
                ),
                "taints": parts.taints("Taints that stay on the nodes."),
                "terminationGracePeriod": parts.termination_grace_period(),
            },
            ("nodeClassRef", "requirements"),
        ),
    },
    ("spec",),
)

NODE_POOL = parts.crd(
    "karpenter.sh",
    "NodePool",
    "nodepools",
    description="A pool of nodes that are bought alike, and the limits on it.",
    columns=[
        parts.column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        parts.column("Nodes", ".status.nodes"),
        parts.READY,
        parts.AGE,
        parts.column("Weight", ".spec.weight", "integer", wide=True),
        parts.column("CPU", ".status.resources.cpu", wide=True),
        parts.column("Memory", ".status.resources.memory", wide=True),
    ],
    spec=with_rules(
        record(
            "What is wanted of the pool.",
            {
                "disruption": _DISRUPTION,
                "limits": parts.quantity_map("Most of each resource that the pool's nodes may have together."),
                "replicas": integer("Keep exactly this many nodes, whatever pods ask for (alpha).", "int64", low=0),
                "template": _TEMPLATE,
                "weight": integer("Pools of greater weight are tried first.", "int32", low=1, high=100),
            },
            ("template",),
        ),
        core.NODE_POOL_SPEC,
    ),
    status=record(
        "What was observed of the pool.",
        {
            "conditions": parts.conditions(),
            "nodeClassObservedGeneration": integer(
                "Generation of the NodeClass that registration health was judged by.", "int64"
            ),
            "nodes": integer("How many nodes the pool has.", "int64", default=0),
            "resources": parts.quantity_map("What the pool's nodes have together."),
        },
    ),
    scale={"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
)
