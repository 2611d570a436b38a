"""The trace: Deployments, and when they are scaled. The same seed gives the same trace."""

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from benchmarks import offered
from kubewright.api import quantity
from kubewright.catalogue.types import InstanceType
from kubewright.sim.scenario import Scale, Step

Item = dict[str, Any]

CPU_M = (250, 500, 750, 1000, 1500, 2000, 3000)
MIB_PER_CPU = (1024, 2048, 2048, 4096, 6144)
DEPLOYMENT_PODS = (6, 40)
"""Replicas at 100 %, from and to."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large and how long the trace is."""

    nodes: int = 300
    """About as many as the pods at 100 % fill, at `cpus_per_node`."""
    cpus_per_node: int = 16
    largest_node_cpus: int = 16
    levels: tuple[float, ...] = (1.0, 0.25, 0.6)
    dwell: timedelta = timedelta(minutes=20)
    """At each level."""
    churn_every: timedelta = timedelta(minutes=2)
    churn: float = 0.02
    """Share of the Deployments that are scaled to something else at each beat of the churn."""
    consolidate_after: str = "30s"
    budget: str = "10%"
    capacity_type: str = "on-demand"
    seed: int = 1

    @property
    def length(self) -> timedelta:
        return self.dwell * len(self.levels)


class Deployment(msgspec.Struct, frozen=True):
    name: str
    replicas: int
    cpu_m: int
    mib: int
    budget: bool
    """It has a PodDisruptionBudget of 20 %."""


def deployments(shape: Shape) -> tuple[Deployment, ...]:
    """Enough of them to fill the nodes at 100 % by cpu."""
    rng = random.Random(f"deployments {shape.seed}")
    wanted_m = shape.nodes * shape.cpus_per_node * 1000
    found: list[Deployment] = []
    asked_m = 0
    while asked_m < wanted_m:
        cpu_m = rng.choice(CPU_M)
        mib = cpu_m * rng.choice(MIB_PER_CPU) // 1000
        replicas = rng.randint(*DEPLOYMENT_PODS)
        found.append(Deployment(f"app-{len(found):03}", replicas, cpu_m, mib, rng.random() < 0.5))
        asked_m += replicas * cpu_m
    return tuple(found)


def manifests(shape: Shape, node_class: Item, node_pool: Item) -> Iterator[Item]:
    """Everything that is applied at the start; the Deployments come at 100 %."""
    yield node_class
    yield node_pool
    for one in deployments(shape):
        yield deployment(one, round(one.replicas * shape.levels[0]))
        if one.budget:
            yield {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": one.name, "namespace": "default"},
                "spec": {"maxUnavailable": "20%", "selector": {"matchLabels": {"app": one.name}}},
            }


def deployment(one: Deployment, replicas: int) -> Item:
    asked = {"requests": {"cpu": f"{one.cpu_m}m", "memory": f"{one.mib}Mi"}}
    spec = {"containers": [{"name": "main", "image": "registry.invalid/app", "resources": asked}]}
    labels = {"app": one.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": one.name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def steps(shape: Shape) -> tuple[Step, ...]:
    """What is scaled when, by time: whole levels at their beginning, single Deployments in between."""
    rng = random.Random(f"churn {shape.seed}")
    all_of_them = deployments(shape)
    found: list[Step] = []
    for index, level in enumerate(shape.levels):
        start = shape.dwell * index
        if index:
            found += [_scale(start, one, level) for one in all_of_them]
        at = start + shape.churn_every
        while at < start + shape.dwell:
            for one in rng.sample(all_of_them, max(1, round(len(all_of_them) * shape.churn))):
                found.append(_scale(at, one, level * rng.uniform(0.5, 1.5)))
            at += shape.churn_every
    return tuple(found)


def _scale(at: timedelta, one: Deployment, level: float) -> Step:
    replicas = max(1, round(one.replicas * level))
    return Step(at=f"{int(at.total_seconds())}s", scale=Scale(kind="Deployment", name=one.name, replicas=replicas))


def types(shape: Shape) -> tuple[InstanceType, ...]:
    """What may be bought: the current general-purpose families, up to the largest size of the trace."""
    most = quantity.parse(str(shape.largest_node_cpus))
    return tuple(t for t in offered.instance_types() if offered.is_general(t) and t.capacity["cpu"] <= most)


def node_pool(shape: Shape, names: Iterable[str]) -> Item:
    """The pool, which may buy the types of these names."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [shape.capacity_type]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": sorted(names)},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": requirements, "expireAfter": "Never"}},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": shape.consolidate_after,
                "budgets": [{"nodes": shape.budget}],
            },
        },
    }
