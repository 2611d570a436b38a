"""What a NodeOverlay's status says: whether it counts. Source: spec/scheduling 9.1."""

from datetime import datetime

from msgspec.structs import replace

from kubewright.api import conditions
from kubewright.api.karpenter import NodeOverlay
from kubewright.catalogue.overlays import Verdict

VALIDATION_SUCCEEDED = "ValidationSucceeded"


def judged(overlay: NodeOverlay, verdict: Verdict, now: datetime) -> NodeOverlay:
    """The overlay with what became of it."""
    status = "False" if verdict.reason else "True"
    found = conditions.set_condition(
        overlay.status.conditions,
        VALIDATION_SUCCEEDED,
        status,
        verdict.reason,
        verdict.message,
        kinds=conditions.NODE_OVERLAY,
        meta=overlay.metadata,
        now=now,
    )
    return replace(overlay, status=replace(overlay.status, conditions=found))
