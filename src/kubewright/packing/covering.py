"""A small linear program that grows by columns: the cheapest mix of columns that covers every demand within what there is.

Dense revised simplex in plain Python; a few hundred demands are its size. Nothing that is promised to anybody rests on its
figures: bounds are made from the dual prices by a formula that holds for any prices (`bound`).
"""

from collections.abc import Mapping, Sequence

_EPS = 1e-9
_BLOCK = 100
"""Columns priced at least before the best one enters; the next pivot goes on with those that follow."""


class Column:
    """One unit of it costs `usd` and covers `amounts` (by demand)."""

    __slots__ = ("amounts", "usd")

    def __init__(self, usd: float, amounts: Mapping[int, float]) -> None:
        self.usd = usd
        self.amounts = tuple(amounts.items())


class Covering:
    """Minimise the cost of columns so that each demand is covered and nothing is used beyond what there is of it.

    Rows are the demands, in order, then what there is.
    """

    def __init__(self, demands: Sequence[float], alone: Sequence[float], within: Sequence[float] = ()) -> None:
        """`alone` is for each demand what one unit costs when nothing better is known; the dual price never exceeds it."""
        self.demands = len(demands)
        count = len(demands) + len(within)
        self.costs = [*alone, *([0.0] * len(within))]
        self.levels = [float(d) for d in (*demands, *within)]
        self.inverse = [[1.0 if i == j else 0.0 for j in range(count)] for i in range(count)]
        self.columns: list[Column | None] = [None] * count
        """What is in the basis at each place; None is the row's own start."""
        self.pool: list[Column] = []
        self.pivots = 0
        self._next = 0

    def duals(self) -> list[float]:
        """By row; a demand's is positive, that of what there is negative, but for rounding and before it has settled."""
        found = [0.0] * len(self.costs)
        for cost, row in zip(self.costs, self.inverse, strict=True):
            if cost:
                for j, amount in enumerate(row):
                    if amount:
                        found[j] += cost * amount
        return found

    def prices(self) -> list[float]:
        """USD that one more unit of each demand costs; never negative."""
        return [max(0.0, v) for v in self.duals()[: self.demands]]

    def tolls(self) -> list[float]:
        """USD that one more unit of what there is would save; never negative."""
        return [max(0.0, -v) for v in self.duals()[self.demands :]]

    def cost(self) -> float:
        return sum(c * x for c, x in zip(self.costs, self.levels, strict=True))

    def settle(self, most: int) -> None:
        """Pivot until no known column helps, or `most` times in all."""
        while self.pivots < most:
            raw = self.duals()
            best, entering = -1e-7, None
            for j, value in enumerate(raw):
                slack = 1.0 if j >= self.demands else -1.0
                if -slack * value < best:
                    best, entering = -slack * value, Column(0.0, {j: slack})
            for asked in range(len(self.pool)):
                if entering is not None and asked >= _BLOCK:
                    break
                column = self.pool[self._next % len(self.pool)]
                self._next += 1
                gain = column.usd
                for j, amount in column.amounts:
                    gain -= raw[j] * amount
                if gain < best * max(1.0, column.usd):
                    best, entering = gain / max(1.0, column.usd), column
            if entering is None or not self._enter(entering):
                return
            self.pivots += 1

    def _enter(self, column: Column) -> bool:
        change = [sum(row[j] * amount for j, amount in column.amounts) for row in self.inverse]
        leaving, least = -1, float("inf")
        for i, amount in enumerate(change):
            if amount > _EPS:
                ratio = self.levels[i] / amount
                if ratio < least - 1e-12:
                    leaving, least = i, ratio
        if leaving < 0:
            return False
        pivot = change[leaving]
        row = [v / pivot for v in self.inverse[leaving]]
        self.inverse[leaving] = row
        self.levels[leaving] = least
        self.costs[leaving] = column.usd
        self.columns[leaving] = column
        for i, amount in enumerate(change):
            if i != leaving and amount:
                other = self.inverse[i]
                self.inverse[i] = [v - amount * r for v, r in zip(other, row, strict=True)]
                self.levels[i] = max(0.0, self.levels[i] - amount * least)
        return True
