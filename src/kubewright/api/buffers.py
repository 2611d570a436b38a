"""CapacityBuffer (`autoscaling.x-k8s.io/v1beta1`). Source: spec/scheduling 9.2."""

from typing import ClassVar

from kubewright.api.meta import Condition, Object, Quantities, Resource, Wire


class TemplateReference(Wire, frozen=True, kw_only=True):
    name: str = ""


class ScalableReference(Wire, frozen=True, kw_only=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(Wire, frozen=True, kw_only=True):
    pod_template_ref: TemplateReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: Quantities | None = None
    provisioning_strategy: str = "buffer.x-k8s.io/active-capacity"


class CapacityBufferStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    pod_template_ref: TemplateReference | None = None
    pod_template_generation: int | None = None
    replicas: int | None = None
    provisioning_strategy: str | None = None


class CapacityBuffer(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers", True)
    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
