"""Dual prices: what one more pod of each item costs at the margin, by column generation over machines.

Prices may be anything: `bound.proven` scales them until they prove something, and packings that follow them are judged by cost.
"""

from collections.abc import Sequence

from kubewright.packing.covering import Column, Covering
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Machine

_ROUNDS = 80
_COLUMNS_A_ROUND = 10
_SMOOTH = 0.5
"""How far the prices asked about stay at the best ones known; without it they swing from round to round."""
_GAP = 5e-4
"""Relative distance between what columns achieve and what is proven at which nothing more is to be gained."""


class Mixes:
    """The cheapest mix of loads that covers the demand fractionally, its prices, and what they prove."""

    def __init__(self, sizes: Sequence[Sequence[float]], counts: Sequence[int], machines: Sequence[Machine]) -> None:
        """`sizes` and `counts` are by item. Items without pods, or that nothing sold to everybody holds, cost 0."""
        self.sizes = sizes
        self.counts = counts
        self.machines = [m for m in machines if not m.reservation]
        reach = 0
        for machine in self.machines:
            reach |= machine.allowed
        self.wanted = [i for i, n in enumerate(counts) if n and reach >> i & 1]
        self.prices = by_resource(sizes, [n if reach >> i & 1 else 0 for i, n in enumerate(counts)], self.machines)
        """The best known."""
        self.bound = 0.0
        """What the best known prove, leaving reservations and nodes that exist aside."""
        self.used = 0
        alone = [min(_alone(m, self.sizes[i]) for m in self.machines if m.allowed >> i & 1) for i in self.wanted]
        self.covering = Covering([counts[i] for i in self.wanted], alone)
        self._place = {i: at for at, i in enumerate(self.wanted)}
        self.found: dict[int, tuple[Machine, dict[int, int]]] = {}

    def learn(self, other: "Mixes") -> None:
        """Begin with the loads that another one found, as far as there are pods for them."""
        for machine, mix in other.found.values():
            self._note(machine, {i: min(n, self.counts[i]) for i, n in mix.items() if self.counts[i]})
        self.covering.settle(self.covering.pivots + 10 * len(self.wanted))

    def _note(self, machine: Machine, mix: dict[int, int]) -> None:
        column = Column(machine.usd, {self._place[i]: float(n) for i, n in mix.items() if i in self._place})
        if column.amounts:
            self.covering.pool.append(column)
            self.found[id(column)] = (machine, mix)

    def improve(self, steps: int) -> None:
        """Generate columns for about `steps` more; a step is a machine looked at, or some thousand sums of the program."""
        if not self.wanted:
            return
        pivot_cost = 1 + len(self.wanted) * len(self.wanted) // 2000
        last = self.used + steps
        asked = self.prices
        smooth = _SMOOTH
        for _ in range(_ROUNDS):
            if self.used + len(self.machines) + pivot_cost > last:
                break
            better, grown = self._ask(asked, self.covering.prices())
            before = self.covering.pivots
            self.covering.settle(before + max(1, (last - self.used) // pivot_cost))
            self.used += (self.covering.pivots - before) * pivot_cost
            if self.covering.cost() <= self.bound * (1 + _GAP):
                break
            smooth = _SMOOTH if better or grown else smooth * 0.5
            if not better and not grown and smooth < 0.05:
                break
            dual = self.covering.prices()
            asked = list(self.prices)
            for i, price in zip(self.wanted, dual, strict=True):
                asked[i] = smooth * self.prices[i] + (1 - smooth) * price

    def loads(self) -> list[tuple[float, Machine, dict[int, int]]]:
        """(how many, machine, pods by item) of the mix, largest first."""
        found = [
            (level, *self.found[id(column)])
            for level, column in zip(self.covering.levels, self.covering.columns, strict=True)
            if column is not None and id(column) in self.found and level > 1e-9
        ]
        found.sort(key=lambda f: (-f[0], f[1].usd, f[1].template, f[1].row, sorted(f[2].items())))
        return found

    def _ask(self, prices: Sequence[float], dual: Sequence[float]) -> tuple[bool, bool]:
        """Price every machine: (whether a better bound came of it, whether a column did that helps the mix)."""
        market = Market(self.sizes, prices)
        self.used += len(self.machines)
        ranked: list[tuple[float, int]] = []
        for at, machine in enumerate(self.machines):
            values, _ = market.best(machine.room, machine.allowed)
            worth = market.worth_at_most(values, machine.room, machine.allowed, self.counts)
            ranked.append((machine.usd / worth if worth > 0 else float("inf"), at))
        ranked.sort()
        total = sum(p * n for p, n in zip(prices, self.counts, strict=True))
        bound = min(1.0, ranked[0][0]) * total
        better = bound > self.bound * (1 + 1e-6)
        if better:
            self.bound = bound
            self.prices = list(prices)
        grown = False
        for _, at in ranked[:_COLUMNS_A_ROUND]:
            machine = self.machines[at]
            self.used += 1
            _, mix = market.whole(machine.room, machine.allowed, self.counts)
            if not mix:
                continue
            if sum(dual[self._place[i]] * n for i, n in mix.items() if i in self._place) > machine.usd * (1 + 1e-6):
                grown = True
                self._note(machine, mix)
        return better, grown


def by_resource(sizes: Sequence[Sequence[float]], counts: Sequence[int], machines: Sequence[Machine]) -> list[float]:
    """USD of a pod of each item by a price for each resource, from covering the sum of all requests."""
    unit = resource_prices(sizes, counts, machines)
    return [sum(u * s for u, s in zip(unit, size, strict=True)) for size in sizes]


def resource_prices(sizes: Sequence[Sequence[float]], counts: Sequence[int], machines: Sequence[Machine]) -> list[float]:
    """USD of a unit of each resource."""
    sold = [m for m in machines if not m.reservation]
    demands = [sum(n * amount for n, amount in zip(counts, column, strict=True)) for column in zip(*sizes, strict=True)]
    alone = [min((m.usd / m.room[k] for m in sold if m.room[k] > 0), default=0.0) for k in range(len(demands))]
    covering = Covering(demands, alone)
    covering.pool = [Column(m.usd, dict(enumerate(m.room))) for m in sold]
    covering.settle(50 * len(demands))
    return covering.prices()


def _alone(machine: Machine, size: Sequence[float]) -> float:
    return machine.usd / max(1, int(min(r / s for r, s in zip(machine.room, size, strict=True) if s > 0) + 1e-9))
