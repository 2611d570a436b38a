"""Drift: nodes that are not any more what their NodePool would buy go, each once its pods have a home.

Source: spec/disruption 3.4, 3.5. Differs on purpose: as many as the budgets allow at once, each with replacements of its own; a
pool at its limits still drifts, since outgoing nodes are credited up to a surge; a pool whose machines do not join stops.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from kubewright.api.karpenter import NodePool
from kubewright.api.meta import find_condition
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import BLOCKED, Candidate
from kubewright.disruption.commands import Command
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Class, Reason
from kubewright.disruption.simulation import Move, Outcome, Simulation
from kubewright.disruption.static import template_claim
from kubewright.disruption.stays import Because, Stay
from kubewright.disruption.surge import Surge
from kubewright.lifecycle import claims, state
from kubewright.lifecycle.pools import REGISTRATION_HEALTHY
from kubewright.settings import DisruptionSettings

REASON = Reason.DRIFTED
CLASS = Class.EVENTUAL
TYPE = ""
MOST_AT_ONCE = 8
"""Simulations of one look, so that it ends; the next look goes on from there."""
PROBE_AFTER = timedelta(hours=1)
_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Drifted(msgspec.Struct, frozen=True):
    commands: tuple[Command, ...] = ()
    stays: Mapping[str, Stay] = {}
    """Node → why it has to wait."""
    eligible: int = 0
    unreached: tuple[str, ...] = ()
    """Nodes that this look had no simulation left for."""


def is_drifted(candidate: Candidate) -> bool:
    return claims.is_set(candidate.claim, claims.DRIFTED)


def find(
    wanted: Sequence[Candidate], left: Budgets, simulation: Simulation, settings: DisruptionSettings, memory: Memory
) -> Drifted:
    """Commands for drifted nodes of `wanted`: those that a former look did not reach first, then empty ones, then by first drift.

    `left` are the budgets for drift.
    """
    drifted = [c for c in wanted if is_drifted(c)]
    room = dict(left.left)
    surge = Surge(simulation.snapshot, memory.queued, settings.surge)
    commands: list[Command] = []
    stays: dict[str, Stay] = {}
    unreached: list[str] = []
    asked = 0
    starved = frozenset(memory.unreached)
    for one in sorted(drifted, key=lambda c: (c.name not in starved, *_order(c))):
        pool = one.pool
        stay = _broken(pool, memory, settings, simulation, commands) or _no_budget(one, left, room) or _expected(one, commands)
        if stay is None and pool.spec.replicas is not None:
            found = _static(one, simulation, surge)
        elif stay is None:
            if asked >= MOST_AT_ONCE:
                unreached.append(one.name)
                stays[one.name] = Stay(Because.UNREACHED, "drifted nodes before it were looked at first", event="")
                continue
            asked += bool(one.movers)
            full = simulation.refreshed([one])[0]
            found = _replaced(one, full, simulation, surge)
        else:
            found = stay
        if isinstance(found, Stay):
            stays[one.name] = found
            continue
        room[pool.name] -= 1
        commands.append(found)
        if pool.spec.replicas is None:
            # The next one finds the room as this one leaves it, and takes along what this one puts on it.
            simulation = simulation.after([Move((full,), found.replacements, found.destinations)])
    return Drifted(tuple(commands), stays, len(drifted), tuple(unreached))


def broken(pool: NodePool, memory: Memory, settings: DisruptionSettings, now: datetime) -> Stay | None:
    """The circuit breaker: a pool whose new machines do not join must not lose the old ones to them.

    An hour after its machines began to fail it may try again, or nobody would ever learn that they have recovered.
    """
    failed = memory.failed_joins.get(pool.name, 0)
    health = find_condition(pool.status.conditions, REGISTRATION_HEALTHY)
    unhealthy = health is not None and health.status == "False"
    if failed < settings.failed_joins and not unhealthy:
        return None
    since = health.last_transition_time if health is not None and unhealthy else None
    again = None if since is None else since + PROBE_AFTER
    if again is not None and again <= now:
        return None
    told = f"{failed} machine(s) in a row" if failed >= settings.failed_joins else "recent machines"
    text = f"NodePool {pool.name} does not drift: {told} of it did not join the cluster"
    facts = {"nodepool": pool.name, "failed": str(failed)}
    return Stay(Because.BREAKER, text, facts if again is None else {**facts, "due": again.isoformat()}, BLOCKED)


def _broken(
    pool: NodePool, memory: Memory, settings: DisruptionSettings, simulation: Simulation, commands: Sequence[Command]
) -> Stay | None:
    """As `broken`; a pool that tries again tries with one machine."""
    stay = broken(pool, memory, settings, simulation.snapshot.now)
    if stay is not None or broken(pool, memory, settings, _ALWAYS) is None:
        return stay
    known = simulation.snapshot.nodes
    going = any(
        n.claim is not None
        and claims.pool_of(n.claim) == pool.name
        and (n.marked_for_deletion or state.provider_id(n) in memory.queued or not state.is_initialized(n))
        for n in known
    )
    if not going and not any(c.pool.name == pool.name for command in commands for c in command.candidates):
        return None
    text = f"NodePool {pool.name} tries with one machine whether they join again"
    return Stay(Because.BREAKER, text, {"nodepool": pool.name}, event="")


def _order(candidate: Candidate) -> tuple[bool, datetime, float, str]:
    since = claims.since(candidate.claim, claims.DRIFTED) or _ALWAYS
    return (bool(candidate.reschedulable), since, *candidate.age_key)


def _no_budget(one: Candidate, left: Budgets, room: Mapping[str, int]) -> Stay | None:
    return None if room.get(one.pool.name, 0) > 0 else left.stay(one.pool)


def _expected(one: Candidate, commands: Sequence[Command]) -> Stay | None:
    """A node that takes the pods of another one stays until they have come: closed at once, it leaves them without a home."""
    if not any(one.name in command.destinations for command in commands):
        return None
    return Stay(Because.WAITING, "pods of another drifted node are expected on it", event="")


def _replaced(one: Candidate, full: Candidate, simulation: Simulation, surge: Surge) -> Command | Stay:
    """`full` is the candidate with the pods that commands before it will put on it."""
    outcome = simulation.without([full]) if full.movers else Outcome()
    if outcome.unplaced:
        pod = min(outcome.unplaced)
        text = f"Not all pods would schedule, {pod} has no other home"
        return Stay(Because.NO_HOME, text, {"pod": pod, "pods": str(len(outcome.unplaced))}, BLOCKED)
    if outcome.waits_for:
        waits = " ".join(outcome.waits_for)
        return Stay(Because.WAITING, f"its pods would go to nodes that are not ready yet ({waits})", {"nodes": waits}, BLOCKED)
    over = surge.take(outcome.claims, one)
    if over is not None:
        return over
    return Command(
        REASON,
        (one,),
        simulation.snapshot.now,
        TYPE,
        outcome.claims,
        outcome.destinations,
        one.disturbance,
        facts={"drift": reason_of(one)},
    )


def _static(one: Candidate, simulation: Simulation, surge: Surge) -> Command | Stay:
    """A static node is replaced by another of its template, whatever runs on it."""
    pool = next(p for p in simulation.snapshot.pools if p.node_pool.name == one.pool.name)
    wanted = one.pool.spec.replicas or 0
    mine = sum(1 for n in simulation.snapshot.nodes if n.claim is not None and claims.pool_of(n.claim) == one.pool.name)
    if mine - surge.going(one.pool.name) > wanted:
        text = f"NodePool {one.pool.name} has more than its {wanted} node(s); it shrinks before it drifts"
        return Stay(Because.STATIC, text, {"nodepool": one.pool.name}, BLOCKED)
    claim = template_claim(pool, simulation.problem(()))
    if isinstance(claim, str):
        return Stay(Because.NO_HOME, claim, {"nodepool": one.pool.name}, BLOCKED)
    over = surge.take((claim,), one)
    if over is not None:
        return over
    facts = {"drift": reason_of(one), "static": "true"}
    return Command(REASON, (one,), simulation.snapshot.now, TYPE, (claim,), {}, one.disturbance, facts=facts)


def reason_of(candidate: Candidate) -> str:
    """Why it has drifted, as its condition says."""
    return next((c.reason for c in candidate.claim.status.conditions if c.type == claims.DRIFTED), "")
