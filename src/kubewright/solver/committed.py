"""Commitments in a pass: what is left of them beside all that runs, and which open claims are to use it up.

A claim that is begun on machines of a commitment stays with them, and names nothing else when it is bought, so that the cloud
cannot buy past it. First fit begins one where the commitment makes a pod cheaper than the list prices do.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.catalogue.columns import Columns
from kubewright.catalogue.commitments import EXACT, Bought, Commitments
from kubewright.catalogue.types import InstanceType
from kubewright.settings import PriceRow
from kubewright.solver.nodes import labels_of
from kubewright.solver.problem import Pool, Problem, StateNode
from kubewright.solver.templates import State

COMMITMENT = "kubewright.sh/commitment"
"""Annotation of NodeClaims: the price row that the machine is to use up. Until it is launched nothing else tells."""


class Covered(NamedTuple):
    """A row that a commitment covers, bought as one kind of offering."""

    usd: float
    amount: float
    row: int
    kind: int


class Offers:
    """Everything of one commitment that some kinds of a table sell, cheapest first."""

    def __init__(self, covered: Iterable[Covered], columns: Columns) -> None:
        self.covered = sorted(covered, key=lambda c: (c.usd, c.amount, columns.rows[c.row].type.name, c.row, c.kind))
        self._amounts: list[float] = []
        self._masks: list[int] = []
        mask = 0
        for one in sorted(self.covered, key=lambda c: c.amount):
            mask |= 1 << one.row
            self._amounts.append(one.amount)
            self._masks.append(mask)

    def rows(self, most: float) -> int:
        """Rows that use up at most so much."""
        at = bisect_right(self._amounts, most * (1 + EXACT))
        return self._masks[at - 1] if at else 0


class Committed:
    """What is left of each commitment for open claims, which are known by their index."""

    def __init__(self, problem: Problem) -> None:
        known: dict[str, InstanceType] = {}
        for pool in problem.pools:
            for kind in pool.instance_types:
                known.setdefault(kind.name, kind)
        self._known = known
        lists = {name: _list_price(kind, names.ON_DEMAND, "") for name, kind in known.items()}
        self._counted = Commitments(problem.settings.commitments, lists)
        self._held: dict[int, tuple[int, float]] = {}
        self._offers: dict[tuple[int, int, tuple[int, ...]], Offers] = {}
        for node in problem.nodes:
            self._count(node)

    @property
    def rows(self) -> Sequence[PriceRow]:
        return self._counted.rows

    def left(self, index: int, claim: int | None = None) -> float:
        """What a claim can use of the commitment: what nothing uses yet, and what it holds itself."""
        own = self._held.get(claim, (-1, 0.0)) if claim is not None else (-1, 0.0)
        return self._counted.left[index] + (own[1] if own[0] == index else 0.0)

    def holding(self, claim: int) -> int | None:
        """Index of the commitment that the claim uses, None if it uses none."""
        return self._held[claim][0] if claim in self._held else None

    def choices(self, claim: int, state: State) -> Iterator[tuple[int, int]]:
        """(commitment, rows it covers) for a claim in this state: the one it is held to, or any with something left."""
        held = self.holding(claim)
        for index in range(len(self.rows)) if held is None else (held,):
            most = self.left(index, claim)
            mask = self.offers(state, index).rows(most) & state.rows if most > 0 else 0
            if mask:
                yield index, mask

    def cheapest(self, index: int, claim: int, state: State, rows: int) -> Covered:
        """What the claim is expected to be bought as, if it is one of `rows` that the commitment covers."""
        most = self.left(index, claim) * (1 + EXACT)
        return next(c for c in self.offers(state, index).covered if rows >> c.row & 1 and c.amount <= most)

    def hold(self, index: int, claim: int, state: State, rows: int) -> None:
        """Set aside what the claim will use."""
        chosen = self.cheapest(index, claim, state, rows)
        self.release(claim)
        self._counted.left[index] -= chosen.amount
        self._held[claim] = (index, chosen.amount)

    def release(self, claim: int) -> None:
        index, amount = self._held.pop(claim, (-1, 0.0))
        if amount:
            self._counted.left[index] += amount

    def bought(self, claim: int, state: State, rows: int) -> list[Covered]:
        """What the claim may be bought as, cheapest first."""
        index = self._held[claim][0]
        most = self.left(index, claim) * (1 + EXACT)
        return [c for c in self.offers(state, index).covered if rows >> c.row & 1 and c.amount <= most]

    def most_saved(self) -> float:
        """USD per hour, if all that is left is used where it saves most."""
        total = 0.0
        for index in range(len(self.rows)):
            best = 0.0
            for kind in self._known.values():
                for offering in kind.offerings:
                    machine = Bought(kind.name, offering.capacity_type, offering.zone, offering.price)
                    terms = self._counted.terms(index, machine)
                    if terms is not None and terms.amount > 0:
                        best = max(best, (offering.price - terms.usd) / terms.amount)
            total += best * self.left(index)
        return total

    def offers(self, state: State, index: int) -> Offers:
        columns = state.template.columns
        key = (id(columns), index, state.kinds)
        found = self._offers.get(key)
        if found is None:
            found = self._offers[key] = Offers(self._covered(columns, index, state.kinds), columns)
        return found

    def _covered(self, columns: Columns, index: int, kinds: tuple[int, ...]) -> Iterator[Covered]:
        for k in kinds:
            kind = columns.kinds[k]
            if kind.reservation:
                continue
            zone = kind.requirements[names.ZONE].any() if names.ZONE in kind.requirements else ""
            capacity_type = kind.requirements[names.CAPACITY_TYPE].any() if names.CAPACITY_TYPE in kind.requirements else ""
            for row, price in kind.prices.items():
                terms = self._counted.terms(index, Bought(columns.rows[row].type.name, capacity_type, zone, price))
                if terms is not None:
                    yield Covered(terms.usd, terms.amount, row, k)

    def _count(self, node: StateNode) -> None:
        machine = _bought(node, self._known)
        if machine is not None:
            self._counted.take(machine)
        elif node.claim is not None and COMMITMENT in node.claim.metadata.annotations:
            self._promise(node.claim.metadata.annotations[COMMITMENT], _types_of(node))

    def _promise(self, name: str, types: Sequence[str]) -> None:
        """A machine that was bought for a commitment and is not known yet uses as much as the smallest it may be."""
        for index, row in enumerate(self.rows):
            if row.name != name:
                continue
            amounts = [
                terms.amount
                for one in types
                if one in self._known and (terms := self._counted.terms(index, _anywhere(self._known[one], row))) is not None
            ]
            self._counted.left[index] = max(0.0, self._counted.left[index] - min(amounts, default=0.0))


def relief(problem: Problem) -> float:
    """USD per hour that commitments can save at most beside what runs: by so much a plan may undercut a bound at list prices."""
    if not problem.settings.commitments:
        return 0.0
    return Committed(problem).most_saved()


def covered(nodes: Sequence[StateNode], pools: Iterable[Pool], rows: Sequence[PriceRow]) -> tuple[StateNode, ...]:
    """The nodes, those that commitments cover with what they cost then. Nodes that stay are covered first, by name.

    Who covers whom is the bill's affair; to take them in one order makes a covered node look cheap, so that a saving is never
    counted that would only pass its cover on.
    """
    if not any(row.is_limited for row in rows):
        return tuple(nodes)
    known: dict[str, InstanceType] = {}
    for pool in pools:
        for kind in pool.instance_types:
            known.setdefault(kind.name, kind)
    counted = Commitments(rows, {name: _list_price(kind, names.ON_DEMAND, "") for name, kind in known.items()})
    costs: dict[int, float] = {}
    for i in sorted(range(len(nodes)), key=lambda i: nodes[i].marked_for_deletion):
        machine = _bought(nodes[i], known)
        cost = counted.take(machine) if machine is not None else None
        if machine is not None and cost is not None and cost < machine.usd:
            costs[i] = cost
    return tuple(replace(n, usd_per_hour=costs[i]) if i in costs else n for i, n in enumerate(nodes))


def _bought(node: StateNode, known: Mapping[str, InstanceType]) -> Bought | None:
    """The machine of a node; None while it is not known which."""
    carried = labels_of(node)
    name = carried.get(names.INSTANCE_TYPE, "")
    if not name:
        return None
    zone, capacity_type = carried.get(names.ZONE, ""), carried.get(names.CAPACITY_TYPE, "")
    return Bought(name, capacity_type, zone, _list_price(known[name], capacity_type, zone) if name in known else 0.0)


def _types_of(node: StateNode) -> Sequence[str]:
    assert node.claim is not None
    return [value for r in node.claim.spec.requirements if r.key == names.INSTANCE_TYPE for value in r.values]


def _anywhere(kind: InstanceType, row: PriceRow) -> Bought:
    return Bought(kind.name, row.capacity_type, row.zone, _list_price(kind, row.capacity_type, row.zone))


def _list_price(kind: InstanceType, capacity_type: str, zone: str) -> float:
    """0 if it is not sold so; whether it can be had at the moment does not matter."""
    prices = (o.price for o in kind.offerings if o.capacity_type == capacity_type and zone in ("", o.zone))
    return min(prices, default=0.0)


def commitments_of(rows: Iterable[PriceRow]) -> tuple[PriceRow, ...]:
    """Those of a price list that a pass must know of; plain prices stand in the catalogue already."""
    return tuple(row for row in rows if row.is_limited)
