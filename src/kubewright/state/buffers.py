"""CapacityBuffers with what they point at, and where the last pass put their pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubewright.api.buffers import CapacityBuffer, ScalableReference
from kubewright.api.core import Deployment, Pod, PodTemplate, ReplicaSet, StatefulSet
from kubewright.api.meta import Object
from kubewright.kube.client import KubeClient
from kubewright.kube.informer import Informer
from kubewright.lifecycle import buffers
from kubewright.lifecycle.buffers import Resolved, Unresolved, Workload


class Buffers:
    """Watched only while the feature is on."""

    def __init__(self, client: KubeClient, replica_sets: Informer[ReplicaSet], stateful_sets: Informer[StatefulSet]) -> None:
        self.objects = Informer(client, CapacityBuffer, optional=True)
        self.templates = Informer(client, PodTemplate)
        self.deployments = Informer(client, Deployment)
        self._workloads: Mapping[str, Informer[Any]] = {
            "Deployment": self.deployments,
            "ReplicaSet": replica_sets,
            "StatefulSet": stateful_sets,
        }
        self._pods: tuple[Pod, ...] | None = None
        self._keys: frozenset[str] = frozenset()
        watched: Sequence[Informer[Any]] = (self.objects, self.templates, *self._workloads.values())
        for informer in watched:
            informer.subscribe(self._forget)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return self.objects, self.templates, self.deployments

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Every buffer's virtual pods, by key; the same objects while nothing changed."""
        if self._pods is None:
            found: list[Pod] = []
            for buffer in self.objects.objects.values():
                if buffer.metadata.deletion_timestamp is None:
                    known = self.resolve(buffer)
                    found += buffers.virtual_pods(buffer, known) if isinstance(known, Resolved) else ()
            self._pods = tuple(sorted(found, key=lambda p: p.key))
            self._keys = frozenset(p.key for p in found)
        return self._pods

    @property
    def keys(self) -> frozenset[str]:
        """Of `pods`."""
        return self._keys if self.pods else frozenset()

    def resolve(self, buffer: CapacityBuffer) -> Resolved | Unresolved:
        return buffers.resolve(buffer, self._template, self._workload)

    def pointing_at(self, obj: Object) -> list[str]:
        """Keys of the buffers that stand for this PodTemplate or workload."""
        found = []
        for buffer in self.objects.objects.values():
            spec = buffer.spec
            if isinstance(obj, PodTemplate):
                named = spec.pod_template_ref.name if spec.pod_template_ref is not None else ""
            else:
                ref = spec.scalable_ref
                named = ref.name if ref is not None and ref.kind == obj.RESOURCE.kind else ""
            if named == obj.name and buffer.namespace == obj.namespace:
                found.append(buffer.key)
        return sorted(found)

    def _template(self, namespace: str, name: str) -> PodTemplate | None:
        return self.templates.get(f"{namespace}/{name}")

    def _workload(self, ref: ScalableReference, namespace: str) -> Workload | None:
        found: Workload | None = self._workloads[ref.kind].get(f"{namespace}/{ref.name}")
        return found

    def _forget(self, _: Object | None, __: Object | None) -> None:
        self._pods = None
