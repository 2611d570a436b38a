"""Consolidation: fewer or cheaper machines for the same pods, as far as that is worth the disturbance.

A search proposes, the exact scheduler confirms, and the same is asked again of the cluster as it would then be, until nothing is
found: what comes out is a fixed point. Source: spec/disruption 3.6 to 3.9, 4; differs on purpose as the modules it uses say.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from kubewright.api import duration, labels
from kubewright.disruption.board import Board
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.commands import VALIDATION_DELAY, Command
from kubewright.disruption.confirm import Confirmed, confirmed
from kubewright.disruption.consolidatable import quiet_since
from kubewright.disruption.guarded import Guards
from kubewright.disruption.memory import Memory
from kubewright.disruption.offers import Going, Shop
from kubewright.disruption.reasons import Class, Reason
from kubewright.disruption.search import MOST_TOGETHER, Group, Search, unbalanced
from kubewright.disruption.simulation import Move, Simulation
from kubewright.disruption.stays import Because, Stay
from kubewright.disruption.surge import Surge
from kubewright.disruption.worth import Worth
from kubewright.lifecycle import claims
from kubewright.settings import DisruptionSettings
from kubewright.solver.problem import PlannedClaim

REASON = Reason.UNDERUTILIZED
CLASS = Class.GRACEFUL
SINGLE, MULTI = "single", "multi"
TRIES = 2
"""How often the exact scheduler is asked about what is left of a proposal."""
ROUNDS = 8
WHEN_EMPTY = "WhenEmpty"
_CENT = 1e-9


class Consolidated(msgspec.Struct, frozen=True):
    commands: tuple[Command, ...] = ()
    stays: Mapping[str, Stay] = {}
    eligible: int = 0
    unreached: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    """Nodes that are next in line, by name."""
    steps: int = 0


def ineligible(one: Candidate) -> Stay | None:
    """Why consolidation leaves a candidate alone; None if it may move it. Source: spec/disruption 3.6."""
    disruption = one.pool.spec.disruption
    if one.pool.spec.replicas is not None:
        return Stay(Because.STATIC, f"NodePool {one.pool.name} is static", {"nodepool": one.pool.name}, "")
    for key, value in (
        (labels.INSTANCE_TYPE, one.instance_type if one.is_type_known else ""),
        (labels.CAPACITY_TYPE, one.capacity_type),
        (labels.ZONE, one.zone),
    ):
        if not value:
            return Stay(Because.UNKNOWN_MACHINE, f'Node doesn\'t have a known value for "{key}"', {"label": key})
    after = duration.parse_nillable(disruption.consolidate_after)
    if after is None:
        return Stay(Because.NEVER, f'NodePool "{one.pool.name}" has consolidation disabled', {"nodepool": one.pool.name})
    if one.is_empty and one.known.virtual_pods:
        return Stay(Because.BUFFER, "it holds room for a CapacityBuffer", {"pods": str(one.known.virtual_pods)})
    if one.is_empty:
        return Stay(Because.NOT_QUIET, "it is empty", {}, "")
    if disruption.consolidation_policy == WHEN_EMPTY:
        text = f'NodePool "{one.pool.name}" has non-empty consolidation disabled'
        return Stay(Because.POLICY, text, {"nodepool": one.pool.name})
    if not claims.is_set(one.claim, claims.CONSOLIDATABLE):
        return _not_quiet(one, after)
    return None


def _not_quiet(one: Candidate, after: timedelta) -> Stay:
    since = quiet_since(one.claim)
    facts = {"nodepool": one.pool.name}
    if since is not None:
        facts["due"] = (since + after).isoformat()
    return Stay(Because.NOT_QUIET, f"pods came or went less than {one.pool.spec.disruption.consolidate_after} ago", facts, "")


def find(
    wanted: Sequence[Candidate], left: Budgets, simulation: Simulation, settings: DisruptionSettings, memory: Memory
) -> Consolidated:
    """Commands that together leave nothing more to gain, as far as budgets and steps reach."""
    stays: dict[str, Stay] = {}
    chosen: list[Candidate] = []
    for one in wanted:
        stay = ineligible(one)
        if stay is None:
            chosen.append(one)
        else:
            stays[one.name] = stay
    if not chosen:
        return Consolidated((), stays)
    look = _Look(simulation, chosen, left, settings, memory)
    look.run()
    stays.update(look.stays)
    for command in look.commands:
        for one in command.candidates:
            stays.pop(one.name, None)
    return Consolidated(tuple(look.commands), stays, len(chosen), look.unreached, look.soon, look.steps)


Answer = tuple[Confirmed, tuple[PlannedClaim, ...]]
"""A group as the scheduler sees it, and what is to be bought for it."""


class _Look:
    """One look: rounds of search and confirmation, each on the cluster as the one before would leave it."""

    def __init__(
        self,
        simulation: Simulation,
        chosen: Sequence[Candidate],
        left: Budgets,
        settings: DisruptionSettings,
        memory: Memory,
    ) -> None:
        self._first = self._simulation = simulation
        self._settings = settings
        self._starved = frozenset(memory.unreached)
        # What the background put on them moves with them, buffers' pods for example.
        self._candidates = simulation.refreshed(chosen)
        self._as_they_are = {c.provider_id: c for c in chosen}
        self._left = left
        self._guards = Guards(simulation.snapshot, chosen)
        self._worth = simulation.worth(settings)
        self._shop = Shop(simulation.snapshot.pools, simulation.settings)
        self._surge = Surge(simulation.snapshot, memory.queued, settings.surge)
        self.commands: list[Command] = []
        self.stays: dict[str, Stay] = {}
        self.unreached: tuple[str, ...] = ()
        self.soon: tuple[str, ...] = ()
        self.steps = 0

    def run(self) -> None:
        self._rounds()
        self._together()

    def _rounds(self) -> None:
        for _ in range(ROUNDS):
            done = self._round()
            if not done or self.unreached:
                return
            gone = {c.provider_id for command in done for c in command.candidates}
            full = {c.provider_id: c for c in self._candidates if c.provider_id in gone}
            self._simulation = self._simulation.after(
                [Move(tuple(full[c.provider_id] for c in d.candidates), d.replacements, d.destinations) for d in done]
            )
            # Shares are those of what is left, as a look afterwards would find them.
            self._worth = self._simulation.worth(self._settings)
            self._candidates = self._simulation.refreshed([c for c in self._candidates if c.provider_id not in gone])
            if not self._candidates:
                return

    def _round(self) -> list[Command]:
        order = sorted(self._candidates, key=self._order)
        board = Board(self._simulation, order)
        gates = self._simulation.settings.feature_gates
        self.steps += board.cost
        search = Search(
            board,
            order,
            self._left,
            self._guards,
            self._worth,
            spot=gates.spot_to_spot_consolidation,
            steps=max(0, self._settings.search_steps - self.steps),
            starved=self._starved,
            steering=self._settings.steering,
        )
        found = search.run()
        self.steps += found.steps
        self.stays.update(found.stays)
        self.unreached, self.soon = found.unreached, found.soon
        groups = list(found.groups)
        for tries in range(1, TRIES + 1):
            if not groups:
                return []
            answers = confirmed(self._simulation, groups)
            self.steps += board.cost
            weighed = [(a, self._weighed(a)) for a in answers]
            failed = {id(g): found for a, found in weighed if isinstance(found, Stay) for g in a.parts}
            fine = [(a, found) for a, found in weighed if not isinstance(found, Stay)]
            if not failed:
                return self._carried_out(fine)
            for group in groups:
                if (stay := failed.get(id(group))) is not None:
                    for one in group.going:
                        self.stays[one.name] = stay
                        self._guards.give(one)
            if tries == TRIES:
                # Without those that fail there is more room, not less; and each command is judged again before it is begun.
                return self._carried_out(fine)
            groups = [g for g in groups if id(g) not in failed]
        return []

    def _together(self) -> None:
        """If few nodes buy several machines, perhaps in several rounds, see whether all their pods as one need less."""
        buying = [c for c in self.commands if c.replacements]
        going = tuple(one for c in buying for one in c.candidates)
        if len(buying) < 2 or len(going) > MOST_TOGETHER:
            return
        plain = [Group((one,)) for c in self.commands if not c.replacements for one in c.candidates]
        self._simulation, self._worth = self._first, self._first.worth(self._settings)
        *others, as_one = confirmed(self._simulation, [*plain, Group(going)])
        bought = self._weighed(as_one)
        before = sum(r.usd_per_hour for c in buying for r in c.replacements)
        if isinstance(bought, Stay) or as_one.group.going != going or any(a.unplaced for a in others):
            return
        if sum(b.usd_per_hour for b in bought) < before - _CENT:
            self.commands = [self._command([one for a in others for one in a.group.going], (), others)] if others else []
            self.commands.append(self._command(going, bought, [as_one]))

    def _order(self, one: Candidate) -> tuple[bool, float, float, str]:
        """Those whom a former search did not reach, then by what they cost per disturbance; older ones first among equals."""
        return (one.name not in self._starved, -one.usd_per_hour / one.disturbance, *one.age_key)

    def _weighed(self, answer: Confirmed) -> tuple[PlannedClaim, ...] | Stay:
        """What is to be bought for a group, or why it cannot be carried out as the scheduler sees it."""
        if answer.unplaced:
            pod = min(answer.unplaced)
            text = f"Not all pods would schedule, {pod} has no other home"
            return Stay(Because.NO_HOME, text, {"pod": pod, "pods": str(len(answer.unplaced))})
        waits = self._simulation.not_ready(answer.destinations)
        if waits:
            listed = " ".join(waits)
            return Stay(Because.WAITING, f"its pods would go to nodes that are not ready yet ({listed})", {"nodes": listed})
        bought = offered(answer.claims, answer.group.going, self._shop, self._worth)
        if isinstance(bought, Stay):
            return bought
        return not_worth(answer.group.going, bought, self._worth) or bought

    def _carried_out(self, answers: Sequence[Answer]) -> list[Command]:
        found: list[Command] = []
        plain = [a for a, bought in answers if not bought]
        if plain:
            found.append(self._command([c for a in plain for c in a.group.going], (), plain))
        for answer, bought in answers:
            if bought:
                over = self._surge.take(bought, answer.group.going[0])
                if over is None:
                    found.append(self._command(answer.group.going, bought, [answer]))
                    continue
                for one in answer.group.going:
                    self.stays[one.name] = over
                    self._guards.give(one)
        room = dict(self._left.left)
        for command in found:
            for one in command.candidates:
                room[one.pool.name] -= 1
        self._left = replace(self._left, left=room)
        self.commands += found
        return found

    def _command(self, going: Sequence[Candidate], bought: tuple[PlannedClaim, ...], answers: Sequence[Confirmed]) -> Command:
        there: dict[str, list[str]] = {}
        for answer in answers:
            for node, keys in answer.destinations.items():
                there.setdefault(node, []).extend(keys)
        saving = sum(c.usd_per_hour for c in going) - sum(b.usd_per_hour for b in bought)
        verdict = self._worth.judge(going, saving)
        return Command(
            REASON,
            tuple(sorted((self._as_they_are[c.provider_id] for c in going), key=lambda c: c.name)),
            self._simulation.snapshot.now,
            SINGLE if len(going) == 1 else MULTI,
            bought,
            {node: tuple(sorted(keys)) for node, keys in sorted(there.items())},
            sum(c.disturbance for c in going),
            VALIDATION_DELAY,
            {
                "score": f"{verdict.score:.4f}",
                "threshold": f"{verdict.threshold:.4f}",
                "saves_usd_per_hour": f"{saving:.6f}",
            },
        )


def offered(
    bought: Sequence[PlannedClaim], going: Sequence[Candidate], shop: Shop, worth: Worth
) -> tuple[PlannedClaim, ...] | Stay:
    """The claims with those types only with which the move is worth it wherever they are launched."""
    affordable = sum(c.usd_per_hour for c in going) - worth.needed(going)
    planned = sum(b.usd_per_hour for b in bought)
    gone = Going(going)
    found: list[PlannedClaim] = []
    for claim in bought:
        most = affordable * claim.usd_per_hour / planned if planned > 0 else affordable / len(bought)
        one = shop.narrowed(claim, most, gone)
        if isinstance(one, Stay):
            return one
        found.append(one)
    return tuple(found)


def not_worth(going: Sequence[Candidate], bought: Sequence[PlannedClaim], worth: Worth) -> Stay | None:
    """Why the move is not worth it with these prices; None if it is. Removing what costs nothing is not weighed."""
    source = sum(c.usd_per_hour for c in going)
    saving = source - sum(b.usd_per_hour for b in bought)
    if not bought and source <= 0:
        return None
    verdict = worth.judge(going, saving)
    return None if verdict.is_worth_it else unbalanced(saving, verdict.score, verdict.threshold)
