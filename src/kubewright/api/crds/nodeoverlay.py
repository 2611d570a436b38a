"""The CRD of NodeOverlay (alpha). Source: spec/scheduling 9.1."""

from kubewright.api.crds import parts
from kubewright.api.crds.parts import column, integer, quantity_map, record, string, with_rules
from kubewright.api.rules import core

NODE_OVERLAY = parts.crd(
    "karpenter.sh",
    "NodeOverlay",
    "nodeoverlays",
    version="v1alpha1",
    short_names=("overlays",),
    description="A correction of what instance types cost or have.",
    columns=[parts.READY, parts.AGE, column("Weight", ".spec.weight", "integer", wide=True)],
    spec=with_rules(
        record(
            "Which instance types are corrected, and how.",
            {
                "capacity": with_rules(
                    quantity_map("Extended resources that the machines have besides."), [core.EXTENDED_RESOURCES_ONLY]
                ),
                "price": string("Price per hour instead of the cloud's.", pattern=r"^\d+(\.\d+)?$"),
                "priceAdjustment": string(
                    "Amount or percentage that the price changes by.",
                    pattern=r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$",
                ),
                "requirements": parts.requirements(parts.OVERLAY_KEYS, core.OVERLAY_REQUIREMENTS, min_values=False),
                "weight": integer("Overlays of greater weight win.", "int32", low=1, high=10000),
            },
            ("requirements",),
        ),
        [core.ONE_PRICE],
    ),
    status=record("What was observed of the overlay.", {"conditions": parts.conditions()}),
)
