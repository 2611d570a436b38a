"""Laws of the in-memory API server, whatever is asked of it and in whatever order."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubewright.errors import KubeError
from kubewright.sim.apiserver import patching
from kubewright.sim.apiserver.store import Store

NAMES = st.sampled_from(["a", "b"])
SPACES = st.sampled_from(["default", "default", "kube-system"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=2)
FINALIZERS = st.lists(st.sampled_from(["example.com/a", "example.com/b"]), max_size=2, unique=True)
SELECTORS = ("", "x=1", "x!=1", "x in (1,2),!y")


class HandClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


class Histories(RuleBasedStateMachine):
    """Random writes on ConfigMaps and Pods by several clients; watchers replay them."""

    @initialize(seed=st.integers(0, 3))
    def start(self, seed: int) -> None:
        self.clock = HandClock()
        self.store = Store(self.clock, seed=seed)
        for space in ("default", "kube-system"):
            self.create("Pod", space, "a", {"x": "1"}, [])
            self.create("ConfigMap", space, "a", {"x": "1"}, ["example.com/a"])
        self.first = {"ConfigMap": self.listed("ConfigMap", ""), "Pod": self.listed("Pod", "")}
        self.began = self.store.version
        self.last_version = self.store.version
        self.versions: dict[str, int] = {}

    def listed(self, kind: str, labels: str) -> dict[str, Any]:
        items, _ = self.store.list("v1", kind, labels=labels)
        return {f"{i['metadata']['namespace']}/{i['metadata']['name']}": i for i in items}

    @rule(kind=st.sampled_from(["ConfigMap", "Pod"]), space=SPACES, name=NAMES, labels=LABELS, finalizers=FINALIZERS)
    def create(self, kind: str, space: str, name: str, labels: dict[str, str], finalizers: list[str]) -> None:
        meta = {"name": name, "namespace": space, "labels": labels, "finalizers": finalizers}
        body = {"spec": {"containers": [{"name": "c", "image": "i"}]}} if kind == "Pod" else {"data": {"k": "v"}}
        with self.unchanged_if_refused():
            self.store.create({"apiVersion": "v1", "kind": kind, "metadata": meta, **body})

    @rule(kind=st.sampled_from(["ConfigMap", "Pod"]), space=SPACES, name=NAMES, labels=LABELS, stale=st.booleans())
    def relabel(self, kind: str, space: str, name: str, labels: dict[str, str], *, stale: bool) -> None:
        meta: dict[str, Any] = {"labels": labels}
        if stale:
            meta["resourceVersion"] = "1"  # older than anything
        held = self.listed(kind, "").get(f"{space}/{name}", {"metadata": {}})["metadata"].get("deletionGracePeriodSeconds", 0)
        with self.unchanged_if_refused():
            changed = self.store.patch("v1", kind, space, name, {"metadata": meta})
            assert not stale, "a stale write landed"
            assert not held or f"{space}/{name}" in self.listed(kind, ""), "only a kubelet ends a grace period"
            assert set(labels.items()) <= set((changed["metadata"].get("labels") or {}).items())

    @rule(kind=st.sampled_from(["ConfigMap", "Pod"]), space=SPACES, name=NAMES, finalizers=FINALIZERS)
    def refinalize(self, kind: str, space: str, name: str, finalizers: list[str]) -> None:
        with self.unchanged_if_refused():
            self.store.patch("v1", kind, space, name, {"metadata": {"finalizers": finalizers}})

    @rule(kind=st.sampled_from(["ConfigMap", "Pod"]), space=SPACES, name=NAMES, grace=st.sampled_from([None, 0, 5]))
    def delete(self, kind: str, space: str, name: str, grace: int | None) -> None:
        with self.unchanged_if_refused():
            self.store.delete("v1", kind, space, name, grace_period_s=grace)

    @rule(space=SPACES, name=NAMES)
    def bind(self, space: str, name: str) -> None:
        with self.unchanged_if_refused():
            self.store.bind(space, name, "node")

    @rule(space=SPACES, name=NAMES, phase=st.sampled_from(["Running", "Succeeded"]))
    def run(self, space: str, name: str, phase: str) -> None:
        with self.unchanged_if_refused():
            before = self.store.get("v1", "Pod", space, name)
            after = self.store.patch("v1", "Pod", space, name, {"status": {"phase": phase}, "spec": {"priority": 9}}, "status")
            assert after["spec"] == before["spec"]
            assert after["metadata"]["generation"] == before["metadata"]["generation"]

    @rule(space=SPACES, name=NAMES)
    def evict(self, space: str, name: str) -> None:
        with self.unchanged_if_refused():
            self.store.evict(space, name)

    @rule(seconds=st.integers(0, 90))
    def wait(self, seconds: int) -> None:
        self.clock.moment += timedelta(seconds=seconds)

    @precondition(lambda self: self.store.version > self.began + 3)
    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.first = {kind: self.listed(kind, "") for kind in self.first}
        self.began = self.store.version

    @contextlib.contextmanager
    def unchanged_if_refused(self) -> Iterator[None]:
        version = self.store.version
        before = {kind: dict(self.listed(kind, "")) for kind in ("ConfigMap", "Pod")}
        try:
            yield
        except KubeError:
            assert self.store.version == version
            assert {kind: self.listed(kind, "") for kind in before} == before

    @invariant()
    def versions_only_grow(self) -> None:
        assert self.store.version >= self.last_version
        self.last_version = self.store.version
        for kind in self.first:
            for item in self.listed(kind, "").values():
                uid, version = item["metadata"]["uid"], int(item["metadata"]["resourceVersion"])
                assert version >= self.versions.get(uid, 0)
                assert version <= self.store.version
                self.versions[uid] = version

    @invariant()
    def nothing_deleted_stays_without_a_holder(self) -> None:
        for kind in self.first:
            for key, item in self.listed(kind, "").items():
                meta = item["metadata"]
                if "deletionTimestamp" in meta:
                    held_by_kubelet = kind == "Pod" and item["spec"].get("nodeName") and meta["deletionGracePeriodSeconds"] > 0
                    assert meta.get("finalizers") or held_by_kubelet, key

    @invariant()
    def a_watch_replays_to_what_a_list_shows(self) -> None:
        for kind, first in self.first.items():
            for labels in SELECTORS:
                start = {key: i for key, i in first.items() if key in self.selected_before(first, labels)}
                assert self.replayed(kind, labels, start) == self.listed(kind, labels)

    def selected_before(self, items: dict[str, Any], labels: str) -> set[str]:
        return {key for key, item in items.items() if _matches(item, labels)}

    def replayed(self, kind: str, labels: str, state: dict[str, Any]) -> dict[str, Any]:
        async def follow() -> dict[str, Any]:
            seen = self.began
            async for event, item in self.store.watch("v1", kind, labels=labels, resource_version=str(self.began), timeout_s=0):
                key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
                assert int(item["metadata"]["resourceVersion"]) > seen
                seen = int(item["metadata"]["resourceVersion"])
                if event == "DELETED":
                    del state[key]
                else:
                    assert (event == "ADDED") == (key not in state)
                    state[key] = item
            return state

        return asyncio.run(follow())


def _matches(item: dict[str, Any], labels: str) -> bool:
    found = item["metadata"].get("labels") or {}
    tests = {
        "": True,
        "x=1": found.get("x") == "1",
        "x!=1": found.get("x") != "1",
        "x in (1,2),!y": found.get("x") in ("1", "2") and "y" not in found,
    }
    return tests[labels]


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON, max_size=3)


def without_nulls(value: Any) -> Any:
    return {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_applied_twice_is_applied_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    frozen = msgspec.json.encode(document)
    once = patching.merge(document, patch)
    assert patching.merge(once, patch) == once
    assert msgspec.json.encode(document) == frozen, "the document was changed in place"


@given(DOCUMENTS)
def test_the_empty_patch_changes_nothing(document: dict[str, Any]) -> None:
    assert patching.merge(document, {}) == document
    assert patching.apply_json(document, []) == document


@given(DOCUMENTS.map(without_nulls), DOCUMENTS.map(without_nulls))
def test_two_documents_differ_by_a_merge_patch(old: dict[str, Any], new: dict[str, Any]) -> None:
    def difference(before: Any, after: Any) -> Any:
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return after
        gone: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
        return gone | {k: difference(before.get(k), v) for k, v in after.items() if k not in before or before[k] != v}

    assert patching.merge(old, difference(old, new)) == new
