"""The store alone, on virtual time: what the contract suite cannot wait for or ask of a real server."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kubewright.api.core import Pod
from kubewright.api.crds import CRDS
from kubewright.clock import Clock
from kubewright.errors import Conflict, Gone, Invalid, KubeError, NotFound, ServerUnavailable
from kubewright.kube.client import JsonPatch
from kubewright.sim import loop
from kubewright.sim.apiserver.chaos import Chaos, ChaosSettings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.patching import StrategicPatch
from kubewright.sim.apiserver.store import Store


def on_virtual_time(story: Callable[[Store], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def whole() -> None:
        await story(Store(Clock(loop.EPOCH), **settings))

    loop.run(whole(), limit_s=7200)


def configmap(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "registry.invalid/app:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def deployment(**template: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "a"}, {"name": "side", "image": "b"}], **template}
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def test_an_idle_watch_gets_bookmarks_that_it_can_resume_from() -> None:
    async def story(store: Store) -> None:
        store.create(configmap("one"))
        store.create(pod("other"))
        begun = str(store.version)
        seen = [(name, item["metadata"]) async for name, item in store.watch("v1", "Pod", resource_version=begun, timeout_s=150)]
        assert [name for name, _ in seen] == ["BOOKMARK", "BOOKMARK"]
        assert {meta["resourceVersion"] for _, meta in seen} == {begun}
        quiet = [e async for e in store.watch("v1", "Pod", resource_version=begun, timeout_s=150, bookmarks=False)]
        assert quiet == []

    on_virtual_time(story)


def test_initial_events_end_with_a_marked_bookmark() -> None:
    async def story(store: Store) -> None:
        store.create(configmap("one"))
        events = [e async for e in store.watch("v1", "ConfigMap", initial_events=True, timeout_s=1)]
        assert [(name, item["metadata"].get("name")) for name, item in events] == [("ADDED", "one"), ("BOOKMARK", None)]
        assert events[-1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    on_virtual_time(story)


def test_a_watcher_that_falls_out_of_the_window_is_told_to_list_again() -> None:
    async def story(store: Store) -> None:
        slow = store.watch("v1", "ConfigMap", resource_version=str(store.version))
        store.create(configmap("first"))
        assert (await anext(slow))[0] == "ADDED"
        for n in range(20):
            store.create(configmap(f"cm-{n}"))
        with pytest.raises(Gone, match="too old resource version"):
            async for _ in slow:
                pass

    on_virtual_time(story, window=5)


def test_the_same_seed_and_calls_make_the_same_bytes() -> None:
    found: list[list[Any]] = []

    async def story(store: Store) -> None:
        for _ in range(5):
            store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}})
        found.append(store.list("v1", "ConfigMap")[0])

    on_virtual_time(story, seed=1)
    on_virtual_time(story, seed=1)
    on_virtual_time(story, seed=2)
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_what_was_handed_out_never_changes() -> None:
    async def story(store: Store) -> None:
        store.create(configmap("one"))
        mine = store.get("v1", "ConfigMap", "default", "one")
        listed = store.list("v1", "ConfigMap")[0][0]
        mine["metadata"]["labels"] = {"local": "change"}
        store.patch("v1", "ConfigMap", "default", "one", {"data": {"a": "b"}})
        assert "data" not in listed
        assert "labels" not in store.get("v1", "ConfigMap", "default", "one")["metadata"]

    on_virtual_time(story)


def test_hooks_stop_a_write_before_it_lands_or_lose_its_answer() -> None:
    async def story(store: Store) -> None:
        seen: list[tuple[str, str, str]] = []
        store.on_write(lambda verb, kind, key: seen.append((verb, kind.kind, key)))
        store.create(configmap("one"))
        store.patch("v1", "ConfigMap", "default", "one", {"data": {"a": "b"}})
        store.patch("v1", "ConfigMap", "default", "one", {"data": {"a": "b"}})
        store.delete("v1", "ConfigMap", "default", "one")
        assert seen == [(verb, "ConfigMap", "default/one") for verb in ("create", "patch", "delete")]

        def fail(*_: Any) -> None:
            raise ServerUnavailable(500, "InternalError", "not today")

        store.on_write(fail)
        with pytest.raises(ServerUnavailable):
            store.create(configmap("two"))
        with pytest.raises(NotFound):
            store.get("v1", "ConfigMap", "default", "two")

    on_virtual_time(story)


def test_chaos_is_the_same_for_the_same_seed() -> None:
    outcomes: list[list[str]] = []

    async def story(store: Store) -> None:
        client = DirectClient(store)
        chaos = Chaos(client, 3, ChaosSettings(unavailable=0.2, lost_answer=0.2, conflict=0.2))
        for n in range(30):
            store.create(pod(f"p-{n}"))
        heard: list[str] = []
        for n in range(30):
            try:
                await client.delete(Pod, f"p-{n}", "default")
                heard.append("ok")
            except KubeError as error:
                heard.append(error.reason)
        outcomes.append(heard)
        assert chaos.failures == 30 - heard.count("ok") > 0
        left = len(store.list("v1", "Pod")[0])
        assert left == heard.count("InternalError") + heard.count("Conflict"), "a lost answer's write has landed"

    on_virtual_time(story)
    on_virtual_time(story)
    assert outcomes[0] == outcomes[1]
    assert {"ok", "InternalError", "Conflict", "Timeout"} == set(outcomes[0])


def test_a_strategic_merge_knows_lists_by_their_keys() -> None:
    async def story(store: Store) -> None:
        store.create(deployment(tolerations=[{"key": "a", "operator": "Exists"}]))

        def patched(spec: dict[str, Any]) -> dict[str, Any]:
            patch = StrategicPatch({"spec": {"template": {"spec": spec}}})
            return store.patch("apps/v1", "Deployment", "default", "web", patch)["spec"]["template"]["spec"]

        images = {c["name"]: c["image"] for c in patched({"containers": [{"name": "side", "image": "c"}]})["containers"]}
        assert images == {"app": "a", "side": "c"}
        gone = patched({"containers": [{"name": "side", "$patch": "delete"}]})
        assert [c["name"] for c in gone["containers"]] == ["app"]
        added = patched(
            {
                "$setElementOrder/containers": [{"name": "new"}, {"name": "app"}],
                "containers": [{"name": "new", "image": "n", "ports": [{"containerPort": 80}]}],
            }
        )
        assert [c["name"] for c in added["containers"]] == ["new", "app"]
        replaced = patched({"tolerations": [{"key": "b", "operator": "Exists"}]})
        assert [t["key"] for t in replaced["tolerations"]] == ["b"], "tolerations are replaced whole"
        with pytest.raises(Invalid, match="does not contain declared merge key: name"):
            patched({"containers": [{"image": "x"}]})

    on_virtual_time(story)


def test_a_strategic_merge_of_conditions_and_finalizers() -> None:
    async def story(store: Store) -> None:
        made = pod("one")
        made["metadata"]["finalizers"] = ["example.com/a"]
        store.create(made)
        more = StrategicPatch({"metadata": {"finalizers": ["example.com/b"]}})
        assert store.patch("v1", "Pod", "default", "one", more)["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
        less = StrategicPatch({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}})
        assert store.patch("v1", "Pod", "default", "one", less)["metadata"]["finalizers"] == ["example.com/b"]
        for kind in ("Ready", "PodScheduled"):
            status = StrategicPatch({"status": {"conditions": [{"type": kind, "status": "True"}]}})
            changed = store.patch("v1", "Pod", "default", "one", status, "status")
        assert [c["type"] for c in changed["status"]["conditions"]] == ["Ready", "PodScheduled"]

    on_virtual_time(story)


def test_custom_kinds_have_no_strategic_merge() -> None:
    async def story(store: Store) -> None:
        with pytest.raises(NotFound):
            store.patch("karpenter.sh/v1", "NodePool", "", "general", StrategicPatch({}))
        pool = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "general"},
            "spec": {
                "template": {
                    "spec": {
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                        "requirements": [],
                    }
                }
            },
        }
        store.create(pool)
        with pytest.raises(Invalid) as caught:
            store.patch("karpenter.sh/v1", "NodePool", "", "general", StrategicPatch({}))
        assert caught.value.status == 415

    on_virtual_time(story, crds=list(CRDS.values()))


def test_a_put_needs_the_version_of_custom_kinds_and_takes_none_of_core_kinds() -> None:
    async def story(store: Store) -> None:
        store.create(configmap("one"))
        store.update({**configmap("one"), "data": {"a": "b"}})
        assert store.get("v1", "ConfigMap", "default", "one")["data"] == {"a": "b"}
        stale = store.get("v1", "ConfigMap", "default", "one")
        store.update({**stale, "data": {"a": "c"}})
        with pytest.raises(Conflict, match="the object has been modified"):
            store.update({**stale, "data": {"a": "d"}})

    on_virtual_time(story)


def test_a_crd_that_goes_takes_its_objects_with_it() -> None:
    async def story(store: Store) -> None:
        assert store.list("karpenter.sh/v1", "NodePool")[0] == []
        store.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "nodepools.karpenter.sh")
        with pytest.raises(NotFound, match="the server could not find the requested resource"):
            store.list("karpenter.sh/v1", "NodePool")

    on_virtual_time(story, crds=list(CRDS.values()))


def test_a_definition_adds_its_kind_or_is_refused_whole() -> None:
    async def story(store: Store) -> None:
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
        }
        crd: dict[str, Any] = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [version, {**version, "name": "v2", "storage": False}],
            },
        }
        with pytest.raises(Invalid, match="only one version can be served"):
            store.create(crd)
        with pytest.raises(NotFound):
            store.list("example.com/v1", "Thing")
        crd["spec"]["versions"] = [version]
        with pytest.raises(Invalid, match=r"metadata\.name"):
            store.create({**crd, "metadata": {"name": "wrong.example.com"}})
        store.create(crd)
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"lost": 1}, "more": 2}
        made = store.create(thing)
        assert (made["spec"], "more" in made) == ({}, False)

    on_virtual_time(story)


def test_a_bound_pod_is_not_bound_again() -> None:
    async def story(store: Store) -> None:
        store.create(pod("one"))
        store.bind("default", "one", "node-a")
        with pytest.raises(
            Conflict, match=r'^Operation cannot be fulfilled on pods/binding "one": pod one is already assigned to'
        ):
            store.bind("default", "one", "node-b")
        found = store.get("v1", "Pod", "default", "one")
        assert found["spec"]["nodeName"] == "node-a"
        assert found["metadata"]["generation"] == 1

    on_virtual_time(story)


def test_json_patch_moves_and_copies() -> None:
    async def story(store: Store) -> None:
        store.create({**configmap("one"), "data": {"a": "1"}})
        operations = [
            {"op": "copy", "from": "/data/a", "path": "/data/b"},
            {"op": "move", "from": "/data/a", "path": "/data/c"},
        ]
        changed = store.patch("v1", "ConfigMap", "default", "one", JsonPatch(operations))
        assert changed["data"] == {"b": "1", "c": "1"}

    on_virtual_time(story)


def test_a_put_of_what_was_applied_is_no_change() -> None:
    """Defaults that the writer leaves out again are no change of spec: no new generation, no new version."""

    async def story(store: Store) -> None:
        made = store.create(deployment())
        same = store.update({**deployment(), "metadata": {"name": "web"}})
        assert same == made

    on_virtual_time(story)


def test_services_get_addresses_of_their_own() -> None:
    async def story(store: Store) -> None:
        found = set()
        for n in range(300):
            spec = {"ports": [{"port": 80}]}
            made = store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{n}"}, "spec": spec})
            assert made["spec"]["clusterIPs"] == [made["spec"]["clusterIP"]]
            found.add(made["spec"]["clusterIP"])
        assert len(found) == 300

    on_virtual_time(story)
