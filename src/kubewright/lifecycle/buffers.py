"""CapacityBuffers: what each stands for, the pods that stand in for it, and what its status says.

A virtual pod is one of a buffer's pods as a scheduling pass sees it: it asks for room like any other and never exists.
Source: spec/scheduling 9.2. Differs on purpose: virtual pods count as Pending, and as the least important of all they take only
the room that real pods leave; the reference lets large ones take the room of small real ones, which then get machines of their
own.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubewright.api import conditions, labels, quantity
from kubewright.api.buffers import CapacityBuffer, ScalableReference
from kubewright.api.core import Deployment, Pod, PodSpec, PodStatus, PodTemplate, PodTemplateSpec, ReplicaSet, StatefulSet
from kubewright.api.meta import Condition, ObjectMeta
from kubewright.scheduling.resources import PODS, pod_requests, with_limits_as_requests
from kubewright.solver.classes import BUFFER_PRIORITY, stands_in

READY = "ReadyForProvisioning"
PROVISIONING = "Provisioning"
KINDS: Mapping[str, type[Deployment | StatefulSet | ReplicaSet]] = {
    "Deployment": Deployment,
    "StatefulSet": StatefulSet,
    "ReplicaSet": ReplicaSet,
}

Workload = Deployment | StatefulSet | ReplicaSet
FindTemplate = Callable[[str, str], PodTemplate | None]
"""(namespace, name) → the PodTemplate."""
FindWorkload = Callable[[ScalableReference, str], Workload | None]
"""(reference, namespace) → the workload."""


class Resolved(msgspec.Struct, frozen=True):
    """What a buffer stands for."""

    replicas: int
    template: PodTemplateSpec
    generation: int | None = None
    """Of the PodTemplate, if it is one."""


class Unresolved(msgspec.Struct, frozen=True):
    """Why it stands for nothing."""

    reason: str
    message: str


def resolve(buffer: CapacityBuffer, template_of: FindTemplate, workload_of: FindWorkload) -> Resolved | Unresolved:
    spec, namespace = buffer.spec, buffer.namespace
    if spec.pod_template_ref is not None:
        found = template_of(namespace, spec.pod_template_ref.name)
        if found is None:
            return Unresolved("PodTemplateNotFound", f'PodTemplate "{spec.pod_template_ref.name}" not found')
        return Resolved(size(buffer, found.template, None), found.template, found.metadata.generation)
    if spec.scalable_ref is None:
        return Unresolved("ResolutionFailed", "neither podTemplateRef nor scalableRef is set; set one of them")
    ref = spec.scalable_ref
    if ref.api_group != "apps" or ref.kind not in KINDS:
        written = f"{ref.kind}.{ref.api_group}" if ref.api_group else ref.kind
        known = ", ".join(f"{kind}.apps" for kind in KINDS)
        return Unresolved("ResolutionFailed", f"unsupported scalableRef kind {written}; it must be one of {known}")
    workload = workload_of(ref, namespace)
    if workload is None:
        return Unresolved("ScalableRefNotFound", f'{ref.kind} "{ref.name}" not found')
    count = 1 if workload.spec.replicas is None else workload.spec.replicas
    return Resolved(size(buffer, workload.spec.template, count), workload.spec.template)


def size(buffer: CapacityBuffer, template: PodTemplateSpec, workload_replicas: int | None) -> int:
    """How many pods the buffer stands for: the larger of number and percentage, as far as its limits go."""
    spec = buffer.spec
    sizes = [] if spec.replicas is None else [spec.replicas]
    if spec.percentage is not None and workload_replicas is not None:
        sizes.append(-(-workload_replicas * spec.percentage // 100))  # rounded up: at least 1 when neither is 0
    most = _within(quantity.parse_map(spec.limits or {}), template)
    if most is not None:
        return max(0, min(max(sizes), most) if sizes else most)
    return max(sizes, default=0)


def _within(limits: Mapping[str, int], template: PodTemplateSpec) -> int | None:
    asked = pod_requests(Pod(spec=with_limits_as_requests(template.spec)))
    counts = [limit // asked[name] for name, limit in limits.items() if asked.get(name, 0) > 0 and name != PODS]
    return min(counts, default=None)


def virtual_pods(buffer: CapacityBuffer, found: Resolved) -> tuple[Pod, ...]:
    """The pods that a scheduling pass places for the buffer; numbered from 1, the same ones every time."""
    name, spec = buffer.name, _without_volumes(with_limits_as_requests(found.template.spec))
    spec = replace(spec, node_name="", priority=BUFFER_PRIORITY)
    notes = {labels.BUFFER_POD: "true", labels.BUFFER_NAME: name, labels.BUFFER_NAMESPACE: buffer.namespace}
    status = PodStatus(phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),))
    return tuple(
        Pod(
            metadata=ObjectMeta(
                name=f"capacity-buffer-{name}-{i}",
                namespace=buffer.namespace,
                uid=f"{buffer.metadata.uid}-{i}",
                labels=dict(found.template.metadata.labels),
                annotations={**found.template.metadata.annotations, **notes},
            ),
            spec=spec,
            status=status,
        )
        for i in range(1, found.replicas + 1)
    )


def buffer_of(pod: Pod) -> str:
    """Key of the buffer that a virtual pod stands for, "" for a real pod."""
    if not stands_in(pod):
        return ""
    notes = pod.metadata.annotations
    return f"{notes.get(labels.BUFFER_NAMESPACE, '')}/{notes.get(labels.BUFFER_NAME, '')}"


def _without_volumes(spec: PodSpec) -> PodSpec:
    """Claims of volumes are not made for pods that will not come."""
    kept = tuple(v for v in spec.volumes if v.persistent_volume_claim is None and v.ephemeral is None)
    return replace(spec, volumes=kept)


# --- status ----------------------------------------------------------------------------------------------------------------


def resolved(buffer: CapacityBuffer, found: Resolved | Unresolved, now: datetime) -> CapacityBuffer:
    """The buffer with what it was found to stand for."""
    if isinstance(found, Unresolved):
        after = _with(buffer, READY, "False", found.reason, found.message, now)
        return _with(after, PROVISIONING, "False", "NotReadyForProvisioning", "the buffer is not ready for provisioning", now)
    status = replace(
        buffer.status,
        pod_template_ref=buffer.spec.pod_template_ref,
        pod_template_generation=found.generation,
        replicas=found.replicas,
        provisioning_strategy=buffer.spec.provisioning_strategy,
    )
    after = _with(replace(buffer, status=status), READY, "True", "Resolved", "Pod template resolved successfully", now)
    if found.replicas:
        return after
    return _with(after, PROVISIONING, "False", "BufferEmpty", "the buffer stands for no pods", now)


class Placed(msgspec.Struct, frozen=True):
    """What a pass did with a buffer's pods."""

    existing: int = 0
    """On nodes that are there or on their way."""
    new: int = 0
    failed: int = 0


def provisioned(buffer: CapacityBuffer, placed: Placed, now: datetime) -> CapacityBuffer:
    """The buffer with what the last pass did; unchanged if the pass saw none of its pods."""
    total = placed.existing + placed.new + placed.failed
    if not total:
        return buffer
    if placed.new or placed.failed:
        text = f"{placed.new}/{total} virtual pods required new capacity, {placed.failed} failed"
        return _with(buffer, PROVISIONING, "False", "RequiresNewCapacity", text, now)
    return _with(buffer, PROVISIONING, "True", "FitsExistingCapacity", "all virtual pods fit on existing capacity", now)


def _with(buffer: CapacityBuffer, kind: str, status: str, reason: str, message: str, now: datetime) -> CapacityBuffer:
    found = conditions.set_plain(buffer.status.conditions, kind, status, reason, message, meta=buffer.metadata, now=now)
    return replace(buffer, status=replace(buffer.status, conditions=found))
