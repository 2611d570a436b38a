"""Second thoughts: whether a command still holds, just before it is begun.

Source: spec/disruption 3.10. Differs on purpose: the command is carried out as it would be found now, not as it was.
"""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubewright.disruption import budgets, consolidation, emptiness
from kubewright.disruption.candidates import Candidate, candidates
from kubewright.disruption.commands import Command
from kubewright.disruption.confirm import confirmed
from kubewright.disruption.decisions import still
from kubewright.disruption.drift import is_drifted
from kubewright.disruption.memory import Memory
from kubewright.disruption.offers import Shop
from kubewright.disruption.reasons import Class, Reason
from kubewright.disruption.search import Group
from kubewright.disruption.simulation import Simulation
from kubewright.disruption.stays import Stay
from kubewright.settings import Settings
from kubewright.solver.problem import Snapshot, SolverSettings
from kubewright.solver.select import solver_settings


class Rejected(msgspec.Struct, frozen=True):
    """The command is not begun; it may be found again."""

    category: str
    """"budget", "scheduling", "churn" or "unknown", as in events and metrics."""
    text: str
    nodes: tuple[str, ...] = ()
    """Whom it is about, by name."""


def validate(
    command: Command, snapshot: Snapshot, settings: Settings, now: datetime, memory: Memory, solver: SolverSettings | None = None
) -> Command | Rejected:
    """The command as it is to be carried out, which may have fewer nodes if it only removes empty ones.

    `memory.queued` may hold the command's own candidates.
    """
    solver = solver or solver_settings(settings)
    snapshot = snapshot if snapshot.now == now else replace(snapshot, now=now)
    everywhere = still(snapshot, settings)
    names = tuple(c.name for c in command.candidates)
    if everywhere is not None:
        return Rejected("unknown", everywhere.text, names)
    mine = {c.provider_id for c in command.candidates}
    queued = memory.queued - mine
    how = Class.EVENTUAL if command.reason is Reason.DRIFTED else Class.GRACEFUL
    judged = candidates(snapshot, how, queued | (memory.resting - mine), settings.disruption)
    found = {c.provider_id: c for c in judged.found if c.provider_id in mine and _is_still_wanted(c, command)}
    used = budgets.usage(snapshot.nodes, queued)
    left = budgets.remaining((p.node_pool for p in snapshot.pools), used, command.reason, now)
    if command.reason is Reason.EMPTY:
        going, held = emptiness.admit(tuple(found.values()), left)
        if not going:
            return Rejected("budget" if held else "churn", "no node of it is empty and allowed to go any more", names)
        return replace(command, candidates=going)
    lost = tuple(c.name for c in command.candidates if c.provider_id not in found)
    if lost and (command.replacements or not found):
        return Rejected("churn", f"no longer a candidate: {', '.join(lost)}", lost)
    # Where nothing is bought each node goes for itself: one that is needed after all does not hold the others.
    fresh = tuple(found[c.provider_id] for c in command.candidates if c.provider_id in found)
    room = dict(left.left)
    for one in fresh:
        room[one.pool.name] = room.get(one.pool.name, 0) - 1
        if room[one.pool.name] < 0:
            return Rejected("budget", left.stay(one.pool).text, (one.name,))
    simulation = Simulation(snapshot, solver, queued)
    if command.reason is Reason.DRIFTED:
        return _drifted(command, fresh, simulation)
    return _consolidated(command, fresh, simulation, settings)


def _is_still_wanted(candidate: Candidate, command: Command) -> bool:
    if command.reason is Reason.EMPTY:
        return emptiness.should_disrupt(candidate)
    if command.reason is Reason.DRIFTED:
        return is_drifted(candidate)
    return consolidation.ineligible(candidate) is None


def _drifted(command: Command, fresh: tuple[Candidate, ...], simulation: Simulation) -> Command | Rejected:
    if "static" in command.facts:
        return replace(command, candidates=fresh)
    outcome = simulation.without(fresh)
    names = tuple(c.name for c in fresh)
    if outcome.unplaced:
        return Rejected("scheduling", f"not all pods would schedule, {min(outcome.unplaced)} has no other home", names)
    if outcome.waits_for:
        return Rejected("scheduling", f"pods would go to nodes that are not ready yet ({' '.join(outcome.waits_for)})", names)
    return replace(command, candidates=fresh, replacements=outcome.claims, destinations=outcome.destinations)


def _consolidated(
    command: Command, fresh: tuple[Candidate, ...], simulation: Simulation, settings: Settings
) -> Command | Rejected:
    """The scheduler is asked again, and the saving weighed again, with the prices of now."""
    (answer,) = confirmed(simulation, [Group(tuple(simulation.refreshed(fresh)))])
    names = tuple(c.name for c in fresh)
    if answer.unplaced:
        return Rejected("scheduling", f"not all pods would schedule, {min(answer.unplaced)} has no other home", names)
    waits = simulation.not_ready(answer.destinations)
    if waits:
        return Rejected("scheduling", f"pods would go to nodes that are not ready yet ({' '.join(waits)})", names)
    worth = simulation.worth(settings.disruption)
    bought = consolidation.offered(answer.claims, fresh, Shop(simulation.snapshot.pools, simulation.settings), worth)
    if isinstance(bought, Stay):
        return Rejected("scheduling", bought.text, names)
    stay = consolidation.not_worth(fresh, bought, worth)
    if stay is not None:
        return Rejected("scheduling", stay.text, names)
    return replace(command, candidates=fresh, replacements=bought, destinations=answer.destinations)
