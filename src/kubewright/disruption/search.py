"""The search for nodes to take away: any set of them, over all pools at once, on one board. Ends when its steps do.

A node whose pods fit elsewhere just goes. Others go in groups whose pods fit together on one cheaper machine, each built around a
node that wastes much. Every step works on what the ones before left, so that many nodes give way to several machines, and
what gains most per disturbance comes first. It is a proposal: the exact scheduler confirms it (see `consolidation`).
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from kubewright.api import labels
from kubewright.disruption.bins import Bin, Market
from kubewright.disruption.board import Board, Content
from kubewright.disruption.budgets import Budgets
from kubewright.disruption.candidates import Candidate
from kubewright.disruption.guarded import Guards
from kubewright.disruption.stays import Because, Stay
from kubewright.disruption.worth import Worth

PARTNERS = 16
"""Nodes that are tried as further members of a group."""
OPEN = 8
"""Machines to be bought, the last ones, that are offered to those whose pods fit nowhere else."""
MISSES = 6
"""Nodes in a row that did not fit, after which a group is as large as it gets."""
MOST_TOGETHER = 16
"""Nodes that one command may have if something is bought for it: it waits for all, and is taken back as a whole."""
MOST_SOON = 100
"""Nodes that are told to be next in line."""
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
    soon: tuple[str, ...] = ()
    """Nodes that would go too if budgets allowed more now, by name."""
    steps: int = 0


class Search:
    """One search. Use once."""

    def __init__(
        self,
        board: Board,
        going: Sequence[Candidate],
        left: Budgets,
        guards: Guards,
        worth: Worth,
        *,
        spot: bool,
        steps: int,
        starved: Collection[str] = (),
        steering: bool = False,
    ) -> None:
        """`spot` is whether spot machines may give way to spot machines; `starved` are names of nodes to begin with."""
        self._board = board
        self._market = Market(board)
        self._going = going
        self._budgets = left
        self._room = dict(left.left)
        self._guards = guards
        self._worth = worth
        self._spot = spot
        self._steps = steps
        self._starved = frozenset(starved)
        self._steering = steering
        self._held: list[Candidate] = []
        """Those whom only a budget of their pool holds back."""
        self._groups = Groups()
        self._bins: list[tuple[Bin, tuple[Candidate, ...], int]] = []
        """Machines to be bought: whose pods they hold, and the number of their group."""
        self._gone: set[str] = set()
        self._wasted: dict[str, float] = {}
        """ProviderID → what it costs beyond its pods' share, for those that fit nowhere else."""
        self._by_waste: list[Candidate] = []
        self._known_waste = 0
        self._stays: dict[str, Stay] = {}

    def run(self) -> Proposal:
        """Whoever gains most per disturbance is tried first: by going without a replacement, and failing that with one."""
        waiting = [(self._key(one, one.usd_per_hour), False, one) for one in self._going]
        heapq.heapify(waiting)
        late: dict[str, None] = {}
        while waiting:
            _, replace, one = heapq.heappop(waiting)
            if one.provider_id in self._gone:
                continue
            if self._out_of_steps():
                late[one.name] = None
            elif not self._may_go(one):
                continue
            elif replace:
                self._group(one)
            elif not self._fits_elsewhere(one):
                gain = self._waste(one)
                if self._may_gain(one, gain):
                    heapq.heappush(waiting, (self._key(one, gain), True, one))
        self._second_chance()
        groups = self._groups.joined()
        soon = self._next_in_line() if self._steering else ()
        going = {c.name for group in groups for c in group.going}
        stays = {name: stay for name, stay in self._stays.items() if name not in going}
        return Proposal(groups, stays, tuple(late), soon, self._board.steps)

    def _second_chance(self) -> None:
        """Those who stay are asked once more, now that machines are to be bought which may have room for their pods."""
        if not self._bins:
            return
        for one in sorted(self._going, key=lambda c: self._key(c, c.usd_per_hour)):
            if self._out_of_steps():
                return
            if one.provider_id not in self._gone and one.usd_per_hour > 0 and self._may_go(one):
                mark = self._board.mark()
                left = self._board.take_away(self._board.at[one.provider_id])
                if not left or not self._joins(one, left):
                    self._board.undo(mark)

    def _next_in_line(self) -> tuple[str, ...]:
        """Who of those that a budget holds back fits elsewhere when all before it are gone. Only said, never done."""
        board = self._board
        found: list[str] = []
        for one in sorted({c.provider_id: c for c in self._held}.values(), key=lambda c: self._key(c, c.usd_per_hour)):
            if len(found) >= MOST_SOON or self._out_of_steps():
                break
            if one.provider_id in self._gone or not self._worth.judge((one,), one.usd_per_hour).is_worth_it:
                continue
            mark = board.mark()
            if board.take_away(board.at[one.provider_id]):
                board.undo(mark)
            else:
                board.keep()
                found.append(one.name)
        return tuple(sorted(found))

    def _key(self, one: Candidate, gain: float) -> tuple[bool, float, float, str]:
        """Those whom a former search did not reach first, then by gain; older ones first among equals."""
        return (one.name not in self._starved, -gain / one.disturbance, *one.age_key)

    def _waste(self, one: Candidate) -> float:
        """By how much it costs more than its pods' share of the best machine for them."""
        self._board.steps += 1
        wanted = self._board.requests_of(self._board.content[self._board.at[one.provider_id]])
        gain = one.usd_per_hour - self._market.fraction(wanted)
        self._wasted[one.provider_id] = gain
        return gain

    def _may_gain(self, one: Candidate, most: float) -> bool:
        """Whether a replacement might be worth it, which saves `most` at the very best."""
        if most <= _CENT:
            self._stays[one.name] = dearer(one, one.usd_per_hour - most, self._stays.get(one.name))
            return False
        verdict = self._worth.judge((one,), most)
        if not verdict.is_worth_it:
            self._stays[one.name] = unbalanced(most, verdict.score, verdict.threshold, bound="at most ")
        return verdict.is_worth_it

    def _out_of_steps(self) -> bool:
        return self._board.steps >= self._steps

    def _may_go(self, one: Candidate) -> bool:
        """Whether budgets of nodes and of pods leave room for one more, and its group stays small enough to be carried out."""
        if self._groups.size_with(self._board.at[one.provider_id]) > MOST_TOGETHER:
            self._stays[one.name] = Stay(Because.UNREACHED, "nodes whose pods come to it go first", {}, "")
            return False
        if self._room.get(one.pool.name, 0) <= 0:
            self._stays[one.name] = self._budgets.stay(one.pool)
            if self._budgets.allowed.get(one.pool.name, 0) > 0:
                self._held.append(one)
            return False
        guard = self._guards.blocking(one)
        if guard:
            text = f"PodDisruptionBudget {guard} lets other nodes' pods go first"
            self._stays[one.name] = Stay(Because.PDB, text, {"pdb": guard})
            return False
        return True

    def _go(self, those: Sequence[Candidate], usd: float, joins: int | None = None) -> int:
        """Keep what was done for `those`, who go together with group `joins`; the number of their group."""
        board = self._board
        number = self._groups.add(those, usd, [board.at[c.provider_id] for c in those], board.touched(), joins)
        board.keep()
        for one in those:
            self._gone.add(one.provider_id)
        return number

    def _take(self, one: Candidate) -> None:
        self._room[one.pool.name] -= 1
        self._guards.take(one)

    def _give(self, one: Candidate) -> None:
        self._room[one.pool.name] += 1
        self._guards.give(one)

    def _partners(self) -> list[Candidate]:
        """Those that fit nowhere else and waste something, what is gained per disturbance first."""
        if self._known_waste != len(self._wasted):
            self._known_waste = len(self._wasted)
            wasting = [c for c in self._going if self._wasted.get(c.provider_id, 0.0) > _CENT]
            self._by_waste = sorted(wasting, key=lambda c: (-self._wasted[c.provider_id] / c.disturbance, *c.age_key))
        self._by_waste = [c for c in self._by_waste if c.provider_id not in self._gone]
        return self._by_waste

    def _fits_elsewhere(self, one: Candidate) -> bool:
        board = self._board
        verdict = self._worth.judge((one,), one.usd_per_hour)
        # One whose price nobody knows goes; one that a commitment makes free costs only the disturbance to keep.
        is_known = one.usd_per_hour > 0 or one.known.usd_per_hour is not None
        if not verdict.is_worth_it and is_known:
            self._stays[one.name] = unbalanced(one.usd_per_hour, verdict.score, verdict.threshold)
            return False
        mark = board.mark()
        left = board.take_away(board.at[one.provider_id])
        if not left:
            self._take(one)
            self._go((one,), 0.0)
            return True
        if self._joins(one, left):
            return True
        board.undo(mark)
        index = min(left)
        pod = board.classes[index].pods[0].key
        text = f"{sum(left.values())} of its {len(one.movers)} pods would have no other home, such as those like {pod}"
        self._stays[one.name] = Stay(Because.NO_HOME, text, {"pod": pod, "pods": str(sum(left.values()))})
        return False

    def _joins(self, one: Candidate, left: Content) -> bool:
        """Put what is left of a node that is taken away on a machine that is to be bought anyway, if that pays."""
        best: tuple[float, int, Bin] | None = None
        for at in range(max(0, len(self._bins) - OPEN), len(self._bins)):
            bought, members, _ = self._bins[at]
            more = bought.with_more(left)
            if more is None or any(more.is_like(c.instance_type, c.zone, c.capacity_type) for c in (one, *members)):
                continue
            gain = one.usd_per_hour - (more.usd_per_hour - bought.usd_per_hour)
            if (best is None or gain > best[0] + _CENT) and self._worth.judge((one,), gain).is_worth_it:
                best = (gain, at, more)
        if best is None:
            return False
        _, at, more = best
        bought, members, number = self._bins[at]
        self._bins[at] = (more, (*members, one), number)
        self._take(one)
        self._go((one,), more.usd_per_hour - bought.usd_per_hour, number)
        return True

    def _group(self, seed: Candidate) -> None:
        """The seed and whoever shares one machine with it, if that machine is cheaper than they are and worth it."""
        board = self._board
        if not self._spot and seed.capacity_type == labels.SPOT:
            self._stays[seed.name] = SPOT_TO_SPOT
            return
        mark = board.mark()
        left = board.take_away(board.at[seed.provider_id])
        bought = self._market.open(left, spot=True) if left else None
        if left and bought is None:
            board.undo(mark)
            return
        self._take(seed)
        members = [seed]
        usd = 0.0 if bought is None else bought.usd_per_hour
        if bought is not None:
            members, bought = self._with_partners(members, bought)
            usd = bought.usd_per_hour
        saving = sum(c.usd_per_hour for c in members) - usd
        verdict = self._worth.judge(members, saving)
        same = bought is not None and any(bought.is_like(c.instance_type, c.zone, c.capacity_type) for c in members)
        if verdict.is_worth_it and not same:
            number = self._go(members, usd)
            if bought is not None:
                self._bins.append((bought, tuple(members), number))
            return
        board.undo(mark)
        for one in members:
            self._give(one)
        if saving > _CENT and not same:
            self._stays[seed.name] = unbalanced(saving, verdict.score, verdict.threshold)
        else:
            self._stays[seed.name] = dearer(seed, usd if len(members) == 1 else None)

    def _with_partners(self, members: list[Candidate], bought: Bin) -> tuple[list[Candidate], Bin]:
        """The first members with as many others that waste as it pays to put on one machine with them.

        A step that gains nothing may lead to one that does, so it goes on for a while and then back to where it was best.
        """
        board = self._board
        seed = members[0]
        best, best_bin, best_mark = 1, bought, board.mark()
        best_saving = seed.usd_per_hour - bought.usd_per_hour
        saving = best_saving
        tried = misses = 0
        for other in self._partners():
            if tried >= PARTNERS or misses >= MISSES or self._out_of_steps():
                break
            if other is seed or not self._may_go(other):
                continue
            tried += 1
            mark = board.mark()
            more = bought.with_more(board.take_away(board.at[other.provider_id]))
            if more is None:
                board.undo(mark)
                misses += 1
                continue
            misses = 0
            saving += other.usd_per_hour - (more.usd_per_hour - bought.usd_per_hour)
            self._take(other)
            members.append(other)
            bought = more
            if self._worth.judge(members[best:], saving - best_saving).is_worth_it:
                best, best_bin, best_mark, best_saving = len(members), bought, board.mark(), saving
        board.undo(best_mark)
        for one in members[best:]:
            self._give(one)
        return members[:best], best_bin


