"""Builders with full defaults for solver tests: instance types, pools, pods, problems."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kubewright.api import labels as names
from kubewright.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kubewright.api.karpenter import (
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSelectorRequirement,
    TemplateMetadata,
)
from kubewright.api.meta import Condition, ObjectMeta
from kubewright.api.quantity import parse_map
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.scheduling.requirement import Requirement
from kubewright.solver.problem import Pool, Problem, SolverSettings, StateNode, Surroundings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("a", "b", "c")


def one_of(key: str, *values: str) -> Requirement:
    return Requirement(key, frozenset(values))


def instance_type(
    name: str, cpu: int, memory_gi: int, usd: float, zones: Sequence[str] = ZONES, more: Mapping[str, str] | None = None
) -> InstanceType:
    """On-demand at `usd`, spot at 40 % of it, in every zone; 110 pods; no overhead."""
    offerings = tuple(
        Offering({names.ZONE: one_of(names.ZONE, z), names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, c)}, price)
        for c, price in (("on-demand", usd), ("spot", usd * 0.4))
        for z in zones
    )
    requirements = {
        names.INSTANCE_TYPE: one_of(names.INSTANCE_TYPE, name),
        names.ARCH: one_of(names.ARCH, "amd64"),
        names.OS: one_of(names.OS, "linux"),
        names.ZONE: one_of(names.ZONE, *zones),
        names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, "on-demand", "spot"),
    }
    capacity = {"cpu": str(cpu), "memory": f"{memory_gi}Gi", "pods": "110", **(more or {})}
    return InstanceType(name, requirements, offerings, parse_map(capacity))


S_TYPES = (
    instance_type("s2", 2, 4, 0.10),
    instance_type("s4", 4, 8, 0.20),
    instance_type("s8", 8, 16, 0.40),
    instance_type("s16", 16, 32, 0.80),
    instance_type("g8", 8, 32, 1.00, more={"nvidia.com/gpu": "1"}),
)


def node_pool(name: str = "default", *, labels: Mapping[str, str] | None = None, **spec: Any) -> NodePool:
    """`requirements`, `taints` and `startup_taints` go to the template; `weight` and `limits` to the pool."""
    template = {k: spec.pop(k) for k in ("requirements", "taints", "startup_taints", "expire_after") if k in spec}
    return NodePool(
        metadata=ObjectMeta(name=name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(labels=dict(labels or {})), spec=NodeClaimTemplateSpec(**template)
            ),
            **spec,
        ),
        status=NodePoolStatus(conditions=(Condition(type="Ready", status="True"),)),
    )


def needs(key: str, *values: str, operator: str = "In", min_values: int | None = None) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values, min_values=min_values)


def pod(
    name: str = "p", cpu: str = "1", memory: str = "1Gi", *, app: str = "web", more: Mapping[str, str] | None = None, **spec: Any
) -> Pod:
    requests = {"cpu": cpu, "memory": memory, **(more or {})}
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", labels={"app": app}),
        spec=PodSpec(**{"containers": (container,), **spec}),
        status=PodStatus(phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),)),
    )


def pods(count: int, prefix: str = "p", **more: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"{prefix}{i:03}", **more) for i in range(count))


def ask(
    wanted: Sequence[Pod],
    pools: Sequence[NodePool] | None = None,
    types: tuple[InstanceType, ...] = S_TYPES,
    nodes: Sequence[StateNode] = (),
    settings: SolverSettings | None = None,
    around: Surroundings | None = None,
) -> Problem:
    return Problem(
        NOW,
        tuple(sorted(wanted, key=lambda p: p.key)),
        tuple(nodes),
        tuple(Pool(p, types) for p in (pools if pools is not None else (node_pool(),))),
        around or Surroundings(),
        settings or SolverSettings(),
    )
