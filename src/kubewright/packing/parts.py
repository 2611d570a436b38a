"""What a packing pass works on: pods of a class that go to one domain, and where a former pass put them."""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

from kubewright.packing.fill import Load
from kubewright.packing.machines import Item, Pins
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import Ask, PodClass, Variant
from kubewright.solver.engine import Leeway, Progress
from kubewright.solver.topology import Allowed

MANY = 1 << 60


class Entry(NamedTuple):
    """Pods of a class in one form that go to one domain, or to one existing node."""

    cls: int
    """Index of the class."""
    variant: int
    ask: int
    """Which of the variant's asks."""
    pins: Pins
    node: int
    """Index of an existing node, -1 for new ones."""
    pods: int


class Part:
    """Pods of one class that may go where all of them may: what items are made of."""

    __slots__ = ("ask", "left", "mates", "most", "pins", "progress", "variant")

    def __init__(self, progress: Progress, variant: Variant, ask: Ask, pins: Pins, left: int, most: int, mates: str) -> None:
        self.progress = progress
        self.variant = variant
        self.ask = ask
        self.pins = pins
        self.left = left
        self.most = most
        """Pods that one machine takes of this part and of all others with the same `mates`."""
        self.mates = mates


class Planned:
    """A load that is being carried out."""

    __slots__ = ("claim", "load", "parts")

    def __init__(self, load: Load, parts: list[tuple[Part, int]]) -> None:
        self.load = load
        self.parts = parts
        self.claim: OpenClaim | None = None


def form_on_claim(one: PodClass, claim: OpenClaim) -> tuple[int, int]:
    """(variant, ask) as which pods of the class are on the claim: the first whose wishes it keeps; -1 if none."""
    for v, variant in enumerate(one.variants):
        for a, ask in enumerate(variant.asks):
            if claim.state.with_ask(ask) is claim.state:
                return v, a
    return -1, -1


def items_of_parts(parts: Sequence[Part]) -> tuple[list[Item], list[list[Part]]]:
    """Parts of the same size, wishes, domains and caps as items, in the order in which they first appear."""
    found: dict[tuple[object, ...], tuple[Item, list[Part]]] = {}
    for part in parts:
        if part.left <= 0:
            continue
        one = part.progress.one
        identity = (tuple(sorted(one.requests.items())), part.ask.id, part.pins, part.most, part.mates)
        entry = found.get(identity)
        if entry is None:
            entry = found[identity] = (Item(one.requests, (part.ask,), part.pins, part.most), [])
        entry[0].classes.append(one)
        entry[1].append(part)
    return [item for item, _ in found.values()], [mine for _, mine in found.values()]


def counts_of(owners: Sequence[Sequence[Part]]) -> list[int]:
    return [sum(p.left for p in mine) for mine in owners]


def groups(items: Sequence[Item]) -> list[int]:
    """Masks of items by domain, those bound to one first."""
    found: dict[Pins, int] = {}
    for i, item in enumerate(items):
        found[item.pins] = found.get(item.pins, 0) | 1 << i
    return [found[pins] for pins in sorted(found, key=lambda p: (not p, p))]


def pinned(leeway: Leeway, pins: Pins) -> Leeway | None:
    """`leeway` where the pins are, None where the rules do not let pods go there now."""
    if not pins:
        return None if leeway.limits and leeway.nowhere else leeway
    found = copy(leeway)
    found.limits = dict(leeway.limits)
    for key, value in pins:
        limit = found.limits.get(key)
        if limit is not None and not limit.has(value):
            return None
        found.limits[key] = Allowed({value: 0}, frozenset(), key_needed=True)
    return found
