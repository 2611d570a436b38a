"""What the best mix of pods on one machine is worth at given prices: fractionally, with a proof, and rounded to whole pods."""

from collections.abc import Sequence
from operator import mul

_EPS = 1e-9
_TRIES = 60


class Market:
    """Prices of items; answers for machines. Items are vectors over the same resources as machines' capacities."""

    def __init__(self, sizes: Sequence[Sequence[float]], prices: Sequence[float]) -> None:
        self.sizes = sizes
        self.prices = prices
        self._bases: dict[int, list[tuple[list[float], list[int], list[list[float]]]]] = {}
        self._members: dict[int, list[int]] = {}
        self._orders: dict[tuple[int, int], list[int]] = {}
        """By identity of values in `_bases`, which keeps them."""
        self._answers: dict[tuple[tuple[float, ...], int], tuple[list[float], list[tuple[int, float]]]] = {}

    def members(self, allowed: int) -> list[int]:
        found = self._members.get(allowed)
        if found is None:
            found = [i for i, price in enumerate(self.prices) if price > 0 and allowed >> i & 1]
            self._members[allowed] = found
        return found

    def best(self, room: tuple[float, ...], allowed: int) -> tuple[list[float], list[tuple[int, float]]]:
        """(value of a unit of each resource, fractional pods by item) of the best mix of `allowed` items in `room`.

        The first is a proof for `worth_at_most`, the second a suggestion.
        """
        answer = self._answers.get((room, allowed))
        if answer is None:
            answer = self._answers[room, allowed] = self._find_best(room, allowed)
        return answer

    def _find_best(self, room: tuple[float, ...], allowed: int) -> tuple[list[float], list[tuple[int, float]]]:
        known = self._bases.setdefault(allowed, [])
        # A mix of items that was best elsewhere is best here too if there is room for it; the cheapest valuation is tried first.
        for values, basis, inverse in sorted(known, key=lambda b: sum(map(mul, b[0], room)))[:3]:
            levels = [sum(map(mul, row, room)) for row in inverse]
            if min(levels) >= -_EPS:
                return values, [(i, x) for i, x in zip(basis, levels, strict=True) if i >= 0 and x > _EPS]
        values, basis, inverse, levels = self._simplex(room, self.members(allowed))
        known.append((values, basis, inverse))
        return values, [(i, x) for i, x in zip(basis, levels, strict=True) if i >= 0 and x > _EPS]

    def worth_at_most(self, values: Sequence[float], room: Sequence[float], allowed: int, counts: Sequence[int]) -> float:
        """No mix of whole pods, at most `counts` of each, is worth more, whatever non-negative `values` are."""
        total: float = sum(map(mul, values, room))
        everything = 0.0
        for i in self.members(allowed):
            price = self.prices[i]
            over = price - sum(map(mul, values, self.sizes[i]))
            if over > 0:
                total += over * counts[i]
            everything += price * counts[i]
        return min(total, everything)

    def _simplex(
        self, room: Sequence[float], members: Sequence[int]
    ) -> tuple[list[float], list[int], list[list[float]], list[float]]:
        """Maximise the value of items within `room`, from nothing. Basis -1 - k is the slack of resource k."""
        count = len(room)
        basis = [-1 - k for k in range(count)]
        inverse = [[1.0 if i == j else 0.0 for j in range(count)] for i in range(count)]
        levels = list(room)
        values = [0.0] * count
        for _ in range(_TRIES):
            worth = [self.prices[b] if b >= 0 else 0.0 for b in basis]
            values = [sum(w * row[k] for w, row in zip(worth, inverse, strict=True)) for k in range(count)]
            entering, best = None, 1e-10
            for i in members:
                gain = self.prices[i] - sum(map(mul, values, self.sizes[i]))
                if gain > best * max(self.prices[i], 1e-9):
                    best, entering = gain / max(self.prices[i], 1e-9), i
            vector: Sequence[float]
            if entering is None:
                slack = next((k for k, v in enumerate(values) if v < -1e-12), None)
                if slack is None:
                    break
                entering = -1 - slack
                vector = [1.0 if k == slack else 0.0 for k in range(count)]
            else:
                vector = self.sizes[entering]
            change = [sum(a * v for a, v in zip(row, vector, strict=True)) for row in inverse]
            leaving, least = -1, float("inf")
            for i, amount in enumerate(change):
                if amount > 1e-12 and max(0.0, levels[i]) / amount < least:
                    leaving, least = i, max(0.0, levels[i]) / amount
            if leaving < 0:
                break
            pivot = change[leaving]
            row = [v / pivot for v in inverse[leaving]]
            inverse[leaving] = row
            for i, amount in enumerate(change):
                if i != leaving and amount:
                    inverse[i] = [v - amount * r for v, r in zip(inverse[i], row, strict=True)]
                    levels[i] -= amount * least
            levels[leaving] = least
            basis[leaving] = entering
        return [max(0.0, v) for v in values], basis, inverse, levels

    def whole(self, room: tuple[float, ...], allowed: int, counts: Sequence[int]) -> tuple[float, dict[int, int]]:
        """A good mix of whole pods, at most `counts` of each: (its value, pods by item)."""
        left = list(room)
        taken: dict[int, int] = {}
        values, mix = self.best(room, allowed)
        for i, x in sorted(mix, key=lambda m: (-m[1], m[0])):
            self._take(i, min(int(x + 1e-6), counts[i] - taken.get(i, 0)), left, taken)
        # What rounding left over, best fit first: the highest value for the room it takes, at the prices of this machine.
        for i in self._order(values, allowed):
            self._take(i, counts[i] - taken.get(i, 0), left, taken)
        return sum(self.prices[i] * n for i, n in taken.items()), taken

    def _order(self, values: Sequence[float], allowed: int) -> list[int]:
        """Members by what a unit of their price costs at these values, which are one of the market's own answers."""
        order = self._orders.get((id(values), allowed))
        if order is None:
            ranked = []
            for i in self.members(allowed):
                cost = sum(map(mul, values, self.sizes[i]))
                ranked.append((cost / self.prices[i] if self.prices[i] else 0.0, -self.prices[i], i))
            ranked.sort()
            order = self._orders[id(values), allowed] = [i for _, _, i in ranked]
        return order

    def deep(self, room: tuple[float, ...], allowed: int, counts: Sequence[int]) -> tuple[float, dict[int, int]]:
        """As `whole`, also with one pod of each item put there first: as many times the work."""
        best = self.whole(room, allowed, counts)
        for i in self.members(allowed):
            if not counts[i]:
                continue
            left = tuple(r - s for r, s in zip(room, self.sizes[i], strict=True))
            if min(left) < -1e-9:
                continue
            fewer = list(counts)
            fewer[i] -= 1
            worth, mix = self.whole(tuple(max(0.0, r) for r in left), allowed, fewer)
            if worth + self.prices[i] > best[0] + 1e-12:
                best = (worth + self.prices[i], {**mix, i: mix.get(i, 0) + 1})
        return best

    def _take(self, i: int, most: int, left: list[float], taken: dict[int, int]) -> None:
        if most <= 0:
            return
        size = self.sizes[i]
        for k, amount in enumerate(size):
            if amount > 0:
                most = min(most, int((left[k] + 1e-9) / amount))
        if most > 0:
            for k, amount in enumerate(size):
                left[k] -= amount * most
            taken[i] = taken.get(i, 0) + most
