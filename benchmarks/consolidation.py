"""How long one look for nodes to consolidate takes, and what it finds: `python -m benchmarks.consolidation [NODES [PODS]]`.

A fleet after a bad day: machines of the embedded catalogue, filled unevenly, with pods of 300 Deployments, a tenth of which
spread over zones and a tenth of which refuse their own kind's company; budgets of 100 %, so that nothing cuts the search short.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.offered import instance_types, is_general
from kubewright.api import aws_labels, quantity
from kubewright.api import labels as names
from kubewright.api.core import (
    Affinity,
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from kubewright.api.karpenter import Budget, Disruption, NodeClaim, NodeClaimStatus
from kubewright.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from kubewright.catalogue.types import InstanceType
from kubewright.disruption.decisions import decide
from kubewright.disruption.memory import Memory
from kubewright.lifecycle import claims
from kubewright.settings import Settings
from kubewright.solver.problem import Pool, Snapshot, SolverSettings, StateNode
from tests.builders import needs, node_pool

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BORN = NOW - timedelta(hours=6)
SOLVER = SolverSettings(well_known_labels=aws_labels.WELL_KNOWN)
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
CPUS, MIB_PER_CPU = (100, 250, 500, 1000, 2000), (1024, 2048, 4096, 8192)
DEPLOYMENTS = 300
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)


class Kind:
    """A Deployment's pods."""

    def __init__(self, index: int, rng: random.Random) -> None:
        self.name = f"app-{index:03}"
        self.cpu_m = rng.choice(CPUS)
        self.mib = self.cpu_m * rng.choice(MIB_PER_CPU) // 1000
        self.alone = index % 10 == 1
        chosen = LabelSelector(match_labels={"app": self.name})
        self.spread: tuple[TopologySpreadConstraint, ...] = ()
        self.affinity: Affinity | None = None
        if index % 10 == 0:
            self.spread = (
                TopologySpreadConstraint(
                    max_skew=5, topology_key=names.ZONE, when_unsatisfiable="DoNotSchedule", label_selector=chosen
                ),
            )
        if self.alone:
            term = PodAffinityTerm(label_selector=chosen, topology_key=names.HOSTNAME)
            self.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))

    def pod(self, number: int, node: str) -> Pod:
        return Pod(
            metadata=ObjectMeta(
                name=f"{self.name}-{number:05}",
                namespace="default",
                uid=f"{self.name}-{number:05}",
                labels={"app": self.name},
                owner_references=(OWNER,),
                creation_timestamp=BORN,
            ),
            spec=PodSpec(
                containers=(
                    Container(
                        name="main",
                        resources=ResourceRequirements(requests={"cpu": f"{self.cpu_m}m", "memory": f"{self.mib}Mi"}),
                    ),
                ),
                node_name=node,
                topology_spread_constraints=self.spread,
                affinity=self.affinity,
            ),
            status=PodStatus(phase="Running", start_time=BORN),
        )


