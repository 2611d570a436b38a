"""What would happen if nodes went, by the exact scheduler.

Pods that are pending anyway, and those of nodes that go already, are placed first, once: they are everybody's background, so that
they neither ride along as somebody's replacements nor veto what does not concern them. Source: spec/disruption 1.7; differs
on purpose as said (11, item 7).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api import labels, quantity
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus, ResourceRequests
from kubewright.api.meta import ObjectMeta
from kubewright.catalogue.types import InstanceType
from kubewright.disruption.candidates import Candidate
from kubewright.lifecycle import state
from kubewright.scheduling.refusal import Refusal
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
        self.leaving = background.leaving
        self.nodes = background.nodes
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
        by_name = {state.name(n): n for n in self.nodes}
        waits_for = tuple(sorted(name for name in plan.existing if not state.is_initialized(by_name[name])))
        return Outcome(plan.claims, plan.existing, plan.unplaced, waits_for)

    def _settle(self, background: Problem) -> None:
        self.asked += 1
        plan = solve(background)
        by_key = {p.key: p for p in background.pods}
        moved = set(by_key).intersection(key for keys in plan.existing.values() for key in keys)
        moved.update(key for claim in plan.claims for key in claim.pods)
        nodes: list[StateNode] = []
        for node in background.nodes:
            coming = plan.existing.get(state.name(node), ())
            if coming:
                node = replace(node, pods=tuple(sorted((*node.pods, *(by_key[k] for k in coming)), key=lambda p: p.key)))  # noqa: PLW2901
            nodes.append(node)
        kinds = {p.node_pool.name: {t.name: t for t in p.instance_types} for p in self.snapshot.pools}
        nodes += [_promised(c, kinds[c.node_pool], [by_key[k] for k in c.pods]) for c in plan.claims]
        self.nodes = tuple(nodes)
        self.bought = plan.claims
        # Those who moved in thought count where they went, not where they are.
        self.leaving = tuple(replace(n, pods=tuple(p for p in n.pods if p.key not in moved)) for n in background.leaving)


def _promised(claim: PlannedClaim, kinds: Mapping[str, InstanceType], on: Sequence[Pod]) -> StateNode:
    """A machine that the background will be given: it counts for limits and topology, and has room for nobody else."""
    capacity = kinds[claim.instance_types[0]].capacity if claim.instance_types else {}
    fixed = {key: one.any() for key, one in claim.requirements.items() if len(one.values) == 1 and not one.complement}
    made = NodeClaim(
        metadata=ObjectMeta(name=f"background-{claim.name}", labels={**fixed, **claim.labels, labels.NODEPOOL: claim.node_pool}),
        spec=NodeClaimSpec(taints=claim.taints, resources=ResourceRequests()),
        status=NodeClaimStatus(capacity={name: quantity.show(amount) for name, amount in sorted(capacity.items())}),
    )
    return StateNode(None, made, tuple(on))
