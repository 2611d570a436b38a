"""What a Problem asks for and what could be bought for it, as vectors: items (pods alike in size and wishes) and machines.

Everything that is left out here (topology, ports, minValues, labels that exclude each other) only makes plans dearer, so bounds
made from it hold; plans made from it are checked by the solver when they are carried out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kubewright.api import aws_labels
from kubewright.api import labels as names
from kubewright.api.quantity import ONE
from kubewright.catalogue.columns import bits
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.resources import NODES
from kubewright.solver.classes import Ask, PodClass
from kubewright.solver.templates import State, Template

Pins = tuple[tuple[str, str], ...]
"""(label key, the one value of it), by key."""


class Item:
    """Pods of the same requests that ask the same of nodes, in any of the forms that relaxing allows."""

    __slots__ = ("asks", "classes", "most", "pins", "requests")

    def __init__(self, requests: Mapping[str, int], asks: tuple[Ask, ...], pins: Pins = (), most: int = 0) -> None:
        self.requests = requests
        self.asks = asks
        self.pins = pins
        """Where they must go; none in bounds, which leave topology out."""
        self.most = most
        """How many pods of one class a machine takes; 0: as many as fit."""
        self.classes: list[PodClass] = []


class Machine(NamedTuple):
    """A row of a template's columns, bought as the cheapest offering that is open to the same items."""

    template: int
    row: int
    usd: float
    """What it costs an hour, the constant per node included."""
    room: tuple[float, ...]
    """For pods, after DaemonSets, in the units of `Vectors`."""
    allowed: int
    """Mask of the items that may go there."""
    reservation: str
    """Id of a capacity reservation, "" for what is sold to everybody."""
    capacity: int
    """Machines that the reservation has left."""
    exotic: bool
    """Whether it is bought only for pods that nothing else suits."""
    uses: tuple[tuple[int, float], ...] = ()
    """(index of a `Limit`, how much of it one such machine takes)."""


class Limit(NamedTuple):
    """What there is of something: a resource that a NodePool may still buy, or pods that may call for an exotic machine."""

    template: int
    """-1: of exotic machines of all templates."""
    resource: str
    left: float


class Vectors:
    """The resources that count, and the scale in which they are compared."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.resources = sorted({name for item in items for name, amount in item.requests.items() if amount > 0})
        self.scale = [max(item.requests.get(name, 0) for item in items) for name in self.resources]

    def of(self, amounts: Mapping[str, int]) -> tuple[float, ...]:
        return tuple(amounts.get(name, 0) / scale for name, scale in zip(self.resources, self.scale, strict=True))


def items_of(classes: Sequence[PodClass]) -> list[Item]:
    """Items of those classes that can be placed at all, in the order in which classes first show them."""
    found: dict[tuple[object, ...], Item] = {}
    for one in classes:
        if one.refusal is not None:
            continue
        asks = tuple({ask.id: ask for variant in one.variants for ask in variant.asks}.values())
        identity = (tuple(sorted(one.requests.items())), tuple(sorted(ask.id for ask in asks)))
        item = found.get(identity)
        if item is None:
            item = found[identity] = Item(one.requests, asks)
        item.classes.append(one)
    return list(found.values())


def limits_of(templates: Sequence[Template]) -> list[Limit]:
    """What the NodePools' limits leave, by template and resource."""
    return [
        Limit(index, name, max(0, left) / ONE)
        for index, template in enumerate(templates)
        for name, left in sorted(template.remaining.items())
    ]


def machines_of(
    templates: Sequence[Template],
    items: Sequence[Item],
    vectors: Vectors,
    limits: Sequence[Limit] = (),
    node_usd: float = 0.0,
    most_cpu: int = 0,
) -> list[Machine]:
    """Every machine that some item may go to, without those that another one beats; by price, then template and row.

    `node_usd` is what a node costs an hour beyond its price; less than 0 to prefer many. Machines of more than `most_cpu`
    (billionths; 0: no cap) count as exotic, but for pools that say themselves how large their machines are.
    """
    found: list[Machine] = []
    for index, template in enumerate(templates):
        affordable = template.affordable()
        if not isinstance(affordable, Refusal):
            mine = [(i, limit.resource) for i, limit in enumerate(limits) if limit.template == index]
            plain = plain_rows(template, most_cpu)
            found += _of_template(index, template, affordable & template.rows, items, vectors, mine, node_usd, plain)
    found.sort(key=lambda m: (m.usd, m.template, m.row, m.reservation, m.allowed))
    kept: list[Machine] = []
    rivals: dict[int, list[Machine]] = {}
    for one in found:
        others = rivals.setdefault(one.template, [])
        # What beats a machine is most often about as dear.
        if one.reservation or not any(_beats(other, one) for other in reversed(others)):
            kept.append(one)
            if not one.reservation:
                others.append(one)
    return kept