class Groups:
    """Groups as they are made. One that takes away a place on which another put pods belongs together with it."""

    def __init__(self) -> None:
        self._made: list[tuple[tuple[Candidate, ...], float]] = []
        self._of: list[int] = []
        self._size: list[int] = []
        """Of a root, how many nodes its groups have."""
        self._on: dict[int, set[int]] = {}

    def add(
        self, going: Sequence[Candidate], usd: float, places: Sequence[int], touched: Iterable[int], joins: int | None = None
    ) -> int:
        """The group's number. `places` are taken away, on `touched` something was put; `joins` is a group it belongs to."""
        number = len(self._made)
        self._made.append((tuple(going), usd))
        self._of.append(number)
        self._size.append(len(going))
        together = {other for place in places for other in self._on.pop(place, ())} | ({joins} if joins is not None else set())
        for other in sorted(together):
            root, mine = self._root(other), self._root(number)
            if root != mine:
                first, second = min(root, mine), max(root, mine)
                self._of[second] = first
                self._size[first] += self._size[second]
        for place in touched:
            self._on.setdefault(place, set()).add(number)
        return number

    def size_with(self, place: int) -> int:
        """How many nodes would go together if this place were taken away."""
        roots = {self._root(other) for other in self._on.get(place, ())}
        return 1 + sum(self._size[root] for root in sorted(roots))

    def joined(self) -> tuple[Group, ...]:
        """In the order in which they were begun."""
        found: dict[int, list[int]] = {}
        for number in range(len(self._made)):
            found.setdefault(self._root(number), []).append(number)
        return tuple(
            Group(tuple(c for n in numbers for c in self._made[n][0]), sum(self._made[n][1] for n in numbers))
            for numbers in found.values()
        )

    def _root(self, number: int) -> int:
        while self._of[number] != number:
            number = self._of[number]
        return number


