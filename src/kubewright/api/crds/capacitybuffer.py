"""The CRD of CapacityBuffer (beta of SIG Autoscaling, alpha here). Source: spec/scheduling 9.2."""

from kubewright.api.crds import parts
from kubewright.api.crds.parts import column, integer, quantity_map, record, string, with_rules
from kubewright.api.rules import buffers

_TEMPLATE = {"name": string("Name of the PodTemplate.", minLength=1)}

CAPACITY_BUFFER = parts.crd(
    "autoscaling.x-k8s.io",
    "CapacityBuffer",
    "capacitybuffers",
    version="v1beta1",
    short_names=("cb",),
    category="autoscaling",
    namespaced=True,
    description="Room that is kept ready for pods to come.",
    columns=[
        column("Strategy", ".spec.provisioningStrategy"),
        column("PodTemplate", ".status.podTemplateRef.name"),
        column("Replicas", ".status.replicas", "integer"),
        column("ConditionsType", ".status.conditions[*].type"),
        column("ConditionsStatus", ".status.conditions[*].status"),
        column("ConditionsReason", ".status.conditions[*].reason"),
        parts.AGE,
    ],
    spec=with_rules(
        record(
            "How much room, in pods of which shape.",
            {
                "limits": quantity_map("Most that the pods of the buffer may ask for together."),
                "percentage": integer("Pods as a share of the workload's, rounded up.", "int32", low=0),
                "podTemplateRef": record("The PodTemplate that says what a pod asks for.", _TEMPLATE, ("name",)),
                "provisioningStrategy": string("How the room is kept.", default="buffer.x-k8s.io/active-capacity"),
                "replicas": integer("How many pods.", "int32", low=0),
                "scalableRef": record(
                    "The workload whose pods the buffer is made of.",
                    {
                        "apiGroup": string("API group of the workload."),
                        "kind": string("Kind of the workload.", minLength=1),
                        "name": string("Name of the workload.", minLength=1),
                    },
                    ("kind", "name"),
                ),
            },
        ),
        buffers.SPEC,
    ),
    status=record(
        "What was observed of the buffer.",
        {
            "conditions": parts.conditions(),
            "podTemplateGeneration": integer("Generation of the PodTemplate that was read.", "int64"),
            "podTemplateRef": record("The PodTemplate that was read.", _TEMPLATE, ("name",)),
            "provisioningStrategy": string("How the room is kept."),
            "replicas": integer("How many pods the buffer stands for.", "int32"),
        },
    ),
)
