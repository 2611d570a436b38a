"""Objects that the contract tests make, whole enough for any server."""

from typing import Any, ClassVar

from msgspec import field

from kubewright.api.core import (
    ContainerPort,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodSpec,
    ResourceRequirements,
)
from kubewright.api.karpenter import (
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodeSelectorRequirement,
)
from kubewright.api.meta import LabelSelector, Object, ObjectMeta, Resource, Wire
from kubewright.kube.client import MergePatch
from tests.api.doors import Door


class ConfigMap(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps", True)
    data: dict[str, str] = field(default_factory=dict)


class WholeContainer(Wire, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()


class WholePodSpec(PodSpec, frozen=True, kw_only=True):
    containers: tuple[WholeContainer, ...] = ()  # type: ignore[assignment]
    restart_policy: str = ""


class WholePod(Pod, frozen=True, kw_only=True):
    """A pod that servers accept; the production structs keep only what deciding reads."""

    RESOURCE: ClassVar[Resource] = Pod.RESOURCE
    spec: WholePodSpec


def container(**fields: Any) -> WholeContainer:
    return WholeContainer(**{"name": "app", "image": "registry.invalid/app:1", **fields})


def spec(**fields: Any) -> WholePodSpec:
    """What a pod needs at least; no scheduler takes it."""
    return WholePodSpec(**{"containers": (container(),), "scheduler_name": "nobody", **fields})


class DeploymentSpec(Wire, frozen=True, kw_only=True):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


class Deployment(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments", True)
    spec: DeploymentSpec = DeploymentSpec()


def configmap(door: Door, name: str = "one", **meta: Any) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=door.namespace, **meta), data={"key": "value"})


def pod(
    door: Door, name: str = "one", *, labels: dict[str, str] | None = None, spec_: WholePodSpec | None = None, **meta: Any
) -> WholePod:
    return WholePod(metadata=ObjectMeta(name=name, namespace=door.namespace, labels=labels or {}, **meta), spec=spec_ or spec())


def budget(
    door: Door, name: str = "budget", *, min_available: int = 1, labels: dict[str, str], policy: str | None = None
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=door.namespace),
        spec=PodDisruptionBudgetSpec(
            selector=LabelSelector(match_labels=labels), min_available=min_available, unhealthy_pod_eviction_policy=policy
        ),
    )


def nodepool(door: Door, **spec: Any) -> NodePool:
    """A NodePool named after the test's namespace, since it lives beside those of other tests."""
    reference = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
    arch = NodeSelectorRequirement(key="kubernetes.io/arch", operator="In", values=("amd64",))
    template = spec.pop("template", None) or NodeClaimTemplate(
        spec=NodeClaimTemplateSpec(node_class_ref=reference, requirements=(arch,))
    )
    return NodePool(metadata=ObjectMeta(name=door.namespace), spec=NodePoolSpec(template=template, **spec))


READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def running(door: Door, name: str, *, labels: dict[str, str], ready: bool = True) -> Pod:
    """A pod that says of itself that it runs; no node, no kubelet."""
    await door.client.create(pod(door, name, labels=labels))
    conditions = [{**READY, "status": "True" if ready else "False"}]
    patch = MergePatch({"status": {"phase": "Running", "conditions": conditions}})
    return await door.client.patch(Pod, name, patch, door.namespace, subresource="status")
