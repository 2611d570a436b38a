"""The core kinds that deciding reads, narrowed to the fields it reads."""

from datetime import datetime
from typing import ClassVar

from msgspec import field

from kubewright.api.meta import Condition, LabelSelector, Object, Quantities, Resource, SelectorRequirement, Wire


class Taint(Wire, frozen=True, kw_only=True):
    key: str
    effect: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True, kw_only=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Wire, frozen=True, kw_only=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Wire, frozen=True, kw_only=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True, kw_only=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Wire, frozen=True, kw_only=True):
    """Also the shape of podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(Wire, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True, kw_only=True):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ContainerPort(Wire, frozen=True, kw_only=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)
    claims: tuple[dict[str, str], ...] = ()


class Container(Wire, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class PersistentVolumeClaimSource(Wire, frozen=True, kw_only=True):
    claim_name: str


class PersistentVolumeClaimSpec(Wire, frozen=True, kw_only=True):
    storage_class_name: str | None = None
    volume_name: str = ""


class PersistentVolumeClaimTemplate(Wire, frozen=True, kw_only=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralSource(Wire, frozen=True, kw_only=True):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Wire, frozen=True, kw_only=True):
    name: str
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class PodSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: Quantities = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[dict[str, str], ...] = ()
    scheduling_gates: tuple[dict[str, str], ...] = ()
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    os: dict[str, str] | None = None
    runtime_class_name: str | None = None
    preemption_policy: str | None = None
    workload_ref: dict[str, str] | None = None
    scheduling_group: dict[str, str] | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    name: str = ""
    allocated_resources: Quantities = field(default_factory=dict)
    resources: ResourceRequirements | None = None


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str = ""
    allocated_resources: Quantities = field(default_factory=dict)
    resources: ResourceRequirements | None = None


class Pod(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Pod", "pods", True)
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Wire, frozen=True, kw_only=True):
    provider_id: str = field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True, kw_only=True):
    capacity: Quantities = field(default_factory=dict)
    allocatable: Quantities = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Node", "nodes")
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces")


class ServiceSpec(Wire, frozen=True, kw_only=True):
    selector: dict[str, str] | None = None
    cluster_ip: str = field(default="", name="clusterIP")


class Service(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Service", "services", True)
    spec: ServiceSpec = ServiceSpec()


class PersistentVolumeClaimStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True)
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CsiSource(Wire, frozen=True, kw_only=True):
    driver: str = ""


class VolumeNodeAffinity(Wire, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True, kw_only=True):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: dict[str, object] | None = None
    local: dict[str, object] | None = None
    host_path: dict[str, object] | None = None


class PersistentVolume(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "PersistentVolume", "persistentvolumes")
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class EventSource(Wire, frozen=True, kw_only=True):
    component: str = ""


class ObjectReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Event(Object, frozen=True, kw_only=True):
    """A core/v1 event, as `kubectl describe` reads it."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Event", "events", True)
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""


class TemplateMeta(Wire, frozen=True, kw_only=True):
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class PodTemplateSpec(Wire, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class PodTemplate(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "PodTemplate", "podtemplates", True)
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class WorkloadSpec(Wire, frozen=True, kw_only=True):
    """What Deployment, ReplicaSet, StatefulSet and DaemonSet share."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class DaemonSet(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "DaemonSet", "daemonsets", True)
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class Deployment(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments", True)
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class ReplicaSet(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets", True)
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class StatefulSet(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "StatefulSet", "statefulsets", True)
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class PodDisruptionBudgetSpec(Wire, frozen=True, kw_only=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True, kw_only=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, datetime] = field(default_factory=dict)


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True)
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class TopologySelectorTerm(Wire, frozen=True, kw_only=True):
    match_label_expressions: tuple[SelectorRequirement, ...] = ()


class AllowedTopologyExpression(Wire, frozen=True, kw_only=True):
    key: str
    values: tuple[str, ...] = ()


class AllowedTopology(Wire, frozen=True, kw_only=True):
    match_label_expressions: tuple[AllowedTopologyExpression, ...] = ()


class StorageClass(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses")
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[AllowedTopology, ...] = ()


class VolumeNodeResources(Wire, frozen=True, kw_only=True):
    count: int | None = None


class CsiNodeDriver(Wire, frozen=True, kw_only=True):
    name: str
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(Wire, frozen=True, kw_only=True):
    drivers: tuple[CsiNodeDriver, ...] = ()


class CSINode(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "CSINode", "csinodes")
    spec: CsiNodeSpec = CsiNodeSpec()


class VolumeAttachmentSource(Wire, frozen=True, kw_only=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments")
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class LeaseSpec(Wire, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    RESOURCE: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases", True)
    spec: LeaseSpec = LeaseSpec()
