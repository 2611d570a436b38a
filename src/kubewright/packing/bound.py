"""A lower bound: what no plan for the same pods can undercut.

Prices of pods under which no machine holds more than it costs add up to a bound (linear programming duality, after Gilmore and
Gomory; the scaling is Farley's). It holds whatever the prices are, so it does not rest on how they were found. Room on existing
nodes and reserved machines is taken off at its full worth.
"""

from collections.abc import Collection, Sequence

from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Item, Machine, Vectors, items_of, machines_of
from kubewright.packing.prices import Mixes
from kubewright.solver.build import Parts
from kubewright.solver.problem import Plan, Problem

_SAFE = 1 - 1e-7
"""Against rounding: far more than a sum of a few hundred thousand floats can be off."""


class Unbound(Parts):
    """The parts of a pass without topology, which a bound leaves out."""

    def _add_topology(self) -> None:
        pass


class Question:
    """A Problem as items and machines, with the pods that count."""

    def __init__(self, parts: Parts, plan: Plan) -> None:
        """Only pods that `plan` places count; those on its claims are what prices are sought for."""
        self.parts = parts
        self.items: list[Item] = items_of(parts.classes)
        self.vectors = Vectors(self.items)
        self.machines: list[Machine] = machines_of(parts.templates, self.items, self.vectors)
        bought = {pod for claim in plan.claims for pod in claim.pods}
        self.counts = [_count(item, plan.unplaced, inside=False) for item in self.items]
        self.bought = [_count(item, bought, inside=True) for item in self.items]


def bound(problem: Problem, plan: Plan, steps: int) -> float:
    """USD per hour that every plan for the pods that `plan` places costs at least; 0 when nothing can be said.

    With 0 steps it is the fractional one; `steps` (machines looked at) go into column generation, which makes it tighter.
    """
    if not plan.claims:
        return 0.0
    question = Question(Unbound(problem), plan)
    return best_bound(question, steps)[0]


def best_bound(question: Question, steps: int) -> tuple[float, list[float]]:
    """(USD per hour, the prices to pack by)."""
    if not question.machines or not any(question.bought):
        return 0.0, [0.0] * len(question.items)
    sizes = [question.vectors.of(item.requests) for item in question.items]
    mixes = Mixes(sizes, question.bought, question.machines)
    rough = mixes.prices
    mixes.improve(steps)
    found = max(0.0, proven(question, rough))
    if mixes.prices is not rough:
        found = max(found, proven(question, mixes.prices))
    return found, mixes.prices


def proven(question: Question, prices: Sequence[float]) -> float:
    """The bound that these prices prove, for any non-negative prices."""
    counts, vectors = question.counts, question.vectors
    sizes = [vectors.of(item.requests) for item in question.items]
    market = Market(sizes, prices)
    scale = 1.0
    reserved: list[tuple[Machine, float]] = []
    for machine in question.machines:
        values, _ = market.best(machine.room, machine.allowed)
        worth = market.worth_at_most(values, machine.room, machine.allowed, counts)
        if machine.reservation:
            reserved.append((machine, worth))
        elif worth > machine.usd:
            scale = min(scale, machine.usd / worth)
    total = scale * sum(p * n for p, n in zip(prices, counts, strict=True))
    spare: dict[str, float] = {}
    for machine, worth in reserved:
        saved = machine.capacity * max(0.0, scale * worth - machine.usd)
        spare[machine.reservation] = max(saved, spare.get(machine.reservation, 0.0))
    return (total - sum(spare[name] for name in sorted(spare)) - scale * _free_room(question, market)) * _SAFE


def _free_room(question: Question, market: Market) -> float:
    """What existing nodes could take at most, at the market's prices."""
    table = question.parts.table
    masks = [0] * len(question.items)
    for i, item in enumerate(question.items):
        for ask in item.asks:
            masks[i] |= table.allowed(ask)
    total = 0.0
    for node in table.nodes:
        allowed = sum(1 << i for i, mask in enumerate(masks) if mask >> node.index & 1)
        if allowed and all(amount >= 0 for amount in node.free.values()):
            room = question.vectors.of(node.free)
            values, _ = market.best(room, allowed)
            total += market.worth_at_most(values, room, allowed, question.counts)
    return min(total, sum(p * n for p, n in zip(market.prices, question.counts, strict=True)))


def _count(item: Item, keys: Collection[str], *, inside: bool) -> int:
    return sum(1 for one in item.classes for pod in one.pods if (pod.key in keys) is inside)
