"""The search for nodes to take away: any set of them, over all pools at once, on one board. Ends when its steps do.

First nodes whose pods fit elsewhere, in the order of what they cost per disturbance. Then groups of nodes whose pods fit
together on one cheaper machine, beginning with those that waste most; every group works on what the ones before left, so that
many nodes give way to several machines. It is a proposal: the exact scheduler confirms it (see `consolidation`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubewright.api import labels
from kubewright.disruption.bins import Bin, Market
from kubewright.disruption.board import Board
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.guarded import Guards
from kubewright.disruption.stays import Because, Stay
from kubewright.disruption.worth import Worth

PARTNERS = 16
"""Nodes that are tried as further members of a group."""
MISSES = 6
"""Nodes in a row that did not fit, after which a group is as large as it gets."""
_CENT = 1e-9


class Group(msgspec.Struct, frozen=True):
    """Nodes that go together."""

    going: tuple[Candidate, ...]
    usd_per_hour: float = 0.0
    """What is expected to be bought for them."""


class Proposal(msgspec.Struct, frozen=True):
    groups: tuple[Group, ...] = ()
    stays: Mapping[str, Stay] = {}
    """Node → why nothing was found for it."""
    unreached: tuple[str, ...] = ()
    steps: int = 0


class Search:
    """One search. Use once."""

    def __init__(
        self, board: Board, going: Sequence[Candidate], left: Budgets, guards: Guards, worth: Worth, *, spot: bool, steps: int
    ) -> None:
        """`going` in the order in which they are tried; `spot` is whether spot machines may give way to spot machines."""
        self._board = board
        self._market = Market(board)
        self._going = going
        self._budgets = left
        self._room = dict(left.left)
        self._guards = guards
        self._worth = worth
        self._spot = spot
        self._steps = steps
        self._gone: set[str] = set()
        self._stays: dict[str, Stay] = {}
        self._unreached: list[str] = []

    def run(self) -> Proposal:
        groups: list[Group] = []
        for one in self._going:
            if self._out_of_steps():
                self._unreached.append(one.name)
            elif self._may_go(one) and self._fits_elsewhere(one):
                self._go(one)
                groups.append(Group((one,)))
        late = set(self._unreached)
        rest = self._wasteful()
        while rest:
            seed = rest.pop(0)
            if self._out_of_steps():
                if seed.name not in late:
                    self._unreached.append(seed.name)
            elif self._may_go(seed):
                group = self._group(seed, rest)
                if group is not None:
                    groups.append(group)
                    rest = [one for one in rest if one.provider_id not in self._gone] if len(group.going) > 1 else rest
        going = {c.name for group in groups for c in group.going}
        stays = {name: stay for name, stay in self._stays.items() if name not in going}
        return Proposal(tuple(groups), stays, tuple(self._unreached), self._board.steps)

    def _out_of_steps(self) -> bool:
        return self._board.steps >= self._steps

    def _may_go(self, one: Candidate) -> bool:
        """Whether budgets of nodes and of pods leave room for one more."""
        if self._room.get(one.pool.name, 0) <= 0:
            self._stays[one.name] = self._budgets.stay(one.pool)
            return False
        guard = self._guards.blocking(one)
        if guard:
            text = f"PodDisruptionBudget {guard} lets other nodes' pods go first"
            self._stays[one.name] = Stay(Because.PDB, text, {"pdb": guard})
            return False
        return True

    def _go(self, *those: Candidate) -> None:
        self._board.keep()
        for one in those:
            self._gone.add(one.provider_id)

    def _take(self, one: Candidate) -> None:
        self._room[one.pool.name] -= 1
        self._guards.take(one)

    def _give(self, one: Candidate) -> None:
        self._room[one.pool.name] += 1
        self._guards.give(one)

    def _fits_elsewhere(self, one: Candidate) -> bool:
        board = self._board
        verdict = self._worth.judge((one,), one.usd_per_hour)
        if not verdict.is_worth_it and one.usd_per_hour > 0:
            self._stays[one.name] = unbalanced(one.usd_per_hour, verdict.score, verdict.threshold)
            return False
        mark = board.mark()
        left = board.take_away(board.at[one.provider_id])
        if not left:
            self._take(one)
            return True
        board.undo(mark)
        index = min(left)
        pod = board.classes[index].pods[0].key
        text = f"{sum(left.values())} of its {len(one.movers)} pods would have no other home, such as those like {pod}"
        self._stays[one.name] = Stay(Because.NO_HOME, text, {"pod": pod, "pods": str(sum(left.values()))})
        return False

    def _wasteful(self) -> list[Candidate]:
        """Who is left and costs more than its pods' share of the best machine for them, what is gained per disturbance first."""
        board = self._board
        found: list[tuple[float, float, str, Candidate]] = []
        for one in self._going:
            if one.provider_id in self._gone or one.usd_per_hour <= 0 or self._out_of_steps():
                continue
            board.steps += 1
            wanted = board.requests_of(board.content[board.at[one.provider_id]])
            gain = one.usd_per_hour - self._market.fraction(wanted)
            if gain > _CENT and self._worth.judge((one,), gain).is_worth_it:
                found.append((-gain / one.disturbance, *one.age_key, one))
        found.sort(key=lambda f: f[:3])
        return [one for *_, one in found]

    def _group(self, seed: Candidate, others: Sequence[Candidate]) -> Group | None:
        """The seed and whoever shares one machine with it, if that machine is cheaper than they are and worth it."""
        board = self._board
        if not self._spot and seed.capacity_type == labels.SPOT:
            self._stays[seed.name] = SPOT_TO_SPOT
            return None
        mark = board.mark()
        left = board.take_away(board.at[seed.provider_id])
        bought = self._market.open(left, spot=True) if left else None
        if left and bought is None:
            board.undo(mark)
            return None
        self._take(seed)
        members = [seed]
        usd = 0.0 if bought is None else bought.usd_per_hour
        if bought is not None:
            members, bought = self._with_partners(members, bought, others)
            usd = bought.usd_per_hour
        saving = sum(c.usd_per_hour for c in members) - usd
        verdict = self._worth.judge(members, saving)
        same = bought is not None and any(bought.is_like(c.instance_type, c.zone, c.capacity_type) for c in members)
        if verdict.is_worth_it and not same:
            self._go(*members)
            return Group(tuple(members), usd)
        board.undo(mark)
        for one in members:
            self._give(one)
        if saving > _CENT and not same:
            self._stays[seed.name] = unbalanced(saving, verdict.score, verdict.threshold)
        else:
            self._stays[seed.name] = dearer(seed, usd if len(members) == 1 else None)
        return None

    def _with_partners(self, members: list[Candidate], bought: Bin, others: Sequence[Candidate]) -> tuple[list[Candidate], Bin]:
        board = self._board
        tried = misses = 0
        for other in others:
            if tried >= PARTNERS or misses >= MISSES or self._out_of_steps():
                break
            if not self._may_go(other):
                continue
            tried += 1
            mark = board.mark()
            left = board.take_away(board.at[other.provider_id])
            more = bought.with_more(left)
            gain = other.usd_per_hour - (more.usd_per_hour - bought.usd_per_hour) if more is not None else 0.0
            if more is None or not self._worth.judge((other,), gain).is_worth_it:
                board.undo(mark)
                misses += 1
                continue
            misses = 0
            self._take(other)
            members.append(other)
            bought = more
        return members, bought


SPOT_TO_SPOT = Stay(
    Because.SPOT_TO_SPOT,
    "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
    {"gate": "SpotToSpotConsolidation"},
)


def unbalanced(saving: float, score: float, threshold: float) -> Stay:
    text = (
        f"moving its pods would save ${saving:.4f}/h, which is not worth the disturbance (score {score:.2f} of {threshold:.2f})"
    )
    facts = {"saves_usd_per_hour": f"{saving:.6f}", "score": f"{score:.4f}", "threshold": f"{threshold:.4f}"}
    return Stay(Because.UNBALANCED, text, facts)


def dearer(one: Candidate, usd: float | None) -> Stay:
    """Nothing cheaper: Karpenter's words, and the figures."""
    facts = {"usd_per_hour": f"{one.usd_per_hour:.6f}"}
    if usd is None:
        return Stay(Because.NOT_CHEAPER, "Can't replace with a cheaper node", facts)
    facts["replacement_usd_per_hour"] = f"{usd:.6f}"
    text = f"Can't replace with a cheaper node: it costs ${one.usd_per_hour:.4f}/h, one for its pods ${usd:.4f}/h"
    return Stay(Because.NOT_CHEAPER, text, facts)
