"""Which machines with which pods: filled one after another by dual prices, then taken apart and filled again in places.

Works on counts and vectors only; `improve` carries the answer out through the solver's checks.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from kubewright.catalogue.columns import bits
from kubewright.packing.cover import Covers
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Machine
from kubewright.packing.prices import Mixes, Pattern, resource_prices

_LOOKED_AT = 8
"""Machines filled with whole pods per choice, of those that rank best fractionally."""
_LEANINGS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""How much dearer than its prices say a pod is expected to become if it is left for later."""


_MOST = 0.5
"""Share of a machine from which it is taken whole."""
_LAST = 3.0
"""Machines in the fractional mix below which rounding it says little."""
_FEW = 12
_SLACK = 0.001
"""Share of the cost by which a step may be dearer than the one before."""
_JITTER = 20
"""Thousandths by which prices are shaken when pods are packed anew."""
_BARREN, _BARREN_LEAST, _BARREN_A_POD = 300, 20, 5
"""Attempts in a row without success after which the search ends, for many pods; and for few."""
_MANY = 1 << 60


class Load(NamedTuple):
    """A machine and how many pods of each item go on it."""

    machine: Machine
    mix: tuple[tuple[int, int], ...]
    worth: float
    """At the prices it was filled by."""


class Search:
    """Packings of the same pods; counts its steps (a step is one machine filled)."""

    def __init__(
        self,
        machines: Sequence[Machine],
        sizes: Sequence[Sequence[float]],
        counts: Sequence[int],
        steps: int,
        mosts: Sequence[int] = (),
        groups: Sequence[int] = (),
    ) -> None:
        """`machines` may each take only what their mask allows; `counts` are the pods to be packed, by item.

        `mosts` is how many pods of an item one machine may take, 0 for as many as fit. `groups` are masks of items that share
        few machines with others; each is begun by itself, which keeps the linear programs small.
        """
        self.machines = machines
        self.sizes = sizes
        self.market = Market(sizes, [0.0] * len(sizes))
        self.counts = list(counts)
        self.mosts = [m or _MANY for m in mosts] or [_MANY] * len(sizes)
        self.groups = groups or (-1,)
        self.steps = steps
        self.used = 0
        self._covers = Covers(machines, sizes, resource_prices(sizes, counts, machines))
        self._draw = 1
        self._book: list[Pattern] = []
        """Loads found so far, for whatever pods."""

    def best(self, enough: float = 0.0, known: Sequence[Mapping[int, int]] = ()) -> list[Load]:
        """The cheapest packing found within the steps, or the first that costs no more than `enough`.

        `known` is a packing, pods by item for each machine, to be as good as; it may leave pods out. Never empty-handed if there
        are machines for the pods.
        """
        found = self._dive()
        if known:
            loads = self._begin_with(known)
            if _better(loads, found):
                found = loads
        for leaning in _LEANINGS:
            if self.used >= self.steps:
                break
            loads = self._fill(self.counts, leaning)
            if _better(loads, found):
                found = loads
        barren_at_most = min(_BARREN, _BARREN_LEAST + _BARREN_A_POD * sum(self.counts))
        current, barren = found, 0
        while self.used < self.steps and barren < barren_at_most and len(current) > 1 and cost(found) > enough:
            again = self._again(current)
            # Of few machines slightly dearer packings are accepted, less and less so: ways out of dead ends.
            slack = cost(found) * _SLACK * (1 - barren / barren_at_most) if len(current) < _FEW else 0.0
            barren += 1
            if _better(again, current, slack):
                current = again
            if _better(current, found):
                found, barren = current, 0
        return found

    def _dive(self) -> list[Load]:
        """Whole machines of the best fractional mix, then of the best mix for what is left, and so on; the last by `_fill`."""
        left = list(self.counts)
        loads: list[Load] = []
        prices = [0.0] * len(self.sizes)
        if len(self.groups) > 1:
            self._learn_together()
        for at, group in enumerate(self.groups):
            members = [i for i in range(len(left)) if group >> i & 1 and left[i]]
            if members:
                loads += self._dive_into(members, left, prices, (self.steps - self.used) // (2 * (len(self.groups) - at)))
        self.market = Market(self.sizes, prices)
        loads = [load._replace(worth=sum(prices[i] * n for i, n in load.mix)) for load in loads]
        ends = [self._fill(left, leaning) for leaning in _LEANINGS] if any(left) else [[]]
        best = ends[0]
        for one in ends[1:]:
            if _better(one, best):
                best = one
        return loads + best

    def _begin_with(self, known: Sequence[Mapping[int, int]]) -> list[Load]:
        """The packing on the cheapest machines that hold it, with the pods that it leaves out packed anew."""
        left = list(self.counts)
        loads: list[Load] = []
        for pods in known:
            mix = {i: min(n, left[i], self.mosts[i]) for i, n in sorted(pods.items()) if left[i]}
            mask = sum(1 << i for i in mix)
            need = [sum(self.sizes[i][k] * n for i, n in mix.items()) for k in range(len(self.sizes[0]))]
            for machine in self.machines if mix else ():
                if not mask & ~machine.allowed and all(r >= n - 1e-9 for r, n in zip(machine.room, need, strict=True)):
                    worth = sum(self.market.prices[i] * n for i, n in mix.items())
                    loads.append(Load(machine, tuple(mix.items()), worth))
                    for i, n in mix.items():
                        left[i] -= n
                    break
        return loads + (self._fill(left, 0.0) if any(left) else [])

    def _learn_together(self) -> None:
        """Find loads for all pods as if only their sizes mattered: most of what is good there is good for every group."""
        place: dict[tuple[float, ...], int] = {}
        for size in self.sizes:
            place.setdefault(tuple(size), len(place))
        where = [place[tuple(size)] for size in self.sizes]
        counts, mosts = [0] * len(place), [0] * len(place)
        for i, n in enumerate(self.counts):
            counts[where[i]] += n
            mosts[where[i]] += min(n, self.mosts[i])
        machines = _distinct(
            m._replace(allowed=sum(1 << at for at in {where[i] for i in bits(m.allowed)})) for m in self.machines
        )
        mixes = Mixes(list(place), counts, machines, mosts=mosts)
        mixes.improve(self.steps // 4)
        self.used += mixes.used
        self._book = mixes.patterns()

    def _dive_into(self, members: Sequence[int], left: list[int], prices: list[float], steps: int) -> list[Load]:
        """Take whole machines of these items out of `left`; their prices go into `prices`."""
        loads: list[Load] = []
        is_first = True
        last = self.used + steps
        mask = sum(1 << i for i in members)
        machines = _distinct(m._replace(allowed=m.allowed & mask) for m in self.machines if m.allowed & mask)
        while any(left[i] for i in members):
            wanted = [n if mask >> i & 1 else 0 for i, n in enumerate(left)]
            mixes = Mixes(self.sizes, wanted, machines, mosts=self.mosts)
            mixes.learn(self._book)
            mixes.improve(max(0, (last - self.used) // 3))
            self.used += mixes.used
            if is_first:
                for i in members:
                    prices[i] = mixes.prices[i]
            is_first = False
            self._book = list(dict.fromkeys([*self._book, *mixes.patterns()]))
            mix = mixes.loads()
            levels = sum(level for level, _, _ in mix)
            if levels < _LAST or self.used >= last:
                break
            # The whole ones, then those of which most of one is wanted; at least the one that is wanted most.
            taken = 0
            for level, machine, pods in mix:
                copies = int(level + 1 - _MOST) if taken else max(1, int(level + 1 - _MOST))
                if pods:
                    copies = min(copies, *(left[i] // n for i, n in pods.items()))
                if copies > 0:
                    taken += copies
                    for i, n in pods.items():
                        left[i] -= n * copies
                    loads += [Load(machine, tuple(sorted(pods.items())), 0.0)] * copies
            if not taken:
                break
        return loads

    def _again(self, loads: Sequence[Load]) -> list[Load]:
        """The same packing with a few machines, the worst and some others, emptied and their pods packed anew."""
        order = sorted(range(len(loads)), key=lambda i: (loads[i].worth / max(loads[i].machine.usd, 1e-12), i))
        if len(self.groups) > 1:
            # Pods of different groups cannot change places: those of one group, and those that belong to none.
            open_to = self.groups[self._random(len(self.groups))] | self.groups[-1]
            order = [i for i in order if all(open_to >> item & 1 for item, _ in loads[i].mix)]
        count = min(len(order), 2 + self._random(4))
        worst = order[: max(1, count // 2)]
        rest = order[len(worst) :]
        out = set(worst)
        while rest and len(out) < count:
            out.add(rest.pop(self._random(len(rest))))
        freed = [0] * len(self.counts)
        for i in out:
            for item, pods in loads[i].mix:
                freed[item] += pods
        kept_loads = [load for i, load in enumerate(loads) if i not in out]
        if self._random(2):
            spent = sum(loads[i].machine.usd for i in out)
            before, other = self._covers.used, self._covers.cheaper(freed, self.mosts, self.market, spent)
            self.used += self._covers.used - before
            if other is None:
                return list(loads)
            return kept_loads + [
                Load(m, tuple(sorted(mix.items())), sum(self.market.prices[i] * n for i, n in mix.items())) for m, mix in other
            ]
        shaken = _JITTER if self._random(2) else 0
        kept, self.market = (
            self.market,
            Market(self.sizes, [p * (1000 - shaken + self._random(2 * shaken + 1)) / 1000 for p in self.market.prices]),
        )
        refilled = self._fill(freed, _LEANINGS[self._random(len(_LEANINGS))], skip=self._random(3))
        self.market = kept
        return kept_loads + refilled

    def _fill(self, counts: Sequence[int], leaning: float, skip: int = 0) -> list[Load]:
        """Machine after machine, each the one that gains most; `skip` passes over that many best ones the first time."""
        left = list(counts)
        loads: list[Load] = []
        while any(left):
            choice = self._choose(left, leaning, skip)
            skip = 0
            if choice is None:
                break
            copies = min(left[i] // n for i, n in choice.mix)
            # The last few copies are chosen anew, when it shows what will be left.
            copies = max(1, copies - 2)
            for i, n in choice.mix:
                left[i] -= n * copies
            loads += [choice] * copies
        return loads

    def _choose(self, left: Sequence[int], leaning: float, skip: int) -> Load | None:
        market = self.market
        present = sum(1 << i for i, n in enumerate(left) if n)
        most = list(map(min, left, self.mosts))
        ranked: list[tuple[float, int]] = []
        all_left: dict[int, float] = {}
        self.used += len(self.machines) // 20
        for at, machine in enumerate(self.machines):
            allowed = machine.allowed & present
            if allowed:
                values, _ = market.best(machine.room, allowed)
                if allowed not in all_left:
                    all_left[allowed] = sum(market.prices[i] * left[i] for i in bits(allowed))
                worth = min(sum(map(mul, values, machine.room)), all_left[allowed])
                ranked.append((machine.usd - (1 + leaning) * worth if leaning else machine.usd / max(worth, 1e-12), at))
        ranked.sort()
        choices: list[tuple[float, int, Load]] = []
        for _, at in ranked[:_LOOKED_AT]:
            machine = self.machines[at]
            self.used += 1
            worth, mix = market.whole(machine.room, machine.allowed & present, most)
            if mix:
                gain = machine.usd - (1 + leaning) * worth if leaning else machine.usd / max(worth, 1e-12)
                choices.append((gain, at, Load(machine, tuple(sorted(mix.items())), worth)))
        if not choices:
            return None
        choices.sort(key=lambda c: (c[0], c[1]))
        return choices[min(skip, len(choices) - 1)][2]

    def _random(self, below: int) -> int:
        """The next number of a fixed sequence (a linear congruential generator): the same search for the same problem."""
        self._draw = (self._draw * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._draw >> 33) % below


def _distinct(machines: Iterable[Machine]) -> list[Machine]:
    """The first of each row and mask, which is the cheapest; machines come by price."""
    found: dict[tuple[int, int, int], Machine] = {}
    for machine in machines:
        found.setdefault((machine.template, machine.row, machine.allowed), machine)
    return list(found.values())


def cost(loads: Sequence[Load]) -> float:
    return sum(load.machine.usd for load in loads)


def _better(one: Sequence[Load], other: Sequence[Load], slack: float = 0.0) -> bool:
    """Whether `one` packs as many pods for less, or for at most `slack` more, or on fewer machines for the same."""
    mine, theirs = (sum(n for load in loads for _, n in load.mix) for loads in (one, other))
    if mine != theirs:
        return mine > theirs
    less = cost(other) - cost(one)
    return less > 1e-9 - slack or (less > -1e-9 and len(one) < len(other))
