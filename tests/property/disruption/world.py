"""Random clusters for the laws of disruption, and what becomes of them when commands are carried out."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api import quantity
from kubewright.api.core import (
    Affinity,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    TopologySpreadConstraint,
)
from kubewright.api.karpenter import Budget, Disruption, NodeClaim, NodeClaimStatus, NodePool
from kubewright.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from kubewright.catalogue.types import InstanceType
from kubewright.disruption.commands import Command
from kubewright.lifecycle import claims, state
from kubewright.settings import DisruptionSettings, FeatureGates, Settings
from kubewright.solver.problem import PlannedClaim, Pool, Snapshot, StateNode, Surroundings
from tests.builders import NOW, S_TYPES, ZONES, needs, node_pool, pod

BORN = NOW - timedelta(days=1)
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)
KINDS = ("web", "api", "spread", "alone", "guarded")
"""Plain, plain, spread over zones, never two on a host, behind a PodDisruptionBudget."""
TYPES = S_TYPES[:4]
SETTINGS = Settings(disruption=DisruptionSettings(settled_after=timedelta(), search_steps=50_000))


class Cluster(Snapshot, frozen=True):
    """A Snapshot that prints what matters."""

    def __repr__(self) -> str:
        lines = []
        for n in self.nodes:
            assert n.node is not None
            assert n.claim is not None
            carried = n.node.metadata.labels
            on = " ".join(f"{p.name}:{p.metadata.labels['app']}:{p.spec.containers[0].resources.requests['cpu']}" for p in n.pods)
            quiet = "" if claims.is_set(n.claim, claims.CONSOLIDATABLE) else " restless"
            shown = (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE, names.NODEPOOL)
            lines.append(f"{n.node.name} {' '.join(carried[k] for k in shown)}{quiet} [{on}]")
        for p in self.pools:
            disruption = p.node_pool.spec.disruption
            kinds = p.node_pool.spec.template.spec.requirements[0].values
            lines.append(f"pool {p.node_pool.name} {disruption.consolidation_policy} {disruption.budgets[0].nodes} {kinds}")
        lines += [f"guard {b.status.disruptions_allowed}" for b in self.surroundings.budgets]
        return "\n" + "\n".join(lines) + "\n"


class Spot(NamedTuple):
    """Where a machine stands and what it is."""

    kind: int
    zone: str
    capacity_type: str
    pool: str


def machine(name: str, kind: InstanceType, spot: Spot, on: Sequence[Pod] = (), born: datetime = BORN) -> StateNode:
    """An initialized machine of ours that has been quiet for long."""
    labels = {
        names.HOSTNAME: name,
        names.ZONE: spot.zone,
        names.CAPACITY_TYPE: spot.capacity_type,
        names.INSTANCE_TYPE: kind.name,
        names.NODEPOOL: spot.pool,
        names.ARCH: "amd64",
        names.OS: "linux",
        names.REGISTERED: "true",
        names.INITIALIZED: "true",
    }
    room = {k: quantity.show(v, binary=k == "memory") for k, v in kind.capacity.items()}
    node = Node(
        metadata=ObjectMeta(name=name, uid=name, resource_version="1", labels=labels, creation_timestamp=born),
        spec=NodeSpec(provider_id=f"aws:///{name}"),
        status=NodeStatus(capacity=room, allocatable=room, conditions=(Condition(type="Ready", status="True"),)),
    )
    claim = NodeClaim(
        metadata=ObjectMeta(name=f"c-{name}", resource_version="1", labels=labels, creation_timestamp=born),
        status=NodeClaimStatus(provider_id=f"aws:///{name}", capacity=room, allocatable=room),
    )
    for condition in (claims.LAUNCHED, claims.REGISTERED, claims.INITIALIZED, claims.CONSOLIDATABLE):
        claim = claims.with_condition(claim, condition, "True", now=born)
    return StateNode(node, claim, tuple(sorted(on, key=lambda p: p.key)))


def running(name: str, kind: str, cpu: str, node: str) -> Pod:
    chosen = LabelSelector(match_labels={"app": kind})
    more: dict[str, object] = {"node_name": node}
    if kind == "spread":
        more["topology_spread_constraints"] = (
            TopologySpreadConstraint(
                max_skew=2, topology_key=names.ZONE, when_unsatisfiable="DoNotSchedule", label_selector=chosen
            ),
        )
    if kind == "alone":
        term = PodAffinityTerm(label_selector=chosen, topology_key=names.HOSTNAME)
        more["affinity"] = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    made = pod(name, cpu, "1Gi", app=kind, **more)
    return msgspec.structs.replace(
        made,
        metadata=replace(made.metadata, owner_references=(OWNER,), creation_timestamp=BORN),
        status=replace(made.status, phase="Running", conditions=(), start_time=BORN),
    )


def guard(allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="guard", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "guarded"}), max_unavailable=max(allowed, 1)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, expected_pods=10, current_healthy=10),
    )


def pool(name: str, budget: str, policy: str, capacity_types: Sequence[str]) -> NodePool:
    disruption = Disruption(consolidation_policy=policy, consolidate_after="30s", budgets=(Budget(nodes=budget),))
    return node_pool(name, disruption=disruption, requirements=(needs(names.CAPACITY_TYPE, *capacity_types),))


@st.composite
def clusters(draw: st.DrawFn, budget: str | None = None, allowed: int | None = None) -> Snapshot:
    """Machines of two pools with pods that fit on them; not every one is quiet. `allowed` is what the guard lets go."""
    spots = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(TYPES) - 1),
                st.sampled_from(ZONES),
                st.sampled_from(("on-demand", "spot")),
                st.sampled_from("ab"),
            ).map(lambda t: Spot(*t)),
            min_size=1,
            max_size=9,
        )
    )
    placed: list[list[Pod]] = [[] for _ in spots]
    free = [TYPES[s.kind].capacity["cpu"] // 10**6 for s in spots]
    most = [TYPES[s.kind].capacity["memory"] // 2**30 // 10**9 for s in spots]
    zones: dict[str, int] = dict.fromkeys(ZONES, 0)
    for i, (at, kind, cpu) in enumerate(
        draw(
            st.lists(
                st.tuples(st.integers(0, len(spots) - 1), st.sampled_from(KINDS), st.sampled_from((250, 500, 1000, 1500, 3000))),
                max_size=40,
            )
        )
    ):
        zone = spots[at].zone
        if (
            cpu > free[at]
            or len(placed[at]) == most[at]
            or (kind == "alone" and any(p.metadata.labels["app"] == kind for p in placed[at]))
        ):
            continue
        if kind == "spread":
            if zones[zone] + 1 - min(zones.values()) > 2:
                continue
            zones[zone] += 1
        free[at] -= cpu
        placed[at].append(running(f"p{i:02}", kind, f"{cpu}m", f"n{at}"))
    nodes = [
        machine(f"n{i}", TYPES[s.kind], s, on, BORN + timedelta(minutes=i))
        for i, (s, on) in enumerate(zip(spots, placed, strict=True))
    ]
    restless = draw(st.sets(st.integers(0, len(spots) - 1), max_size=2))
    nodes = [settling(n) if i in restless else n for i, n in enumerate(nodes)]
    chosen = st.just(budget) if budget is not None else st.sampled_from(("0", "1", "2", "50%", "100%"))
    policies = st.sampled_from(("WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty"))
    kinds = st.sampled_from((("on-demand",), ("spot",), ("on-demand", "spot")))
    pools = tuple(Pool(pool(name, draw(chosen), draw(policies), draw(kinds)), TYPES) for name in "ab")
    around = Surroundings(budgets=(guard(draw(st.integers(0, 3)) if allowed is None else allowed),))
    return Cluster(NOW, tuple(nodes), (), pools, around)


GATES = st.booleans().map(lambda on: replace(SETTINGS, feature_gates=FeatureGates(spot_to_spot_consolidation=on)))


def settling(known: StateNode) -> StateNode:
    assert known.claim is not None
    return replace(known, claim=claims.without_condition(known.claim, claims.CONSOLIDATABLE))


def closed(known: StateNode) -> StateNode:
    """The machine, which is not quiet yet, without room for anybody else."""
    assert known.node is not None
    return replace(settling(known), node=replace(known.node, status=replace(known.node.status, allocatable={})))


def usd(snapshot: Snapshot) -> float:
    """What all machines cost per hour."""
    return sum(price(n) for n in snapshot.nodes)


def price(known: StateNode) -> float:
    carried = state.labels_of(known)
    kind = next(t for t in TYPES if t.name == carried[names.INSTANCE_TYPE])
    zone, capacity_type = carried[names.ZONE], carried[names.CAPACITY_TYPE]
    return next(o.price for o in kind.offerings if (o.zone, o.capacity_type) == (zone, capacity_type))


def carried_out(snapshot: Snapshot, commands: Iterable[Command]) -> Snapshot:
    """The cluster after the commands, every pod where it was planned; raises KeyError where one has no place."""
    commands = tuple(commands)
    gone = {c.name for command in commands for c in command.candidates}
    where: dict[str, str] = {}
    bought: dict[str, StateNode] = {}
    for number, command in enumerate(commands):
        for node, keys in command.destinations.items():
            where.update((key, node) for key in keys)
        for at, claim in enumerate(command.replacements):
            name = f"new-{number}-{at}"
            bought[name] = launched(name, claim)
            where.update((key, name) for key in claim.pods)
    on: dict[str, list[Pod]] = {n.node.name: [] for n in snapshot.nodes if n.node is not None and n.node.name not in gone}
    on.update((name, []) for name in bought)
    for known in snapshot.nodes:
        assert known.node is not None
        for one in known.pods:
            there = where[one.key] if known.node.name in gone else known.node.name
            on[there].append(replace(one, spec=replace(one.spec, node_name=there)))
    stay = {n.node.name: n for n in snapshot.nodes if n.node is not None and n.node.name in on}
    nodes = [replace(n, pods=tuple(sorted(on[name], key=lambda p: p.key))) for name, n in sorted({**stay, **bought}.items())]
    return replace(snapshot, nodes=tuple(nodes))


def launched(name: str, claim: PlannedClaim) -> StateNode:
    """The machine that the claim becomes: its cheapest offering."""
    kinds = {t.name: t for t in TYPES}
    usd_per_hour, kind, offering = min(
        (o.price, t, (o.zone, o.capacity_type))
        for t in claim.instance_types
        for o in kinds[t].offerings
        if claim.requirements[names.CAPACITY_TYPE].has(o.capacity_type)
        and (names.ZONE not in claim.requirements or claim.requirements[names.ZONE].has(o.zone))
    )
    assert abs(usd_per_hour - claim.usd_per_hour) < 1e-9
    return machine(name, kinds[kind], Spot(0, *offering, claim.node_pool), born=NOW)
