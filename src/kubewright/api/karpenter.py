"""Karpenter's own kinds: NodePool and NodeClaim (`karpenter.sh/v1`), NodeOverlay (`karpenter.sh/v1alpha1`).

Source: spec/scheduling 9.1, 10. Durations and quantities keep the text that was written, so that a round trip changes nothing;
`api.duration` and `api.quantity` read them.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import field

from kubewright.api.core import Taint
from kubewright.api.meta import Condition, Object, Quantities, Resource, Wire


class NodeClassReference(Wire, frozen=True, kw_only=True):
    group: str = ""
    kind: str = ""
    name: str = ""


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True):
    """A requirement as NodePools and NodeClaims write it; `min_values` is the number of distinct values to keep open."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class TemplateMetadata(Wire, frozen=True, kw_only=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeClaimTemplateSpec(Wire, frozen=True, kw_only=True):
    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    taints: tuple[Taint, ...] | None = None
    startup_taints: tuple[Taint, ...] | None = None
    expire_after: str | None = None
    termination_grace_period: str | None = None


class NodeClaimTemplate(Wire, frozen=True, kw_only=True):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: NodeClaimTemplateSpec = NodeClaimTemplateSpec()


class Budget(Wire, frozen=True, kw_only=True):
    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: tuple[str, ...] | None = None


class Disruption(Wire, frozen=True, kw_only=True):
    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = (Budget(),)


class NodePoolSpec(Wire, frozen=True, kw_only=True):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: Quantities | None = None
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    resources: Quantities = field(default_factory=dict)
    nodes: int = 0
    node_class_observed_generation: int = 0


class NodePool(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("karpenter.sh", "v1", "NodePool", "nodepools")
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()


class ResourceRequests(Wire, frozen=True, kw_only=True):
    requests: Quantities = field(default_factory=dict)


class NodeClaimSpec(Wire, frozen=True, kw_only=True):
    node_class_ref: NodeClassReference = NodeClassReference()
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    resources: ResourceRequests = ResourceRequests()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str | None = None
    termination_grace_period: str | None = None


class NodeClaimStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    node_name: str = ""
    provider_id: str = field(default="", name="providerID")
    image_id: str = field(default="", name="imageID")
    capacity: Quantities = field(default_factory=dict)
    allocatable: Quantities = field(default_factory=dict)
    last_pod_event_time: datetime | None = None


class NodeClaim(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("karpenter.sh", "v1", "NodeClaim", "nodeclaims")
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


class NodeOverlaySpec(Wire, frozen=True, kw_only=True):
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    price: str | None = None
    """USD per hour."""
    price_adjustment: str | None = None
    """A signed amount in USD per hour, or a signed percentage."""
    capacity: Quantities | None = None
    weight: int | None = None


class NodeOverlayStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class NodeOverlay(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays")
    spec: NodeOverlaySpec = NodeOverlaySpec()
    status: NodeOverlayStatus = NodeOverlayStatus()
