"""The room on nodes that stand or are on their way, which is paid for: pooled, so that it takes part in prices and bounds."""

from collections.abc import Sequence
from typing import NamedTuple

from kubewright.catalogue.columns import bits
from kubewright.packing.machines import Item, Vectors
from kubewright.solver.nodes import NodeTable

MOST_POOLS = 12
"""Nodes that differ in what they accept beyond this are pooled as if they accepted all that any of them does."""


class Stock(NamedTuple):
    """What nodes that accept the same items have left, together."""

    room: tuple[float, ...]
    """In the units of `Vectors`."""
    allowed: int
    """Mask of the items that may go there."""
    single: tuple[tuple[float, ...], ...]
    """Room of each node."""


def stocks_of(table: NodeTable, items: Sequence[Item], vectors: Vectors) -> list[Stock]:
    """By what is accepted, largest pools first. Nodes on which something is overdrawn take nothing, here as in the solver."""
    masks = [0] * len(items)
    for i, item in enumerate(items):
        for ask in item.asks:
            masks[i] |= table.allowed(ask)
    grouped: dict[int, list[tuple[float, ...]]] = {}
    sizes = [vectors.of(item.requests) for item in items]
    everyone = 0
    for mask in masks:
        everyone |= mask
    for allowed, nodes in _alike(masks, table.open & everyone):
        fitting = [s for i, s in enumerate(sizes) if allowed >> i & 1]
        known: dict[tuple[float, ...], tuple[float, ...] | None] = {}
        rooms: list[tuple[float, ...]] = []
        for index in bits(nodes):
            free = vectors.of(table.nodes[index].free)
            if free not in known:
                known[free] = usable(free, fitting)
            room = known[free]
            if room is not None:
                rooms.append(room)
        if rooms:
            grouped[allowed] = rooms
    ordered = sorted(grouped.items(), key=lambda g: (-len(g[1]), g[0]))
    if len(ordered) > MOST_POOLS:
        rest = ordered[MOST_POOLS - 1 :]
        union = 0
        for allowed, _ in rest:
            union |= allowed
        ordered = [*ordered[: MOST_POOLS - 1], (union, [room for _, rooms in rest for room in rooms])]
    return [Stock(tuple(map(sum, zip(*rooms, strict=True))), allowed, tuple(rooms)) for allowed, rooms in ordered]


def _alike(masks: Sequence[int], nodes: int) -> list[tuple[int, int]]:
    """(mask of items, mask of the nodes that accept these and no others), for `masks` of nodes by item."""
    found = [(0, nodes)] if nodes else []
    for i, mask in enumerate(masks):
        parted = [(allowed | 1 << i, among & mask) for allowed, among in found]
        parted += [(allowed, among & ~mask) for allowed, among in found]
        found = [(allowed, among) for allowed, among in parted if among]
    return found


def usable(room: Sequence[float], sizes: Sequence[Sequence[float]]) -> tuple[float, ...] | None:
    """`room` without what can never be used: no more of anything than the most pods that fit could take; None if none fits.

    This is what makes a node that is short of pod slots, or of any one thing, count as short of everything.
    """
    fitting = [s for s in sizes if all(a <= r + 1e-9 for a, r in zip(s, room, strict=True))]
    if not fitting:
        return None
    most = float("inf")
    for k, amount in enumerate(room):
        least = min(s[k] for s in fitting)
        if least > 0:
            most = min(most, int(amount / least + 1e-9))
    return tuple(min(amount, most * max(s[k] for s in fitting)) for k, amount in enumerate(room))
