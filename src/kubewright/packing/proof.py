"""What prices of pods prove: a bound that holds whatever the prices are, so it does not rest on how they were found.

Prices under which no machine holds more than it costs add up to a bound (linear programming duality, after Gilmore and Gomory;
the scaling is Farley's). What a limit, or the room on existing nodes, could save at most is taken off, at any worth of a unit.
"""

from collections.abc import Sequence
from typing import Protocol

from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Limit, Machine
from kubewright.packing.stock import Stock

_SINGLY = 200
"""Existing nodes up to which each is also asked alone what it could take."""


class Asked(Protocol):
    """What there is to place and to buy; `counts` are the pods by item, `mosts` how many of them one machine may take."""

    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def mosts(self) -> Sequence[int]: ...
    @property
    def sizes(self) -> Sequence[Sequence[float]]: ...
    @property
    def machines(self) -> Sequence[Machine]: ...
    @property
    def stocks(self) -> Sequence[Stock]: ...
    @property
    def limits(self) -> Sequence[Limit]: ...


def prove(
    asked: Asked,
    market: Market,
    tolls: Sequence[float],
    rates: Sequence[Sequence[float]],
    ranked: list[tuple[float, int]] | None = None,
) -> float:
    """USD per hour that every plan costs at least.

    `tolls` is what a unit of each limit is worth, `rates` by stock what a unit of each resource there is; missing ones mean 0.
    Any values that are not negative prove something. `ranked` gets (what a machine costs by what it can hold at most, its index).
    """
    counts = asked.counts
    scale = 1.0
    reserved: list[tuple[Machine, float, float]] = []
    for at, machine in enumerate(asked.machines):
        values, _ = market.best(machine.room, machine.allowed)
        worth = market.worth_at_most(values, machine.room, machine.allowed, asked.mosts)
        usd = machine.usd + sum(tolls[i] * amount for i, amount in machine.uses if i < len(tolls))
        if machine.reservation:
            reserved.append((machine, worth, usd))
            continue
        if worth > usd:
            scale = min(scale, usd / worth)
        if ranked is not None:
            ranked.append((usd / worth if worth > 0 else float("inf"), at))
    total = scale * sum(p * n for p, n in zip(market.prices, counts, strict=True))
    spare: dict[str, float] = {}
    for machine, worth, usd in reserved:
        saved = machine.capacity * max(0.0, scale * worth - usd)
        spare[machine.reservation] = max(saved, spare.get(machine.reservation, 0.0))
    total -= sum(spare[name] for name in sorted(spare))
    total -= sum(toll * limit.left for toll, limit in zip(tolls, asked.limits, strict=False))
    return total - scale * _room(asked, market, rates)


def _room(asked: Asked, market: Market, rates: Sequence[Sequence[float]]) -> float:
    """What existing nodes could take at most, at the market's prices."""
    total = 0.0
    for index, stock in enumerate(asked.stocks):
        values, _ = market.best(stock.room, stock.allowed)
        tries = [values, *rates[index : index + 1], [0.0] * len(stock.room)]
        least = min(market.worth_at_most(v, stock.room, stock.allowed, asked.counts) for v in tries)
        if len(stock.single) <= _SINGLY:
            alone = 0.0
            for room in stock.single:
                values, _ = market.best(room, stock.allowed)
                alone += market.worth_at_most(values, room, stock.allowed, asked.counts)
            least = min(least, alone)
        total += least
    return min(total, sum(p * n for p, n in zip(market.prices, asked.counts, strict=True)))