def _beats(other: Machine, one: Machine) -> bool:
    """Whether a machine of the same template that costs no more, and uses no more of limits, takes all that `one` takes."""
    if one.allowed & ~other.allowed or other.exotic > one.exotic:
        return False
    for a, b in zip(other.room, one.room, strict=True):
        if a < b:
            return False
    return all(a[1] <= b[1] for a, b in zip(other.uses, one.uses, strict=True))


_SIZED_BY = frozenset((names.INSTANCE_TYPE, aws_labels.INSTANCE_CPU, aws_labels.INSTANCE_SIZE, aws_labels.INSTANCE_MEMORY))
"""Labels by which a NodePool says how large its machines are."""


def plain_rows(template: Template, most_cpu: int) -> int:
    """Rows that are bought without a pod that nothing else suits: not exotic, and of at most `most_cpu` (0: any)."""
    columns = template.columns
    if not most_cpu or _SIZED_BY & template.written.keys():
        return columns.plain
    return columns.plain & ~columns.capacity("cpu").more_than(most_cpu)


def tiers(templates: Sequence[Template]) -> list[list[int]]:
    """Indices of templates of the same weight, heaviest first: what a heavier pool takes no lighter one gets."""
    found: dict[int, list[int]] = {}
    for index, template in enumerate(templates):
        found.setdefault(template.pool.spec.weight or 0, []).append(index)
    return [found[weight] for weight in sorted(found, reverse=True)]


def states_of(template: Template, item: Item) -> list[State]:
    """What a machine of the template would be with such a pod on it, for every form of the pod."""
    found: list[State] = []
    for ask in item.asks:
        state = template.start.with_ask(ask)
        for key, value in item.pins:
            if isinstance(state, State):
                state = next((p.state for p in state.pins(key) if p.value == value), _NOWHERE)
        if isinstance(state, State) and state not in found:
            found.append(state)
    return found


_NOWHERE = Refusal(Because.LABEL, "", "", "")


def _of_template(
    index: int,
    template: Template,
    rows: int,
    items: Sequence[Item],
    vectors: Vectors,
    limits: Sequence[tuple[int, str]],
    node_usd: float,
    plain: int,
) -> list[Machine]:
    columns = template.columns
    asking: dict[State, int] = {}
    fitting: dict[int, int] = {}
    for i, item in enumerate(items):
        for row in bits(template.fit.holding(item.requests) & rows):
            fitting[row] = fitting.get(row, 0) | 1 << i
        for state in states_of(template, item):
            asking[state] = asking.get(state, 0) | 1 << i
    best: dict[tuple[int, int, str], tuple[float, int]] = {}
    for kind in columns.kinds:
        having = [(s.rows, wanting) for s, wanting in asking.items() if kind.index in s.kinds]
        if not having:
            continue
        for row in bits(kind.rows & rows):
            allowed = 0
            for mask, wanting in having:
                if mask >> row & 1:
                    allowed |= wanting
            allowed &= fitting.get(row, 0)
            if allowed:
                key = (row, allowed, kind.reservation)
                price = kind.prices[row]
                if key not in best or price < best[key][0]:
                    best[key] = (price, kind.capacity)
    found: list[Machine] = []
    for (row, allowed, reservation), (usd, capacity) in best.items():
        extra = template.fit.taken(row)
        room = vectors.of({k: v - extra.get(k, 0) for k, v in columns.rows[row].allocatable.items()})
        exotic = not plain >> row & 1
        size = columns.rows[row].type.capacity
        uses = tuple((i, 1.0 if name == NODES else size.get(name, 0) / ONE) for i, name in limits)
        found.append(Machine(index, row, max(usd + node_usd, usd / 20), room, allowed, reservation, capacity, exotic, uses))
    return found


def is_movable(one: PodClass) -> bool:
    """Whether only size, labels and taints bind these pods, and nothing about other pods changes by where they are."""
    return (
        one.refusal is None
        and len(one.variants) == 1
        and len(one.variants[0].asks) == 1
        and not one.ports
        and not one.claims
        and not one.counted_in
        and not is_bound(one)
    )


def is_bound(one: PodClass) -> bool:
    return any(v.rules is not None and v.rules.any for v in one.variants)