SPOT_TO_SPOT = Stay(
    Because.SPOT_TO_SPOT,
    "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
    {"gate": "SpotToSpotConsolidation"},
)


def unbalanced(saving: float, score: float, threshold: float, bound: str = "") -> Stay:
    """Too little to gain; `bound` is "at most " where that is all that is known."""
    weighed = f"(score {score:.2f} of {threshold:.2f})"
    text = f"moving its pods would save {bound}${saving:.4f}/h, which is not worth the disturbance {weighed}"
    facts = {"saves_usd_per_hour": f"{saving:.6f}", "score": f"{score:.4f}", "threshold": f"{threshold:.4f}"}
    return Stay(Because.UNBALANCED, text, facts)


def dearer(one: Candidate, usd: float | None, homeless: Stay | None = None) -> Stay:
    """Nothing cheaper: Karpenter's words, and the figures; `usd` is what its pods would cost elsewhere at least."""
    facts = {**(homeless.facts if homeless is not None else {}), "usd_per_hour": f"{one.usd_per_hour:.6f}"}
    if usd is None:
        return Stay(Because.NOT_CHEAPER, "Can't replace with a cheaper node", facts)
    facts["replacement_usd_per_hour"] = f"{usd:.6f}"
    text = f"Can't replace with a cheaper node: it costs ${one.usd_per_hour:.4f}/h, its pods elsewhere at least ${usd:.4f}/h"
    return Stay(Because.NOT_CHEAPER, text, facts)
