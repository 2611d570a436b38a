"""The values that deciding is asked with and answers with: Snapshot, Problem, Plan.

All are frozen, encodable, and hold everything a decision depends on, so that a record of them replays to the same bytes.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kubewright.api.core import (
    CSINode,
    DaemonSet,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    Service,
    StatefulSet,
    StorageClass,
    Taint,
    TopologySpreadConstraint,
)
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.quantity import Resources
from kubewright.catalogue.types import InstanceType
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.settings import FeatureGates, MinValuesPolicy, PreferencePolicy, PriceRow


class StateNode(msgspec.Struct, frozen=True):
    """A Node and the NodeClaim it came from, joined by providerID; either may be missing. Source: spec/scheduling 4."""

    node: Node | None
    claim: NodeClaim | None
    pods: tuple[Pod, ...] = ()
    """Pods bound to it that are not terminal, terminating ones included, by key."""
    marked_for_deletion: bool = False
    """An explicit mark, or what 4.3 derives from the objects."""
    nominated_until: datetime | None = None
    virtual_pods: int = 0
    """Pods of CapacityBuffers that the last pass counted on its room: it is not empty, though nothing runs there."""
    usd_per_hour: float | None = None
    """What it costs where commitments cover it, be it in part; None: what its offering does."""


class Pool(msgspec.Struct, frozen=True):
    """A NodePool and what it can buy now.

    `instance_types` is a shared tuple: pools with the same NodeClass and kubelet settings hold the very same object, which the
    solver uses to share columns. `problem` says why there are no types (NodeClass not ready, look-up failed).
    """

    node_pool: NodePool
    instance_types: tuple[InstanceType, ...] = ()
    problem: str = ""


class Surroundings(msgspec.Struct, frozen=True):
    """Everything else in the cluster that a decision may read, each sorted by key."""

    daemon_sets: tuple[DaemonSet, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    claims: tuple[PersistentVolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    """The cluster at one instant, as the mirror saw it."""

    now: datetime
    nodes: tuple[StateNode, ...] = ()
    """By name."""
    pods: tuple[Pod, ...] = ()
    """Pods without a node, whatever their condition, by key."""
    pools: tuple[Pool, ...] = ()
    surroundings: Surroundings = Surroundings()
    silent: tuple[str, ...] = ()
    """Kinds whose watch has said nothing for too long, by name: nothing is disrupted on what they last said."""
    virtual: tuple[Pod, ...] = ()
    """Pods that stand in for CapacityBuffers, by key: they ask for room and never come."""


class SolverSettings(msgspec.Struct, frozen=True):
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    ignore_dra_requests: bool = True
    feature_gates: FeatureGates = FeatureGates()
    well_known_labels: frozenset[str] = frozenset()
    """Labels the provider adds to the core's well-known ones."""
    label_aliases: Mapping[str, str] = {}
    """Provider's label aliases (a CSI zone key) → the stable key."""
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """Spread given to pods that write none, with a selector deduced per pod. Source: spec/scheduling 6.10."""
    slack: float = 0.0
    """Share of a new node's cpu and memory that is left free."""
    reserved_strict: bool = True
    """Whether a claim that has a machine of a reservation may not give it up to hold more pods. Source: 5.8."""
    commitments: tuple[PriceRow, ...] = ()
    """Reserved instances and savings plans; what runs has used them up first."""


class Problem(msgspec.Struct, frozen=True):
    """What one scheduling pass is asked."""

    now: datetime
    pods: tuple[Pod, ...]
    """To be placed: provisionable pending pods and pods of nodes that are going away, by key."""
    nodes: tuple[StateNode, ...]
    """Where pods may be put, and what counts for limits and topology: nodes not marked for deletion, by name."""
    pools: tuple[Pool, ...]
    surroundings: Surroundings = Surroundings()
    settings: SolverSettings = SolverSettings()
    leaving: tuple[StateNode, ...] = ()
    """Nodes that are going away: nothing is put there, but pods that stay on them until the end count for topology."""


class PlannedClaim(msgspec.Struct, frozen=True):
    """A machine to buy."""

    name: str
    """Within the plan only, for example "general-1"."""
    node_pool: str
    requirements: Mapping[str, Requirement]
    """As narrowed by the pods; without hostname and simulation keys. minValues stand on the requirements."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    startup_taints: tuple[Taint, ...]
    requests: Resources
    """Pods' requests and the least DaemonSet overhead."""
    instance_types: tuple[str, ...]
    """Names, cheapest first; at most 600."""
    pods: tuple[str, ...]
    """Keys, sorted."""
    usd_per_hour: float
    """Price of the cheapest launchable offering."""
    expire_after: str | None = None
    termination_grace_period: str | None = None
    min_values_relaxed: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What a scheduling pass answers."""

    claims: tuple[PlannedClaim, ...] = ()
    existing: Mapping[str, tuple[str, ...]] = {}
    """Name of a node (or in-flight NodeClaim) → keys of the pods assumed on it."""
    unplaced: Mapping[str, tuple[Refusal, ...]] = {}
    """Pod key → every refusal, in the order the places were asked."""
    usd_per_hour: float = 0.0
    """Of `claims` together."""
    bound_usd_per_hour: float = 0.0
    """No plan for the same pods can cost less, `node_usd_per_hour` included; 0 where none was computed."""
    gap: float = 0.0
    """Share by which the cost may lie above the least possible (0.01 is 1 %); 0 where it is least, or no bound was computed."""
    first_fit_usd_per_hour: float = 0.0
    """What first fit would have cost; 0 where that was not asked."""
    node_usd_per_hour: float = 0.0
    """What the new nodes cost beyond their prices, by the setting for a node."""
    optimal: bool = False
    """Whether no plan for the same pods is cheaper, proven."""
    proved_by: str = ""
    """The program that proved the bound, with its version, where one was asked: another one may choose another plan."""
    steps: int = 0
    """The improver's budget that was given."""