def fleet(nodes: int, pods: int, types: Sequence[InstanceType], seed: int = 1, policy: Disruption | None = None) -> Snapshot:
    """`nodes` machines and about `pods` pods."""
    rng = random.Random(seed)
    kinds = [Kind(i, rng) for i in range(DEPLOYMENTS)]
    bought = [t for t in types if is_general(t) and 8 <= t.capacity["cpu"] // quantity.ONE <= 32]
    budget = Disruption(consolidate_after="30s", budgets=(Budget(nodes="100%"),))
    on_demand = needs(names.CAPACITY_TYPE, "on-demand")
    pool = node_pool("default", disruption=policy or budget, requirements=(on_demand,))
    sold = tuple(t for t in types if is_general(t))
    found: list[StateNode] = []
    numbers: Counter[str] = Counter()
    by_zone: Counter[tuple[str, str]] = Counter()
    per_node = pods / nodes
    for i in range(nodes):
        kind = rng.choice(bought)
        offering = rng.choice([o for o in kind.offerings if o.available and o.capacity_type == "on-demand"])
        name = f"node-{i:04}"
        room = kind.allocatable()
        cpu, memory = room["cpu"] // 10**6, room["memory"] // quantity.ONE // 2**20
        wanted, on = max(1, round(rng.uniform(0.2, 1.8) * per_node)), list[Pod]()
        here: set[str] = set()
        for _ in range(wanted * 3):
            if len(on) == wanted:
                break
            one = rng.choice(kinds)
            if one.cpu_m > cpu or one.mib > memory or (one.alone and one.name in here):
                continue
            if one.spread:
                counts = {z: by_zone[one.name, z] for z in ZONES}
                if counts[offering.zone] + 1 - min(counts.values()) > 4:
                    continue
            here.add(one.name)
            by_zone[one.name, offering.zone] += 1
            numbers[one.name] += 1
            cpu, memory = cpu - one.cpu_m, memory - one.mib
            on.append(one.pod(numbers[one.name], name))
        found.append(_node(name, kind, offering.zone, offering.capacity_type, on, born=BORN + timedelta(seconds=i)))
    return Snapshot(NOW, tuple(found), (), (Pool(pool, sold),))


def _node(name: str, kind: InstanceType, zone: str, capacity_type: str, on: Sequence[Pod], born: datetime) -> StateNode:
    labels = {
        **{key: one.any() for key, one in kind.requirements.items() if len(one.values) == 1},
        names.HOSTNAME: name,
        names.ZONE: zone,
        names.CAPACITY_TYPE: capacity_type,
        names.INSTANCE_TYPE: kind.name,
        names.NODEPOOL: "default",
        names.REGISTERED: "true",
        names.INITIALIZED: "true",
    }
    capacity, room = (
        {k: quantity.show(v, binary=k == "memory") for k, v in amounts.items() if v > 0}
        for amounts in (kind.capacity, kind.allocatable())
    )
    node = Node(
        metadata=ObjectMeta(name=name, uid=name, resource_version="1", labels=labels, creation_timestamp=born),
        spec=NodeSpec(provider_id=f"aws:///{name}"),
        status=NodeStatus(capacity=capacity, allocatable=room, conditions=(Condition(type="Ready", status="True"),)),
    )
    claim = NodeClaim(
        metadata=ObjectMeta(name=f"c-{name}", resource_version="1", labels=labels, creation_timestamp=born),
        status=NodeClaimStatus(provider_id=f"aws:///{name}", capacity=capacity, allocatable=room),
    )
    for condition in (claims.LAUNCHED, claims.REGISTERED, claims.INITIALIZED, claims.CONSOLIDATABLE):
        claim = claims.with_condition(claim, condition, "True", now=born)
    return StateNode(node, claim, tuple(sorted(on, key=lambda p: p.key)))


def main() -> int:
    nodes, pods = (int(a) for a in (*sys.argv[1:3], *("2000", "30000")[len(sys.argv) - 1 :]))
    snapshot = fleet(nodes, pods, instance_types())
    running = sum(len(n.pods) for n in snapshot.nodes)
    start, cpu = time.perf_counter(), time.process_time()
    found = decide(snapshot, Settings(), NOW, Memory(), SOLVER)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    gone = sum(len(c.candidates) for c in found.commands)
    bought = sum(len(c.replacements) for c in found.commands)
    saved = sum(c.savings_usd_per_hour for c in found.commands)
    moved = sum(len(one.movers) for c in found.commands for one in c.candidates)
    print("| nodes | pods | seconds | of cpu | steps | commands | nodes gone | bought | pods moved | saved, $/h |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {len(snapshot.nodes)} | {running} | {seconds:.2f} | {cpu:.2f} | {found.steps} | {len(found.commands)} "
        f"| {gone} | {bought} | {moved} | {saved:.2f} |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
