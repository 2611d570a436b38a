"""Garbage collection by ownerReferences: dependents go when their owners are gone, or before, or are set free.

The namespace controller's part stands here too: a namespace that is being deleted takes what is in it along.

Source: k8s.io/kubernetes v1.36 pkg/controller/garbagecollector.
"""

from kubewright.errors import Conflict, NotFound
from kubewright.sim.objects import Item, Key, is_terminating, key_of
from kubewright.sim.runtime import Reconciler

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Collector(Reconciler):
    """Keys are ("uid", uid): what hangs on an owner, or may have lost it."""

    def start(self) -> None:
        self._living: dict[str, Item] = {}
        """Every object by its UID."""
        self.view.on_all(self._changed)

    def _changed(self, before: Item | None, after: Item | None) -> None:
        obj = after or before
        assert obj is not None
        uid = obj["metadata"]["uid"]
        references = obj["metadata"].get("ownerReferences") or ()
        if after is None:
            self._living.pop(uid, None)
            self.enqueue(("gone", uid))
            for reference in references:  # an owner in foreground deletion may wait for this one
                if _waits(self._living.get(reference["uid"])):
                    self.enqueue(("owner", reference["uid"]))
            return
        self._living[uid] = after
        if references and (before is None or before["metadata"].get("ownerReferences") != references):
            self.enqueue(("dependent", uid))
        if is_terminating(after):
            if _waits(after) or ORPHAN in (after["metadata"].get("finalizers") or ()):
                self.enqueue(("owner", uid))
            for reference in references:
                if _waits(self._living.get(reference["uid"])):
                    self.enqueue(("owner", reference["uid"]))

    def reconcile(self, key: Key) -> None:
        what, uid = key
        if what == "gone":
            for dependent in self.view.owned(uid):
                self._consider(dependent)
        elif what == "dependent":
            if (obj := self._living.get(uid)) is not None:
                self._consider(obj)
        elif (owner := self._living.get(uid)) is not None:
            finalizers = owner["metadata"].get("finalizers") or ()
            if ORPHAN in finalizers:
                self._orphan(owner)
            elif FOREGROUND in finalizers:
                self._foreground(owner)

    def _consider(self, obj: Item) -> None:
        """Delete what has only absent owners, or owners that wait for it; of several, forget the absent."""
        references = obj["metadata"].get("ownerReferences") or []
        if not references or is_terminating(obj):
            return
        solid = [r for r in references if self._exists(r) and not _waits(self._living.get(r["uid"]))]
        waiting = [r for r in references if self._exists(r) and _waits(self._living.get(r["uid"]))]
        if solid:
            if len(solid) != len(references):
                self._patch(obj, {"metadata": {"ownerReferences": solid, "resourceVersion": obj["metadata"]["resourceVersion"]}})
            return
        # What hangs on this one goes first when its owner waits for it.
        nested = bool(waiting) and bool(self.view.owned(obj["metadata"]["uid"]))
        self._delete(obj, "Foreground" if nested else _own_policy(obj))

    def _exists(self, reference: Item) -> bool:
        return reference["uid"] in self._living

    def _foreground(self, owner: Item) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for dependent in self.view.owned(uid):
            blocking |= any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in dependent["metadata"]["ownerReferences"])
            self._consider(dependent)
        if not blocking:
            self._without(owner, FOREGROUND)

    def _orphan(self, owner: Item) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in self.view.owned(uid):
            kept = [r for r in dependent["metadata"]["ownerReferences"] if r["uid"] != uid]
            self._patch(dependent, {"metadata": {"ownerReferences": kept or None}})
        self._without(owner, ORPHAN)

    def _without(self, obj: Item, finalizer: str) -> None:
        kept = [f for f in obj["metadata"].get("finalizers") or () if f != finalizer]
        version = obj["metadata"]["resourceVersion"]
        self._patch(obj, {"metadata": {"finalizers": kept or None, "resourceVersion": version}})

    def _patch(self, obj: Item, body: Item) -> None:
        try:
            self.store.patch(obj["apiVersion"], obj["kind"], *key_of(obj), body)
        except NotFound:
            return  # gone is as good

    def _delete(self, obj: Item, policy: str) -> None:
        try:
            self.store.delete(obj["apiVersion"], obj["kind"], *key_of(obj), uid=obj["metadata"]["uid"], propagation=policy)
        except (NotFound, Conflict):
            return  # gone, or another object by now


class NamespaceCollector(Reconciler):
    """Deletes what is in a namespace that is being deleted, then lets the namespace go."""

    def start(self) -> None:
        self._leaving: set[str] = set()
        self.view.on("Namespace", self._changed)
        self.view.on_all(self._content_changed)

    def _changed(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            self._leaving.discard(before["metadata"]["name"])
        elif is_terminating(after):
            self._leaving.add(after["metadata"]["name"])
            self.enqueue(key_of(after))

    def _content_changed(self, before: Item | None, after: Item | None) -> None:
        space = key_of(after or before or {})[0]
        if space in self._leaving:
            self.enqueue(("", space))

    def reconcile(self, key: Key) -> None:
        namespace = self.view.get("v1", "Namespace", key)
        if namespace is None or not is_terminating(namespace):
            return
        left = False
        for kind in self.view.kinds():
            if not kind.namespaced:
                continue
            for obj in list(self.store.table(kind).items(key[1])):
                if not is_terminating(obj):
                    self.store.delete(kind.api_version, kind.kind, *key_of(obj), uid=obj["metadata"]["uid"])
                left = left or self.store.table(kind).get(key_of(obj)) is not None
        if not left and (namespace.get("spec") or {}).get("finalizers"):
            self.store.update({**namespace, "spec": {"finalizers": []}}, "finalize")


def _waits(owner: Item | None) -> bool:
    """Whether an owner is only there still because its dependents are."""
    return owner is not None and is_terminating(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())


def _own_policy(obj: Item) -> str:
    finalizers = obj["metadata"].get("finalizers") or ()
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
