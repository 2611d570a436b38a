"""Which machines with which pods: filled one after another by dual prices, then taken apart and filled again in places.

Works on counts and vectors only; `improve` carries the answer out through the solver's checks.
"""

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from kubewright.catalogue.columns import bits
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Machine
from kubewright.packing.prices import Mixes

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
_BARREN = 300
"""Attempts in a row without success after which the search ends."""


class Load(NamedTuple):
    """A machine and how many pods of each item go on it."""

    machine: Machine
    mix: tuple[tuple[int, int], ...]
    worth: float
    """At the prices it was filled by."""


class Search:
    """Packings of the same pods; counts its steps (a step is one machine filled)."""

    def __init__(self, machines: Sequence[Machine], sizes: Sequence[Sequence[float]], counts: Sequence[int], steps: int) -> None:
        """`machines` may each take only what their mask allows; `counts` are the pods to be packed, by item."""
        self.machines = machines
        self.sizes = sizes
        self.market = Market(sizes, [0.0] * len(sizes))
        self.counts = list(counts)
        self.steps = steps
        self.used = 0
        self._draw = 1

    def best(self) -> list[Load]:
        """The cheapest packing found within the steps; never empty-handed if there are machines for the pods."""
        found = self._dive()
        for leaning in _LEANINGS:
            if self.used >= self.steps:
                break
            loads = self._fill(self.counts, leaning)
            if _better(loads, found):
                found = loads
        current, barren = found, 0
        while self.used < self.steps and barren < _BARREN and len(current) > 1:
            again = self._again(current)
            # Of few machines slightly dearer packings are accepted, less and less so: ways out of dead ends.
            slack = cost(found) * _SLACK * (1 - barren / _BARREN) if len(current) < _FEW else 0.0
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
        before: Mixes | None = None
        while any(left):
            mixes = Mixes(self.sizes, left, self.machines)
            if before is not None:
                mixes.learn(before)
            mixes.improve(max(0, (self.steps - self.used) // 3))
            self.used += mixes.used
            if before is None:
                self.market = Market(self.sizes, mixes.prices)
            before = mixes
            mix = mixes.loads()
            levels = sum(level for level, _, _ in mix)
            if levels < _LAST or self.used >= self.steps:
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
                    worth = sum(self.market.prices[i] * n for i, n in pods.items())
                    loads += [Load(machine, tuple(sorted(pods.items())), worth)] * copies
            if not taken:
                break
        ends = [self._fill(left, leaning) for leaning in _LEANINGS] if any(left) else [[]]
        best = ends[0]
        for one in ends[1:]:
            if _better(one, best):
                best = one
        return loads + best

    def _again(self, loads: Sequence[Load]) -> list[Load]:
        """The same packing with a few machines, the worst and some others, emptied and their pods packed anew."""
        order = sorted(range(len(loads)), key=lambda i: (loads[i].worth / max(loads[i].machine.usd, 1e-12), i))
        count = min(len(loads), 2 + self._random(4))
        worst = order[: max(1, count // 2)]
        rest = order[len(worst) :]
        out = set(worst)
        while rest and len(out) < count:
            out.add(rest.pop(self._random(len(rest))))
        freed = [0] * len(self.counts)
        for i in out:
            for item, pods in loads[i].mix:
                freed[item] += pods
        shaken = _JITTER if self._random(2) else 0
        kept, self.market = (
            self.market,
            Market(self.sizes, [p * (1000 - shaken + self._random(2 * shaken + 1)) / 1000 for p in self.market.prices]),
        )
        refilled = self._fill(freed, _LEANINGS[self._random(len(_LEANINGS))], skip=self._random(3))
        self.market = kept
        return [load for i, load in enumerate(loads) if i not in out] + refilled

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
            worth, mix = market.whole(machine.room, machine.allowed & present, left)
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


def cost(loads: Sequence[Load]) -> float:
    return sum(load.machine.usd for load in loads)


def _better(one: Sequence[Load], other: Sequence[Load], slack: float = 0.0) -> bool:
    """Whether `one` packs as many pods for less, or for at most `slack` more."""
    mine, theirs = (sum(n for load in loads for _, n in load.mix) for loads in (one, other))
    return mine > theirs or (mine == theirs and cost(one) < cost(other) + slack - 1e-9)
