"""What comes of a case: its plan, and the plan of the pass after it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus
from kubewright.api.meta import ObjectMeta
from kubewright.scheduling.refusal import Refusal
from kubewright.solver.problem import Plan, PlannedClaim, Problem, Snapshot, SolverSettings, StateNode
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.cases.shorthand import SETTINGS, world

ANY = "any"


class Answer(msgspec.Struct, frozen=True):
    """What came of a case."""

    snapshot: Snapshot
    problem: Problem
    ignored: Mapping[str, Refusal]
    plan: Plan

    def types(self, index: int = 0) -> tuple[str, ...]:
        return self.plan.claims[index].instance_types

    @property
    def zones(self) -> list[str]:
        """The zone of every claim once per pod on it, sorted."""
        return sorted(zones_of(claim) for claim in self.plan.claims for _ in claim.pods)

    def refusals(self, pod: str) -> tuple[Refusal, ...]:
        return self.plan.unplaced[f"default/{pod}"]


def zones_of(claim: PlannedClaim) -> str:
    """The zones it may be launched in: "a,b", or `ANY` where nobody asked."""
    asked = claim.requirements.get(names.ZONE)
    return ",".join(sorted(asked.values)) if asked is not None else ANY


def answer(written: Mapping[str, Any], settings: SolverSettings = SETTINGS) -> Answer:
    """Select and solve. Every plan is asked for twice: the same question has the same answer."""
    snapshot = world(written)
    chosen = select(snapshot, settings)
    plan = solve(chosen.problem)
    assert plan == solve(chosen.problem)
    known = sorted([*plan.unplaced, *(p for c in plan.claims for p in c.pods), *(p for ps in plan.existing.values() for p in ps)])
    assert known == sorted(p.key for p in chosen.problem.pods), "every pod is placed once or refused"
    return Answer(snapshot, chosen.problem, chosen.ignored, plan)


def launched(before: Answer, settings: SolverSettings = SETTINGS) -> Answer:
    """The next pass, in which every claim of the last one is on its way as its cheapest type, and no pod is bound yet."""
    by_name = {t.name: t for pool in before.snapshot.pools for t in pool.instance_types}
    coming = []
    for claim in before.plan.claims:
        kind = by_name[claim.instance_types[0]]
        amounts: dict[str, str | int] = {key: f"{amount}n" for key, amount in kind.capacity.items()}
        labels = {
            **claim.labels,
            **{k: r.any() for k, r in kind.requirements.items()},
            **{k: r.any() for k, r in claim.requirements.items() if k in (names.ZONE, names.CAPACITY_TYPE)},
            names.INSTANCE_TYPE: kind.name,
        }
        status = NodeClaimStatus(provider_id=claim.name, capacity=amounts, allocatable=amounts)
        meta = ObjectMeta(name=claim.name, labels=labels)
        coming.append(StateNode(None, NodeClaim(metadata=meta, status=status)))
    snapshot = replace(before.snapshot, nodes=(*before.snapshot.nodes, *coming))
    chosen = select(snapshot, settings)
    return Answer(snapshot, chosen.problem, chosen.ignored, solve(chosen.problem))
