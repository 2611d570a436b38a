"""Other machines for the same pods: sets that cost less and have the room together, then whether the pods fit on them.

First the set, then the packing: prices come in large steps, so what saves is most often another set and not another mix.
"""

from collections.abc import Iterator, Sequence
from operator import mul

from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Machine

_NODES = 200
"""Begun sets that are gone on with; each that is looked at counts a little, too."""
_EACH = 0.1
_NODES_A_STEP = 5
_TRIED = 6
"""Sets of which it is tried whether the pods fit."""


class Covers:
    """Cheaper sets of machines for some pods; counts its steps as `fill.Search` does."""

    def __init__(self, machines: Sequence[Machine], sizes: Sequence[Sequence[float]], unit: Sequence[float]) -> None:
        """`unit` is about what a unit of each resource costs; it only guides and cuts short the search."""
        self.machines = machines
        self.sizes = sizes
        worths = [sum(map(mul, unit, m.room)) for m in machines]
        scale = min((m.usd / w for m, w in zip(machines, worths, strict=True) if w > 0), default=0.0)
        self.unit = [u * scale for u in unit]
        self.used = 0

    def cheaper(
        self, counts: Sequence[int], mosts: Sequence[int], market: Market, below: float
    ) -> list[tuple[Machine, dict[int, int]]] | None:
        """The pods on machines that cost less than `below` together; None where none were found."""
        mask = sum(1 << i for i, n in enumerate(counts) if n)
        live = [m for m in self.machines if not mask & ~m.allowed]
        if not live:
            return None
        need = [sum(n * self.sizes[i][k] for i, n in enumerate(counts) if n) for k in range(len(self.unit))]
        found = sorted(self._sets(live, need, below), key=lambda s: (s[0], len(s[1]), s[1]))
        for _, chosen in found[:_TRIED]:
            bins = sorted((live[at] for at in chosen), key=lambda m: (-m.usd, m.row))
            self.used += 3 * len(bins)
            placed = self._in_turn(bins, counts, mosts, market, mask) or self._by_size(bins, counts, mosts)
            if placed is not None:
                return [(m, mix) for m, mix in zip(bins, placed, strict=True) if mix]
        return None

    def _sets(self, live: Sequence[Machine], need: Sequence[float], below: float) -> Iterator[tuple[float, tuple[int, ...]]]:
        """(price, indices into `live`) of sets that have the room and cost less."""
        unit, limit = self.unit, below - 1e-9
        worths = [sum(map(mul, unit, m.room)) for m in live]
        order = sorted(range(len(live)), key=lambda at: (-worths[at] / live[at].usd, at))
        ranked = [(live[at].usd, worths[at], live[at].room, at) for at in order]
        stack: list[tuple[float, int, tuple[int, ...], list[float], float]] = [
            (0.0, 0, (), list(need), sum(map(mul, unit, need)))
        ]
        left = float(_NODES)
        while stack and left > 0:
            usd, first, chosen, missing, value = stack.pop()
            left -= 1
            further: list[tuple[float, int, tuple[int, ...], list[float], float]] = []
            for place in range(first, len(ranked)):
                own, worth, room, at = ranked[place]
                price = usd + own
                # What is still missing afterwards costs at least as much as at the best machine's price for it.
                if price >= limit or price + value - worth >= limit:
                    continue
                left -= _EACH
                still = [n - r if n > r else 0.0 for n, r in zip(missing, room, strict=True)]
                rest = sum(map(mul, unit, still))
                if rest <= 1e-9 and max(still) <= 1e-9:
                    yield price, (*chosen, at)
                elif price + rest < limit:
                    further.append((price, place, (*chosen, at), still, rest))
            stack += reversed(further)
        self.used += int(_NODES - left) // _NODES_A_STEP

    def _in_turn(
        self, bins: Sequence[Machine], counts: Sequence[int], mosts: Sequence[int], market: Market, mask: int
    ) -> list[dict[int, int]] | None:
        """Each filled with the mix that suits it best; None when something is left."""
        left = list(counts)
        found: list[dict[int, int]] = []
        for machine in bins:
            present = sum(1 << i for i, n in enumerate(left) if n)
            _, mix = market.whole(machine.room, mask & present, list(map(min, left, mosts)))
            for i, n in mix.items():
                left[i] -= n
            found.append(mix)
        return None if any(left) else found

    def _by_size(self, bins: Sequence[Machine], counts: Sequence[int], mosts: Sequence[int]) -> list[dict[int, int]] | None:
        """The largest pods first, each where its shape suits the room best; None when one does not fit."""
        rooms = [list(m.room) for m in bins]
        found: list[dict[int, int]] = [{} for _ in bins]
        weight = [u + 1e-12 for u in self.unit]
        order = sorted((i for i, n in enumerate(counts) if n), key=lambda i: (-sum(map(mul, weight, self.sizes[i])), i))
        for i in order:
            size = self.sizes[i]
            losses = [_loss(size, room) for room in rooms]
            for _ in range(counts[i]):
                best, least = -1, float("inf")
                for at, lost in enumerate(losses):
                    if lost < least - 1e-12 and found[at].get(i, 0) < mosts[i]:
                        best, least = at, lost
                if best < 0:
                    return None
                found[best][i] = found[best].get(i, 0) + 1
                rooms[best] = [r - s for r, s in zip(rooms[best], size, strict=True)]
                losses[best] = _loss(size, rooms[best])
        return found


def _loss(size: Sequence[float], room: Sequence[float]) -> float:
    """How badly the shape of a pod suits the room; infinite where it does not fit."""
    for s, r in zip(size, room, strict=True):
        if s > r + 1e-9:
            return float("inf")
    shares = [s / (r + 1e-12) for s, r in zip(size, room, strict=True) if s > 0]
    return max(shares) - sum(shares) / len(shares)
