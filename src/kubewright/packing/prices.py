"""Dual prices: what one more pod of each item costs at the margin, by column generation over machines.

Prices may be anything: `bound.proven` scales them until they prove something, and packings that follow them are judged by cost.
"""

from collections.abc import Iterable, Sequence

from kubewright.packing.covering import Column, Covering
from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Limit, Machine
from kubewright.packing.proof import prove
from kubewright.packing.stock import Stock

_ROUNDS = 80
_COLUMNS_A_ROUND = 10
_SMOOTH = 0.5
"""How far the prices asked about stay at the best ones known; without it they swing from round to round."""
_GAP = 5e-4
"""Relative distance between what columns achieve and what is proven at which nothing more is to be gained."""


Pattern = tuple[tuple[int, int], tuple[tuple[tuple[float, ...], int], ...]]
"""(template, row) and (size, pods) of each kind of pod on such a machine."""


class Mixes:
    """The cheapest mix of loads that covers the demand fractionally, its prices, and what they prove."""

    def __init__(
        self,
        sizes: Sequence[Sequence[float]],
        counts: Sequence[int],
        machines: Sequence[Machine],
        stocks: Sequence[Stock] = (),
        limits: Sequence[Limit] = (),
        mosts: Sequence[int] = (),
    ) -> None:
        """`sizes` and `counts` are by item. Items without pods, or that nothing sold to everybody holds, cost 0.

        `mosts` is how many pods of an item one machine may take.
        """
        self.sizes = sizes
        self.counts = counts
        self.mosts = [min(a, b) for a, b in zip(counts, mosts, strict=True)] if mosts else counts
        self.machines = [m for m in machines if not m.reservation]
        self.stocks = stocks
        self.limits = limits
        reach = 0
        for machine in self.machines:
            reach |= machine.allowed
        self.wanted = [i for i, n in enumerate(counts) if n and reach >> i & 1]
        self.prices = by_resource(sizes, [n if reach >> i & 1 else 0 for i, n in enumerate(counts)], self.machines, stocks)
        """The best known."""
        self.tolls = [0.0] * len(limits)
        """What a unit of each limit is worth, with the best known prices."""
        self.rates: list[list[float]] = []
        """What a unit of each stock's resources is worth, with the best known prices; none before they are found."""
        self.bound = 0.0
        """What the best known prove, leaving reservations aside."""
        self.used = 0
        alone = [self._alone(i) for i in self.wanted]
        within = [limit.left for limit in limits] + [amount for stock in stocks for amount in stock.room]
        self.covering = Covering([counts[i] for i in self.wanted], alone, within)
        self._place = {i: at for at, i in enumerate(self.wanted)}
        self.found: dict[int, tuple[Machine, dict[int, int]]] = {}
        self.has_learned = False
        first = len(self.wanted) + len(limits)
        for stock in stocks:
            for i in self.wanted:
                if stock.allowed >> i & 1:
                    uses = {first + k: amount for k, amount in enumerate(sizes[i]) if amount}
                    self.covering.pool.append(Column(0.0, {self._place[i]: 1.0, **uses}))
            first += len(stock.room)

    def _alone(self, item: int) -> float:
        """What one such pod costs on the best machine of the dearest template that takes it: limits may leave no other."""
        least: dict[int, float] = {}
        for m in self.machines:
            if m.allowed >> item & 1:
                usd = _alone(m, self.sizes[item], self.mosts[item])
                least[m.template] = min(usd, least.get(m.template, usd))
        return max(least.values()) if self.limits else min(least.values())

    def learn(self, known: Iterable[Pattern]) -> None:
        """Begin with loads that were found for other pods, as far as there are pods of these sizes for them here."""
        items: dict[tuple[float, ...], list[int]] = {}
        for i in self.wanted:
            items.setdefault(tuple(self.sizes[i]), []).append(i)
        machines = {(m.template, m.row): m for m in reversed(self.machines)}
        grown = False
        for (template, row), mix in known:
            machine = machines.get((template, row))
            if machine is None:
                continue
            here: dict[int, int] = {}
            for size, pods in mix:
                item = next((i for i in items.get(size, ()) if machine.allowed >> i & 1), None)
                if item is not None and (most := min(pods, self.mosts[item])):
                    here[item] = most
            if here:
                grown = True
                self._note(machine, here)
        if grown:
            self.covering.settle(self.covering.pivots + 10 * len(self.wanted))
            self.used += self.covering.pivots * (1 + len(self.covering.costs) ** 2 // 500)
            self.has_learned = True

    def patterns(self) -> list[Pattern]:
        """The loads of the mix, by what pods are like and not which they are; for `learn`."""
        return [
            ((m.template, m.row), tuple(sorted((tuple(self.sizes[i]), n) for i, n in mix.items()))) for _, m, mix in self.loads()
        ]

    def _note(self, machine: Machine, mix: dict[int, int]) -> None:
        amounts = {self._place[i]: float(n) for i, n in mix.items() if i in self._place}
        if amounts:
            amounts |= {len(self.wanted) + at: amount for at, amount in machine.uses if amount and at < len(self.limits)}
            column = Column(machine.usd, amounts)
            self.covering.pool.append(column)
            self.found[id(column)] = (machine, mix)

    def improve(self, steps: int) -> None:
        """Generate columns for about `steps` more; a step is a machine looked at, or some thousand sums of the program."""
        if not self.wanted:
            return
        rows = len(self.covering.costs)
        pivot_cost = 1 + rows * rows // 500 + min(len(self.covering.pool), 200) // 40
        last = self.used + steps
        asked, tolls, rates = self.prices, self.tolls, self.rates
        if self.stocks or self.limits:
            self.covering.settle(self.covering.pivots + max(1, steps // pivot_cost // 4))
        if self.has_learned:
            asked = list(self.prices)
            for i, price in zip(self.wanted, self.covering.prices(), strict=True):
                asked[i] = price
        smooth = _SMOOTH
        for _ in range(_ROUNDS):
            if self.used + len(self.machines) + pivot_cost > last:
                self._ask_at_last()
                return
            better, grown = self._ask(asked, tolls, rates, self.covering.prices(), self.covering.tolls())
            before = self.covering.pivots
            self.covering.settle(before + max(1, (last - self.used) // pivot_cost))
            self.used += (self.covering.pivots - before) * pivot_cost
            if self.covering.cost() <= self.bound * (1 + _GAP):
                break
            smooth = _SMOOTH if better or grown else smooth * 0.5
            if not better and not grown and smooth < 0.05:
                self._ask_at_last()
                return
            asked = list(self.prices)
            for i, price in zip(self.wanted, self.covering.prices(), strict=True):
                asked[i] = smooth * self.prices[i] + (1 - smooth) * price
            now = self.covering.tolls()
            tolls = [smooth * a + (1 - smooth) * b for a, b in zip(self.tolls, now, strict=False)]
            rates = self._rates(now[len(self.limits) :], smooth)

    def _ask_at_last(self) -> None:
        """What the prices of the mix itself prove; on the way to them they were only come near to."""
        asked = list(self.prices)
        for i, price in zip(self.wanted, self.covering.prices(), strict=True):
            asked[i] = price
        tolls = self.covering.tolls()
        self._ask(asked, tolls[: len(self.limits)], self._rates(tolls[len(self.limits) :], 0.0), asked, tolls)

    def loads(self) -> list[tuple[float, Machine, dict[int, int]]]:
        """(how many, machine, pods by item) of the mix, largest first."""
        found = [
            (level, *self.found[id(column)])
            for level, column in zip(self.covering.levels, self.covering.columns, strict=True)
            if column is not None and id(column) in self.found and level > 1e-9
        ]
        found.sort(key=lambda f: (-f[0], f[1].usd, f[1].template, f[1].row, sorted(f[2].items())))
        return found

    def _rates(self, tolls: Sequence[float], smooth: float) -> list[list[float]]:
        """The tolls of the stocks' resources, by stock, kept near the best known."""
        found: list[list[float]] = []
        at = 0
        for index, stock in enumerate(self.stocks):
            own = list(tolls[at : at + len(stock.room)])
            if self.rates:
                own = [smooth * a + (1 - smooth) * b for a, b in zip(self.rates[index], own, strict=True)]
            found.append(own)
            at += len(stock.room)
        return found

    def _ask(
        self,
        prices: Sequence[float],
        tolls: Sequence[float],
        rates: Sequence[Sequence[float]],
        dual: Sequence[float],
        dual_tolls: Sequence[float],
    ) -> tuple[bool, bool]:
        """Price every machine: (whether a better bound came of it, whether a column did that helps the mix)."""
        market = Market(self.sizes, prices)
        self.used += len(self.machines)
        ranked: list[tuple[float, int]] = []
        bound = prove(self, market, tolls, rates, ranked)
        ranked.sort()
        better = bound > self.bound * (1 + 1e-6)
        if better:
            self.bound = bound
            self.prices, self.tolls, self.rates = list(prices), list(tolls), [list(r) for r in rates]
        return better, self._grow(market, ranked, dual, dual_tolls, deep=False) or (
            not better and self._grow(market, ranked, dual, dual_tolls, deep=True)
        )

    def _grow(
        self,
        market: Market,
        ranked: Sequence[tuple[float, int]],
        dual: Sequence[float],
        dual_tolls: Sequence[float],
        *,
        deep: bool,
    ) -> bool:
        """Note what the best machines hold at the market's prices, where it helps the mix; `deep` looks longer."""
        grown = False
        for _, at in ranked[:_COLUMNS_A_ROUND]:
            machine = self.machines[at]
            self.used += 1 + deep * len(market.members(machine.allowed)) // 2
            pack = market.deep if deep else market.whole
            _, mix = pack(machine.room, machine.allowed, self.mosts)
            if not mix:
                continue
            usd = machine.usd + sum(dual_tolls[i] * amount for i, amount in machine.uses if i < len(self.limits))
            if sum(dual[self._place[i]] * n for i, n in mix.items() if i in self._place) > usd * (1 + 1e-6):
                grown = True
                self._note(machine, mix)
        return grown


def by_resource(
    sizes: Sequence[Sequence[float]], counts: Sequence[int], machines: Sequence[Machine], stocks: Sequence[Stock] = ()
) -> list[float]:
    """USD of a pod of each item by a price for each resource, from covering the sum of all requests."""
    unit = resource_prices(sizes, counts, machines, stocks)
    return [sum(u * s for u, s in zip(unit, size, strict=True)) for size in sizes]


def resource_prices(
    sizes: Sequence[Sequence[float]], counts: Sequence[int], machines: Sequence[Machine], stocks: Sequence[Stock] = ()
) -> list[float]:
    """USD of a unit of each resource that must be bought beyond what `stocks` have."""
    sold = [m for m in machines if not m.reservation]
    demands = [sum(n * amount for n, amount in zip(counts, column, strict=True)) for column in zip(*sizes, strict=True)]
    for stock in stocks:
        demands = [max(0.0, d - r) for d, r in zip(demands, stock.room, strict=True)]
    alone = [min((m.usd / m.room[k] for m in sold if m.room[k] > 0), default=0.0) for k in range(len(demands))]
    covering = Covering(demands, alone)
    covering.pool = [Column(m.usd, dict(enumerate(m.room))) for m in sold]
    covering.settle(50 * len(demands))
    return covering.prices()


def _alone(machine: Machine, size: Sequence[float], most: int) -> float:
    fitting = int(min(r / s for r, s in zip(machine.room, size, strict=True) if s > 0) + 1e-9)
    return machine.usd / max(1, min(fitting, most))
