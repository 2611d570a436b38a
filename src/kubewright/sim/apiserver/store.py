"""An API server's store: objects as the wire has them, and the server's semantics, in one synchronous object.

Time comes from a clock and names from a seed, so the same calls give the same bytes. What is read by `get` or returned by a
write is the caller's own; what `list` and `watch` hand out is shared with the store, and must not be changed.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from kubewright.kube.client import JsonPatch, MergePatch
from kubewright.sim.apiserver import (
    admission,
    answers,
    binding,
    checks,
    defaults,
    deletion,
    eviction,
    patching,
    scaling,
    selection,
    strategies,
)
from kubewright.sim.apiserver.kinds import Kind, Kinds, custom_kinds
from kubewright.sim.apiserver.names import Names
from kubewright.sim.apiserver.patching import StrategicPatch
from kubewright.sim.apiserver.table import Item, Key, Table, thaw
from kubewright.sim.apiserver.watching import watch_table

WriteHook = Callable[[str, Kind, str], None]
"""Called with verb, kind and `namespace/name`; raising stops the write."""

Wanted = MergePatch | JsonPatch | StrategicPatch | Mapping[str, Any] | Sequence[Mapping[str, Any]]

Warnings = list[str] | None
"""Filled with what the server wants to tell the writer, when given."""


class Now(Protocol):
    def now(self) -> datetime: ...


class Store:
    """The server. Every method that writes lands whole or raises a `KubeError`; none of them waits.

    `window` is how many changes of a kind a late watcher may have missed before it gets 410.
    """

    def __init__(self, clock: Now, *, seed: int = 0, window: int = 20_000, crds: Sequence[Mapping[str, Any]] = ()) -> None:
        self.clock = clock
        self.kinds = Kinds()
        self.names = Names(seed)
        self.version = 1
        self.services = 0
        """How many addresses Services were given."""
        self._window = window
        self._tables: dict[tuple[str, str], Table] = {}
        self._before: list[WriteHook] = []
        self._after: list[WriteHook] = []
        self.closed = False
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for crd in crds:
            self.create(crd)

    def on_write(self, hook: WriteHook) -> None:
        """Call `hook` before each write lands; what it raises reaches the caller, and nothing is written."""
        self._before.append(hook)

    def on_written(self, hook: WriteHook) -> None:
        """Call `hook` after each write has landed; what it raises reaches the caller in place of the answer."""
        self._after.append(hook)

    # reading

    def kind(self, api_version: str, kind: str) -> Kind:
        """Raises NotFound: not served."""
        found = self.kinds.by_kind(api_version, kind)
        if found is None:
            raise answers.no_such_resource()
        return found

    def table(self, kind: Kind) -> Table:
        table = self._tables.get((kind.group, kind.plural))
        if table is None:
            born = self.version if kind.custom else 0
            table = self._tables[kind.group, kind.plural] = Table(self._window, born)
        return table

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Item:
        """Raises NotFound."""
        return thaw(self.peek(self.kind(api_version, kind), namespace, name))

    def peek(self, kind: Kind, namespace: str, name: str) -> Item:
        """As `get`, but the stored dict itself: read it, do not change it."""
        found = self.table(kind).get((namespace if kind.namespaced else "", name))
        if found is None:
            raise answers.not_found(kind, name)
        return found

    def list(
        self, api_version: str, kind: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[list[Item], str]:
        """The objects both selectors pick, by namespace and name, and the version a watch goes on from. Shared dicts."""
        served = self.kind(api_version, kind)
        wanted = selection.selecting(served, labels, fields)
        return [item for item in self.table(served).items(namespace) if wanted(item)], str(self.version)

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        *,
        bookmarks: bool = True,
        initial_events: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[str, Item]]:
        """Changes after `resource_version`; without one (or with "0"), what is there now comes first, as ADDED. Shared dicts.

        Raises:
            Gone: the changes after that version are no longer all known.
        """
        served = self.kind(api_version, kind)
        wanted = selection.selecting(served, labels, fields)
        return watch_table(
            self,
            served,
            namespace,
            wanted,
            resource_version,
            bookmarks=bookmarks,
            initial_events=initial_events,
            timeout_s=timeout_s,
        )

    # writing

    def create(self, obj: Mapping[str, Any], *, strict: bool = False, dry_run: bool = False, warnings: Warnings = None) -> Item:
        """Create and return what became of it. Raises AlreadyExists, Invalid, NotFound (its namespace)."""
        new = thaw(obj)
        kind = self.kind(str(new.get("apiVersion", "")), str(new.get("kind", "")))
        _metadata(new)
        _warn(warnings, defaults.decode(kind, new, strict=strict))
        meta = new["metadata"]
        if meta.pop("resourceVersion", ""):
            raise answers.bad_request("resourceVersion should not be set on objects to be created")
        if kind.namespaced:
            meta["namespace"] = meta.get("namespace") or "default"
        else:
            meta.pop("namespace", None)
        strategies.reset_for_create(kind, new)
        self._name(kind, meta)
        meta["uid"] = self.names.uid()
        meta["creationTimestamp"] = deletion.stamp(self.clock.now())
        defaults.fill(kind, new)
        admission.admit_create(self, kind, new)
        name = str(meta.get("name", ""))
        checks.check_create(kind, new)
        key = (str(meta.get("namespace", "")), name)
        if self.table(kind).get(key) is not None:
            raise answers.already_exists(kind, name)
        return new if dry_run else thaw(self._write("create", kind, key, new))

    def update(
        self,
        obj: Mapping[str, Any],
        subresource: str = "",
        *,
        strict: bool = False,
        dry_run: bool = False,
        warnings: Warnings = None,
    ) -> Item:
        """Put a whole object, or only its subresource's part of it.

        With metadata.resourceVersion it must be the latest; without, it overwrites (custom kinds must have it).

        Raises:
            NotFound, Conflict, Invalid.
        """
        new = thaw(obj)
        kind = self.kind(str(new.get("apiVersion", "")), str(new.get("kind", "")))
        meta = _metadata(new)
        key = self._key(kind, str(meta.get("namespace", "")), str(meta.get("name", "")))
        old = self.peek(kind, *key)
        if kind.custom and not meta.get("resourceVersion"):
            cause = answers.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise answers.invalid(kind, key[1], [cause])
        return self.replace("update", kind, key, old, new, subresource, strict=strict, dry_run=dry_run, warnings=warnings)

    def patch(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        patch: Wanted,
        subresource: str = "",
        *,
        strict: bool = False,
        dry_run: bool = False,
        warnings: Warnings = None,
    ) -> Item:
        """Change an object by a merge patch (a mapping), a JSON patch (a sequence) or a `StrategicPatch`.

        Raises:
            NotFound, Conflict, Invalid.
        """
        served = self.kind(api_version, kind)
        key = self._key(served, namespace, name)
        old = self.peek(served, *key)
        if subresource == "scale":
            return scaling.patch(self, served, key, old, patch, dry_run=dry_run)
        new = self.patched(served, old, patch)
        return self.replace("patch", served, key, old, new, subresource, strict=strict, dry_run=dry_run, warnings=warnings)

    def patched(self, kind: Kind, old: Item, patch: Wanted) -> Item:
        """What `patch` makes of `old`, before any rule is asked."""
        return thaw(patching.apply(kind, old, patch))

    def replace(
        self,
        verb: str,
        kind: Kind,
        key: Key,
        old: Item,
        new: Item,
        subresource: str,
        *,
        strict: bool = False,
        dry_run: bool = False,
        warnings: Warnings = None,
    ) -> Item:
        if subresource and subresource not in kind.subresources:
            raise answers.no_such_resource()
        meta = _metadata(new)
        if meta.get("uid") and meta["uid"] != old["metadata"]["uid"]:
            if verb == "update":
                raise answers.other_uid(kind, old, meta["uid"])
            cause = answers.invalid_value("metadata.uid", meta["uid"], "field is immutable")
            raise answers.invalid(kind, key[1], [cause, cause])  # the server asks twice, and its details say so
        asked = meta.get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise answers.modified(kind, key[1])
        _warn(warnings, defaults.decode(kind, new, strict=strict))
        checks.check_identity(new, key)
        strategies.reconcile_update(kind, new, old, subresource)
        defaults.fill(kind, new)
        if not subresource:
            admission.admit_update(kind, new)
        strategies.move_generation(kind, new, old)
        meta = new["metadata"]
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:
            return thaw(old)
        checks.check_update(kind, new, old)
        if dry_run:
            return new
        if deletion.may_go(kind, new, old):
            return thaw(self._remove(verb, kind, key, new))
        return thaw(self._write(verb, kind, key, new))

    def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> Item:
        """Delete, or mark as being deleted while finalizers or a kubelet hold it; returns the object's last state.

        `propagation` is "Foreground", "Background", "Orphan" or "" (what the object's finalizers say, else Background).

        Raises:
            NotFound, Conflict (a precondition).
        """
        served = self.kind(api_version, kind)
        key = self._key(served, namespace, name)
        old = self.peek(served, *key)
        deletion.check_preconditions(served, old, uid, resource_version)
        if propagation not in ("", "Foreground", "Background", "Orphan"):
            raise answers.bad_propagation(propagation)
        new = thaw(old)
        grace = deletion.grace(served, old, grace_period_s)
        finalizers = deletion.finalizers_for(old, propagation)
        meta = new["metadata"]
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        held = bool(finalizers) or (served.kind == "Namespace" and bool(old.get("spec", {}).get("finalizers")))
        if grace == 0 and not held:
            return new if dry_run else thaw(self._remove("delete", served, key, new))
        deletion.mark(served, new, grace, self.clock.now())
        if new == old or dry_run:
            return new
        return thaw(self._write("delete", served, key, new))

    def evict(
        self,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """POST pods/eviction. Raises TooManyRequests (a budget says no), NotFound, Conflict, ServerUnavailable (two budgets)."""
        asked = eviction.Asked(uid=uid, resource_version=resource_version, grace_period_s=grace_period_s, dry_run=dry_run)
        eviction.evict(self, namespace or "default", name, asked)

    def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None:
        """POST pods/binding, as a scheduler does. Raises NotFound, Conflict (it has a node, or is being deleted)."""
        binding.bind(self, namespace or "default", name, node, uid=uid)

    def compact(self) -> None:
        """Forget all history, as etcd's compaction does: every older version is Gone."""
        for kind in self.kinds:
            self.table(kind).forget_before(self.version)

    def close(self) -> None:
        """End every watch."""
        self.closed = True
        for table in self._tables.values():
            table.wake()

    # for the server's own subresources

    def stamp(self) -> str:
        return deletion.stamp(self.clock.now())

    def write(self, verb: str, kind: Kind, key: Key, new: Item) -> Item:
        """Land a write that has passed every rule."""
        return self._write(verb, kind, key, new)

    def _write(self, verb: str, kind: Kind, key: Key, new: Item) -> Item:
        self._tell(self._before, verb, kind, key)
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self.table(kind).put(key, new, self.version)
        if kind.kind == "CustomResourceDefinition":
            self._serve(new)
        self._tell(self._after, verb, kind, key)
        return new

    def _remove(self, verb: str, kind: Kind, key: Key, last: Item) -> Item:
        self._tell(self._before, verb, kind, key)
        self.version += 1
        last["metadata"]["resourceVersion"] = str(self.version)
        self.table(kind).remove(key, last, self.version)
        if kind.kind == "CustomResourceDefinition":
            self._stop_serving(last)
        self._tell(self._after, verb, kind, key)
        return last

    def _serve(self, crd: Item) -> None:
        self.kinds.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        for kind in custom_kinds(crd):
            self.kinds.add(kind)
            self.table(kind)  # its history begins now

    def _stop_serving(self, crd: Item) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        self.kinds.remove(group, plural)
        self._tables.pop((group, plural), None)

    @staticmethod
    def _tell(hooks: Sequence[WriteHook], verb: str, kind: Kind, key: Key) -> None:
        shown = f"{key[0]}/{key[1]}" if key[0] else key[1]
        for hook in hooks:
            hook(verb, kind, shown)

    def _key(self, kind: Kind, namespace: str, name: str) -> Key:
        if not kind.namespaced:
            return "", name
        return namespace or "default", name

    def _name(self, kind: Kind, meta: Item) -> None:
        prefix = meta.get("generateName", "")
        if meta.get("name") or not prefix:
            return
        namespace = str(meta.get("namespace", ""))
        name = self.names.generate(prefix)
        while self.table(kind).get((namespace, name)) is not None:
            name = self.names.generate(prefix)
        meta["name"] = name


def _warn(warnings: Warnings, unknown: Sequence[str]) -> None:
    if warnings is not None:
        warnings.extend(f'unknown field "{path}"' for path in unknown)


def _metadata(obj: Item) -> Item:
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise answers.bad_request("metadata: it must be an object")
    return meta
