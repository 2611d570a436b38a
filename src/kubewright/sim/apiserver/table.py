"""The objects of one kind, and the history of their changes for watchers.

A stored dict is never changed again: a write puts a new dict in its place. So lists and events hand out the stored dicts
themselves, and whoever gets one must not change it either.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Key = tuple[str, str]
"""(namespace, name); the namespace is "" for cluster-scoped kinds."""

Item = dict[str, Any]


def thaw(obj: Mapping[str, Any]) -> Item:
    """A private copy of a wire object; tuples, enums and dates become what JSON makes of them."""
    copied: Item = msgspec.json.decode(msgspec.json.encode(obj))
    return copied


class Change(msgspec.Struct, frozen=True, gc=False):
    """One write: `before` is None for a creation, `after` None for a removal."""

    version: int
    before: Item | None
    after: Item | None
    last: Item
    """What was written, or for a removal the object's last state, carrying the removal's version."""


class Table:
    """Objects by key, sorted as etcd sorts them, with the last `window` changes."""

    def __init__(self, window: int, oldest_version: int = 0) -> None:
        self._by_namespace: dict[str, dict[str, Item]] = {}
        self._order: dict[str, list[str]] = {}
        self._window = window
        self.history: list[Change] = []
        self.dropped = 0
        """How many changes have left the history; the history's index i is change number dropped + i."""
        self.oldest_version = oldest_version
        """A watch must start at this version or later; 0 while nothing was dropped of a kind that was always served."""
        self._sleepers: list[asyncio.Future[None]] = []

    def get(self, key: Key) -> Item | None:
        return self._by_namespace.get(key[0], {}).get(key[1])

    def __len__(self) -> int:
        return sum(len(names) for names in self._by_namespace.values())

    def items(self, namespace: str = "") -> Iterator[Item]:
        """Everything in a namespace, or everywhere, in key order."""
        for space in (namespace,) if namespace else sorted(self._by_namespace):
            names = self._by_namespace.get(space)
            if not names:
                continue
            order = self._order.get(space)
            if order is None:
                order = self._order[space] = sorted(names)
            for name in order:
                yield names[name]

    def put(self, key: Key, item: Item, version: int) -> None:
        names = self._by_namespace.setdefault(key[0], {})
        before = names.get(key[1])
        if before is None:
            self._order.pop(key[0], None)
        names[key[1]] = item
        self._note(Change(version, before, item, item))

    def remove(self, key: Key, last: Item, version: int) -> None:
        names = self._by_namespace[key[0]]
        before = names.pop(key[1])
        if not names:
            del self._by_namespace[key[0]]
        self._order.pop(key[0], None)
        self._note(Change(version, before, None, last))

    def position_after(self, version: int) -> int:
        """The number of the first change later than `version`."""
        return self.dropped + bisect_right(self.history, version, key=lambda change: change.version)

    def forget_before(self, version: int) -> None:
        """Drop the history up to and including `version`, as etcd's compaction does."""
        self._drop(self.position_after(version) - self.dropped)
        self.oldest_version = max(self.oldest_version, version)

    def next_change(self) -> asyncio.Future[None]:
        """Done when the next change lands."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        return sleeper

    def wake(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    def _note(self, change: Change) -> None:
        self.history.append(change)
        if len(self.history) >= 2 * self._window:  # twice, so that dropping costs O(1) a write
            self._drop(len(self.history) - self._window)
        self.wake()

    def _drop(self, count: int) -> None:
        if count <= 0:
            return
        self.oldest_version = self.history[count - 1].version
        del self.history[:count]
        self.dropped += count
