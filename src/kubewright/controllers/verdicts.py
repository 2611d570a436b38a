"""What consolidation weighed, told: moves counted, scores of pools that are Balanced observed, approvals as events.

Source: spec/disruption 4.3.
"""

from collections.abc import Mapping

from kubewright.api.karpenter import NodePool
from kubewright.controllers.actor import Actor
from kubewright.disruption.commands import Command
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.reasons import Reason
from kubewright.disruption.stays import Because
from kubewright.lifecycle import claims, state
from kubewright.lifecycle.disrupted import policy_label
from kubewright.lifecycle.effects import Count, EventKind, Publish
from kubewright.solver.problem import Snapshot

BALANCED = "Balanced"


async def tell(actor: Actor, found: Decisions, snapshot: Snapshot, balance: float) -> None:
    """Tell the verdicts of one look; of a look without a search there are none. `balance` is the k of Balanced pools."""
    if not found.steps:
        return
    pools = {p.node_pool.name: p.node_pool for p in snapshot.pools}
    for command in found.commands:
        if command.reason is Reason.UNDERUTILIZED:
            for name in sorted({c.pool.name for c in command.candidates}):
                await _weighed(actor, pools[name], command.facts, "approved")
            _approve(actor, command, balance)
    for known in snapshot.nodes:
        for stay in found.stays.get(state.name(known), ()):
            pool = pools.get(claims.pool_of(known.claim)) if known.claim is not None else None
            if stay.because is Because.UNBALANCED and pool is not None:
                await _weighed(actor, pool, stay.facts, "rejected")


async def _weighed(actor: Actor, pool: NodePool, facts: Mapping[str, str], decision: str) -> None:
    policy = pool.spec.disruption.consolidation_policy
    labelled = {"decision": decision, "nodepool": pool.name, "policy": policy_label(policy)}
    await actor.act((Count("consolidation_moves_total", labelled),))
    if policy == BALANCED and "score" in facts:
        actor.observe("consolidation_score", float(facts["score"]), labelled)


def _approve(actor: Actor, command: Command, balance: float) -> None:
    """On the NodePools of a move of several nodes, on the node of a move of one."""
    balanced = [c for c in command.candidates if c.pool.spec.disruption.consolidation_policy == BALANCED]
    facts = command.facts
    text = (
        f"approved: score {facts.get('score', '')} of at least {facts.get('threshold', '')} (k={balance:g}),"
        f" saves ${command.savings_usd_per_hour:.2f}/h"
    )
    several = len(command.candidates) > 1
    for one in balanced:
        for about in (one.pool,) if several else (one.known.node, one.claim):
            if about is not None:
                told = Publish(about, EventKind.NORMAL, "ConsolidationApproved", text, (about.metadata.uid, text))
                actor.publish(told)
