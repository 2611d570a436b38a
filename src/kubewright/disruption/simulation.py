"""What would happen if nodes went, by the exact scheduler.

Pods that are pending anyway, and those of nodes that go already, are placed first, once: they are everybody's background, so that
they neither ride along as somebody's replacements nor veto what does not concern them. Source: spec/disruption 1.7; differs
on purpose as said (11, item 7).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy

import msgspec
from msgspec.structs import replace

from kubewright.api import labels, quantity
from kubewright.api.core import Node, NodeSpec, NodeStatus, Pod
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus
from kubewright.api.meta import ObjectMeta, Quantities
from kubewright.catalogue.types import InstanceType
from kubewright.disruption import cost
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.worth import Worth
from kubewright.lifecycle import state
from kubewright.scheduling.refusal import Refusal
from kubewright.settings import DisruptionSettings
from kubewright.solver.problem import Plan, PlannedClaim, Problem, Snapshot, SolverSettings, StateNode
from kubewright.solver.select import select
from kubewright.solver.solve import solve


class Outcome(msgspec.Struct, frozen=True):
    """Where the pods of some candidates would go."""

    claims: tuple[PlannedClaim, ...] = ()
    destinations: Mapping[str, tuple[str, ...]] = {}
    """Node that is there → keys of the pods put on it."""
    unplaced: Mapping[str, tuple[Refusal, ...]] = {}
    waits_for: tuple[str, ...] = ()
    """Nodes among the destinations that are not initialized yet: nothing that rests on them is done now."""


class Move(msgspec.Struct, frozen=True):
    """Nodes that go, and where all their movers come to be."""

    going: tuple[Candidate, ...]
    bought: tuple[PlannedClaim, ...] = ()
    destinations: Mapping[str, tuple[str, ...]] = {}


class Simulation:
    """The cluster with its background settled. Made once for a snapshot, asked many times."""

    def __init__(self, snapshot: Snapshot, settings: SolverSettings, queued: Collection[str] = ()) -> None:
        """`queued` are providerIDs of nodes that commands have in hand: as good as gone."""
        self.snapshot = snapshot
        self.settings = replace(settings, reserved_strict=False)
        marked = tuple(
            replace(n, marked_for_deletion=True) if not n.marked_for_deletion and state.provider_id(n) in queued else n
            for n in snapshot.nodes
        )
        background = select(replace(snapshot, nodes=marked), self.settings).problem
        self._set(background.nodes, background.leaving)
        self.asked = 0
        """Problems solved."""
        self.bought: tuple[PlannedClaim, ...] = ()
        """What the background needs bought."""
        if background.pods:
            self._settle(background)

    def without(self, going: Sequence[Candidate], pods: Iterable[Pod] | None = None) -> Outcome:
        """What becomes of the movers of `going` (or of `pods`) once these nodes take nothing more.

        Cost: one pass of the solver over the whole cluster.
        """
        return self.outcome(self.plan(going, pods))

    def problem(self, going: Sequence[Candidate], pods: Iterable[Pod] | None = None) -> Problem:
        """The question; room and limits of `going` are credited, since they will be gone."""
        out = {c.provider_id for c in going}
        staying = tuple(n for n in self.nodes if state.provider_id(n) not in out)
        leaving = tuple(n for n in self.nodes if state.provider_id(n) in out)
        moving = sorted((p for c in going for p in c.movers) if pods is None else pods, key=lambda p: p.key)
        around = self.snapshot
        return Problem(
            around.now, tuple(moving), staying, around.pools, around.surroundings, self.settings, (*self.leaving, *leaving)
        )

    def plan(self, going: Sequence[Candidate], pods: Iterable[Pod] | None = None) -> Plan:
        problem = self.problem(going, pods)
        if not problem.pods:
            return Plan()
        self.asked += 1
        return solve(problem)

    def outcome(self, plan: Plan) -> Outcome:
        return Outcome(plan.claims, plan.existing, plan.unplaced, self.not_ready(plan.existing))

    def not_ready(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those nodes of `names` that are not initialized yet."""
        return tuple(sorted(name for name in names if not state.is_initialized(self._by_name[name])))

    def after(self, moves: Sequence[Move]) -> "Simulation":
        """The cluster as it will be once `moves` are made: what they buy is there, full, and what goes is leaving."""
        by_key = {p.key: p for move in moves for one in move.going for p in one.movers}
        out = {one.provider_id for move in moves for one in move.going}
        coming: dict[str, list[Pod]] = {}
        for move in moves:
            for node, keys in move.destinations.items():
                coming.setdefault(node, []).extend(by_key[k] for k in keys)
        nodes = [_with_pods(n, coming.get(state.name(n), ())) for n in self.nodes if state.provider_id(n) not in out]
        leaving = [
            replace(n, pods=tuple(p for p in n.pods if p.key not in by_key)) for n in self.nodes if state.provider_id(n) in out
        ]
        made = copy(self)
        bought = [(c, [by_key[k] for k in c.pods]) for move in moves for c in move.bought]
        nodes += [self._promised(c, pods, len(self.nodes) + i) for i, (c, pods) in enumerate(bought)]
        made._set(tuple(nodes), (*self.leaving, *leaving))  # noqa: SLF001 - its own kind
        return made

    def worth(self, settings: DisruptionSettings) -> Worth:
        """What moves are weighed against, as things stand here."""
        return Worth(self.nodes, self.snapshot.pools, settings)

    def refreshed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with the pods that `after` has put on them, which cost as much to move as if they were there."""
        known = {state.provider_id(n): n for n in self.nodes}
        found: list[Candidate] = []
        for one in candidates:
            node = known[one.provider_id]
            if node is one.known or len(node.pods) == len(one.known.pods):
                found.append(one)
                continue
            there = {p.key for p in one.known.pods}
            come = tuple(p for p in node.pods if p.key not in there)
            reschedulable = (*one.reschedulable, *come)
            unrest = one.disturbance / cost.of_pods(one.reschedulable)
            found.append(
                replace(
                    one,
                    known=node,
                    reschedulable=reschedulable,
                    movers=(*one.movers, *come),
                    disturbance=cost.of_pods(reschedulable) * unrest,
                )
            )
        return found

    def _settle(self, background: Problem) -> None:
        self.asked += 1
        plan = solve(background)
        by_key = {p.key: p for p in background.pods}
        moved = set(by_key).intersection(key for keys in plan.existing.values() for key in keys)
        moved.update(key for claim in plan.claims for key in claim.pods)
        nodes = [_with_pods(n, [by_key[k] for k in plan.existing.get(state.name(n), ())]) for n in background.nodes]
        nodes += [self._promised(c, [by_key[k] for k in c.pods], len(nodes) + i) for i, c in enumerate(plan.claims)]
        self.bought = plan.claims
        # Those who moved in thought count where they went, not where they are.
        leaving = tuple(replace(n, pods=tuple(p for p in n.pods if p.key not in moved)) for n in background.leaving)
        self._set(tuple(nodes), leaving)

    def _set(self, nodes: tuple[StateNode, ...], leaving: tuple[StateNode, ...]) -> None:
        self.nodes, self.leaving = nodes, leaving
        self._by_name = {state.name(n): n for n in nodes}

    def _promised(self, claim: PlannedClaim, on: Sequence[Pod], number: int) -> StateNode:
        """A machine that will be bought: it counts for limits and topology, and has room for nobody else."""
        types = next(p.instance_types for p in self.snapshot.pools if p.node_pool.name == claim.node_pool)
        kind = next((t for t in types if claim.instance_types and t.name == claim.instance_types[0]), None)
        capacity: Quantities = {} if kind is None else {k: quantity.show(v) for k, v in sorted(kind.capacity.items())}
        carried = {**_fixed(claim), **claim.labels, labels.NODEPOOL: claim.node_pool}
        if kind is not None:
            carried |= _cheapest(kind, claim)
        name = f"planned-{number}"
        made = NodeClaim(
            metadata=ObjectMeta(name=name, labels=carried), status=NodeClaimStatus(provider_id=f"planned:///{number}")
        )
        ready = {**carried, labels.REGISTERED: "true", labels.INITIALIZED: "true", labels.HOSTNAME: name}
        node = Node(
            metadata=ObjectMeta(name=name, labels=ready),
            spec=NodeSpec(provider_id=f"planned:///{number}", taints=claim.taints),
            status=NodeStatus(capacity=capacity),
        )
        return StateNode(node, made, tuple(on))


def _fixed(claim: PlannedClaim) -> dict[str, str]:
    """Labels that its node will have whatever is launched."""
    return {key: one.any() for key, one in claim.requirements.items() if len(one.values) == 1 and not one.complement}


def _cheapest(kind: InstanceType, claim: PlannedClaim) -> dict[str, str]:
    """The labels of the claim's cheapest machine, which is what is expected."""
    wanted = [claim.requirements.get(key) for key in (labels.ZONE, labels.CAPACITY_TYPE)]
    for offering in kind.offerings:
        there = (offering.zone, offering.capacity_type)
        suits = all(w is None or w.has(value) for w, value in zip(wanted, there, strict=True))
        if suits and offering.available and offering.price == claim.usd_per_hour:
            return {labels.INSTANCE_TYPE: kind.name, labels.ZONE: there[0], labels.CAPACITY_TYPE: there[1]}
    return {labels.INSTANCE_TYPE: kind.name}


def _with_pods(node: StateNode, coming: Sequence[Pod]) -> StateNode:
    return replace(node, pods=tuple(sorted((*node.pods, *coming), key=lambda p: p.key))) if coming else node
