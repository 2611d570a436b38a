"""The cluster as its pretend controllers watch it: what is there, what changed since last asked, and who owns what.

Reading is exact: every question is answered from the store's own tables, and indexes catch up with the watch history before they
are asked. So a controller that decides and writes in one synchronous step can never act on stale knowledge, and needs none of the
expectations that real ones keep. Objects are shared with the store: nobody here changes one.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.store import Store
from kubewright.sim.objects import Item, Key, controller_of, is_terminating, key_of

K = TypeVar("K")

Handler = Callable[[Item | None, Item | None], None]
"""Called with the object before (None: it is new) and after (None: it is gone)."""


class Follower:
    """One kind's changes, in order, each told once."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self.kind = kind
        self._store = store
        self._known: dict[Key, Item] = {}
        self._table = store.table(kind)
        self._position = -1
        """Of the next change in the table's history; -1 before the first listing."""

    def changes(self) -> Iterator[tuple[Item | None, Item | None]]:
        """What happened since the last call; everything there is, the first time."""
        table = self._store.table(self.kind)
        if table is not self._table or self._position < table.dropped:
            self._table = table
            yield from self._relist()
            return
        while self._position - table.dropped < len(table.history):
            change = table.history[self._position - table.dropped]
            self._position += 1
            key = key_of(change.last)
            before = self._known.pop(key, None)
            if change.after is not None:
                self._known[key] = change.after
            yield before, change.after

    def _relist(self) -> Iterator[tuple[Item | None, Item | None]]:
        self._position = self._table.dropped + len(self._table.history)
        before, self._known = self._known, {key_of(item): item for item in self._table.items()}
        for key in sorted(before.keys() | self._known.keys()):
            was, now = before.get(key), self._known.get(key)
            if was is not now:
                yield was, now


class View:
    """All kinds of a store, followed; tell `on` what to call for changes of a kind."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._version = -1
        self._followers: dict[tuple[str, str], Follower] = {}
        self._handlers: dict[tuple[str, str], list[Handler]] = {}
        self._for_all: list[Handler] = []
        self._owned: dict[str, dict[tuple[str, str, str], Item]] = {}
        self._on_node: dict[str, dict[Key, Item]] = {}
        self._strays: dict[str, dict[Key, Item]] = {}

    def on(self, kind: str, handler: Handler) -> None:
        """Call `handler` for every change of a core kind, named by its kind alone (`Pod`)."""
        self._handlers.setdefault(("", kind), []).append(handler)

    def on_all(self, handler: Handler) -> None:
        """Call `handler` for every change of every kind."""
        self._for_all.append(handler)

    def catch_up(self) -> None:
        """Take in everything that was written since the last call, and call the handlers.

        Cost: O(changes), and one comparison when there are none.
        """
        while self._version != self.store.version:
            self._version = self.store.version
            self._follow_all()
            for follower in self._followers.values():
                core = ("", follower.kind.kind) if not follower.kind.custom else (follower.kind.group, follower.kind.kind)
                handlers = [*self._for_all, *self._handlers.get(core, ())]
                for before, after in follower.changes():
                    self._index(follower.kind, before, after)
                    for handler in handlers:
                        handler(before, after)

    def get(self, api_version: str, kind: str, key: Key) -> Item | None:
        """The object as it is now, or None; also None for a kind that is not served."""
        served = self.store.kinds.by_kind(api_version, kind)
        return None if served is None else self.store.table(served).get(key if served.namespaced else ("", key[1]))

    def objects(self, api_version: str, kind: str, namespace: str = "") -> list[Item]:
        """The objects of a core kind in key order."""
        return list(self.store.table(self.store.kind(api_version, kind)).items(namespace))

    def owned(self, uid: str, kind: str = "") -> list[Item]:
        """Objects with an ownerReference to `uid`, sorted by kind, namespace and name; only of `kind` if given."""
        found = self._owned.get(uid, {})
        return [found[key] for key in sorted(found) if not kind or key[0] == kind]

    def pods_on(self, node: str) -> list[Item]:
        """Pods bound to `node`, ended ones included, sorted by namespace and name."""
        found = self._on_node.get(node, {})
        return [found[key] for key in sorted(found)]

    def strays(self, kind: str, namespace: str) -> list[Item]:
        """Pods or ReplicaSets there that no controller manages and nobody is deleting, sorted by name."""
        found = self._strays.get(f"{kind}/{namespace}", {})
        return [found[key] for key in sorted(found)]

    def kinds(self) -> list[Kind]:
        return [follower.kind for follower in self._followers.values()]

    def _follow_all(self) -> None:
        for kind in self.store.kinds:
            if kind.storage and (kind.group, kind.plural) not in self._followers:
                self._followers[kind.group, kind.plural] = Follower(self.store, kind)

    def _index(self, kind: Kind, before: Item | None, after: Item | None) -> None:
        for obj, add in ((before, False), (after, True)):
            if obj is None:
                continue
            space, name = key_of(obj)
            for reference in obj["metadata"].get("ownerReferences") or ():
                _put(self._owned, reference["uid"], (kind.kind, space, name), obj, add=add)
            if kind.kind == "Pod" and not kind.group and (node := obj["spec"].get("nodeName")):
                _put(self._on_node, node, (space, name), obj, add=add)
            if kind.kind in ("Pod", "ReplicaSet") and is_stray(obj):
                _put(self._strays, f"{kind.kind}/{space}", (space, name), obj, add=add)


def is_stray(obj: Item) -> bool:
    """Nobody manages it, and it is not on its way out."""
    return controller_of(obj) is None and not is_terminating(obj)


def _put(index: dict[str, dict[K, Item]], name: str, key: K, obj: Item, *, add: bool) -> None:
    if add:
        index.setdefault(name, {})[key] = obj
    elif name in index:
        index[name].pop(key, None)
        if not index[name]:
            del index[name]
