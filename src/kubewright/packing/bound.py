"""A lower bound: what no plan for the same pods can undercut.

Fractional over types and pod classes, with DaemonSets' part, limits and zones; tighter by column generation over whole machines
where there are steps for it. Room on existing nodes is free, reserved machines cost their own price and are as many as there are.
Topology, ports, volumes and minValues are left out, which only makes plans dearer.
"""

from collections.abc import Collection, Sequence

from kubewright.packing.knapsack import Market
from kubewright.packing.machines import Item, Limit, Machine, Vectors, is_movable, items_of, limits_of, machines_of, tiers
from kubewright.packing.prices import Mixes, resource_prices
from kubewright.packing.proof import prove
from kubewright.packing.stock import stocks_of
from kubewright.solver.build import Parts
from kubewright.solver.committed import relief
from kubewright.solver.ground import Ground
from kubewright.solver.problem import Plan, Problem

_SAFE = 1 - 1e-7
"""Against rounding: far more than a sum of a few hundred thousand floats can be off."""


class Question:
    """A Problem as items, machines, limits and room, with the pods that `plan` places; only these count."""

    def __init__(self, parts: Parts, plan: Plan, node_usd: float = 0.0) -> None:
        self.parts = parts
        self.items: list[Item] = items_of(parts.classes)
        self.vectors = Vectors(self.items)
        self.sizes = [self.vectors.of(item.requests) for item in self.items]
        self.limits: list[Limit] = limits_of(parts.templates)
        self.machines: list[Machine] = machines_of(parts.templates, self.items, self.vectors, self.limits, node_usd)
        self.counts = [_count(item, plan.unplaced) for item in self.items]
        self.mosts = self.counts
        self.stocks = stocks_of(parts.table, self.items, self.vectors)
        self.is_simple = all(is_movable(one) for item in self.items for one in item.classes)
        """Whether nothing but size, labels and taints binds anybody."""
        if self.is_simple and not self.limits:
            self._keep_to_rules()

    def _keep_to_rules(self) -> None:
        """Leave out what the solver never opens for pods bound by nothing but size, labels and taints.

        A claim of a pool is opened only for a pod that no heavier pool takes, an exotic one only for a pod that no other suits.
        """
        wanted = sum(1 << i for i, n in enumerate(self.counts) if n)
        taken = 0
        kept: list[Machine] = []
        needy = 0
        for tier in tiers(self.parts.templates):
            mine = [m for m in self.machines if m.template in tier]
            plain = exotic = 0
            for machine in mine:
                if machine.exotic:
                    exotic |= machine.allowed
                else:
                    plain |= machine.allowed
            home = (plain | exotic) & wanted & ~taken
            taken |= home
            if not home:
                continue
            calling = home & ~plain
            needy |= calling
            kept += [m for m in mine if not m.exotic or calling]
        if any(m.exotic for m in kept):
            pods = sum(n for i, n in enumerate(self.counts) if needy >> i & 1)
            self.limits.append(Limit(-1, "", float(pods)))
            kept = [m._replace(uses=((0, 1.0),)) if m.exotic else m for m in kept]
        kept.sort(key=lambda m: (m.usd, m.template, m.row, m.reservation, m.allowed))
        self.machines = kept


def bound(problem: Problem, plan: Plan, steps: int, node_usd: float = 0.0, ground: Ground | None = None) -> float:
    """USD per hour that every plan for the pods that `plan` places costs at least; 0 when nothing can be said.

    With 0 steps it is the fractional one; `steps` (machines looked at) go into column generation, which makes it tighter.
    `node_usd` is the constant per node that the plan's cost is counted with.
    """
    if not plan.claims:
        return 0.0
    # Commitments may make a plan cheaper than list prices allow, by this much at most.
    return max(0.0, best_bound(Question(Parts(problem, ground=ground), plan, node_usd), steps)[0] - relief(problem))


def best_bound(question: Question, steps: int) -> tuple[float, list[float]]:
    """(USD per hour, the prices to pack by)."""
    if not question.machines or not any(question.counts):
        return 0.0, [0.0] * len(question.items)
    mixes = Mixes(question.sizes, question.counts, question.machines, question.stocks, question.limits)
    rough = mixes.prices
    unit = resource_prices(question.sizes, question.counts, question.machines, question.stocks)
    found = max(0.0, proven(question, rough, rates=[unit] * len(question.stocks)))
    mixes.improve(steps)
    if mixes.prices is not rough:
        found = max(found, proven(question, mixes.prices, mixes.tolls, mixes.rates))
    return found, mixes.prices


def proven(
    question: Question, prices: Sequence[float], tolls: Sequence[float] = (), rates: Sequence[Sequence[float]] = ()
) -> float:
    """The bound that these prove, for any that are not negative; see `proof`."""
    return prove(question, Market(question.sizes, prices), tolls, rates) * _SAFE


def _count(item: Item, left_out: Collection[str]) -> int:
    return sum(1 for one in item.classes for pod in one.pods if pod.key not in left_out)
