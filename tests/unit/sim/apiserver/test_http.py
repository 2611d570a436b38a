"""What only HTTP shows: forms of answers, pages, warnings, discovery, OpenAPI."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from kubewright.api.crds import CRDS
from kubewright.sim.apiserver.http import serve, write_kubeconfig
from kubewright.sim.apiserver.http.columns import find, span, steps_of
from kubewright.sim.apiserver.store import Store

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class FixedClock:
    def now(self) -> datetime:
        return NOW


class Caller:
    """Asks the server; answers are (status, body, headers)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, store: Store) -> None:
        self.session = session
        self.url = url
        self.store = store

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> tuple[int, Any, Any]:
        data = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Accept": accept, **({"Content-Type": content_type} if data is not None else {})}
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            raw = await answer.read()
            parsed = msgspec.json.decode(raw) if answer.content_type == "application/json" else raw.decode()
            return answer.status, parsed, answer.headers


def served(story: Callable[[Caller], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = Store(FixedClock(), crds=list(CRDS.values()))
        server = await serve(store)
        try:
            async with aiohttp.ClientSession() as session:
                await story(Caller(session, server.url, store))
        finally:
            await server.close()

    asyncio.run(whole())


def configmap(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": {"a": "b"}}


HERE = "/api/v1/namespaces/default/configmaps"


def test_pages_are_cut_from_one_moment() -> None:
    async def story(ask: Caller) -> None:
        for n in range(5):
            ask.store.create(configmap(f"cm-{n}"))
        _, first, _ = await ask("GET", f"{HERE}?limit=2")
        assert [i["metadata"]["name"] for i in first["items"]] == ["cm-0", "cm-1"]
        assert first["metadata"]["remainingItemCount"] == 3
        ask.store.delete("v1", "ConfigMap", "default", "cm-3")
        ask.store.create(configmap("cm-2a"))
        _, second, _ = await ask("GET", f"{HERE}?limit=2&continue={first['metadata']['continue']}")
        _, third, _ = await ask("GET", f"{HERE}?limit=2&continue={second['metadata']['continue']}")
        names = [i["metadata"]["name"] for page in (first, second, third) for i in page["items"]]
        assert names == [f"cm-{n}" for n in range(5)]
        assert "continue" not in third["metadata"]
        assert {p["metadata"]["resourceVersion"] for p in (first, second, third)} == {first["metadata"]["resourceVersion"]}

    served(story)


def test_a_page_of_a_forgotten_moment_is_gone() -> None:
    async def story(ask: Caller) -> None:
        for n in range(3):
            ask.store.create(configmap(f"cm-{n}"))
        _, first, _ = await ask("GET", f"{HERE}?limit=1")
        ask.store.create(configmap("later"))
        ask.store.compact()
        status, body, _ = await ask("GET", f"{HERE}?limit=1&continue={first['metadata']['continue']}")
        assert (status, body["reason"]) == (410, "Expired")
        status, body, _ = await ask("GET", f"{HERE}?limit=1&continue=nonsense")
        assert (status, body["reason"]) == (400, "BadRequest")

    served(story)


def test_a_version_from_the_future_is_not_waited_for() -> None:
    async def story(ask: Caller) -> None:
        status, body, headers = await ask("GET", "/api/v1/nodes?resourceVersion=99999999")
        assert (status, body["reason"], headers["Retry-After"]) == (504, "Timeout", "1")
        assert body["message"].startswith("Timeout: Too large resource version: 99999999, current: ")

    served(story)


def test_unknown_fields_warn_or_fail_or_pass_in_silence() -> None:
    async def story(ask: Caller) -> None:
        typo = {**configmap("typo"), "dota": {}}
        status, body, _ = await ask("POST", f"{HERE}?fieldValidation=Strict", typo)
        assert (status, body["reason"]) == (400, "BadRequest")
        assert body["message"] == (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dota"'
        )
        status, body, headers = await ask("POST", f"{HERE}?fieldValidation=Warn", typo)
        assert (status, "dota" in body) == (201, False)
        assert headers["Warning"] == '299 - "unknown field \\"dota\\""'
        _, _, headers = await ask("PUT", f"{HERE}/typo?fieldValidation=Ignore", typo)
        assert "Warning" not in headers

    served(story)


def test_a_dry_run_answers_and_writes_nothing() -> None:
    async def story(ask: Caller) -> None:
        version = ask.store.version
        status, body, _ = await ask("POST", f"{HERE}?dryRun=All", configmap("one"))
        assert (status, body["metadata"]["name"]) == (201, "one")
        assert ask.store.version == version
        assert (await ask("GET", f"{HERE}/one"))[0] == 404
        ask.store.create(configmap("one"))
        version = ask.store.version
        assert (await ask("DELETE", f"{HERE}/one", {"dryRun": ["All"]}))[0] == 200
        assert ask.store.version == version

    served(story)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"spec": {"nodeName": 5}}, "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string"),
        (
            {"spec": {"containers": [{"name": 5}]}},
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        ({"spec": []}, "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec"),
        (
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
    ],
)
def test_a_wrong_type_is_told_as_go_tells_it(body: dict[str, Any], text: str) -> None:
    """Each text was given by kube-apiserver 1.36.3 to the same body."""

    async def story(ask: Caller) -> None:
        status, answer, _ = await ask("POST", "/api/v1/namespaces/default/pods", body)
        assert status == 400
        assert answer["message"] == f'Pod in version "v1" cannot be handled as a Pod: {text}'

    served(story)


def test_tables_for_people() -> None:
    async def story(ask: Caller) -> None:
        ask.store.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )
        _, table, _ = await ask("GET", "/api/v1/namespaces/default/pods", accept=TABLE)
        assert table["kind"] == "Table"
        names = [c["name"] for c in table["columnDefinitions"] if not c["priority"]]
        assert names == ["Name", "Ready", "Status", "Restarts", "Age"]
        row = dict(zip([c["name"] for c in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
        assert (row["Name"], row["Ready"], row["Status"], row["Age"], row["Node"]) == ("p", "0/1", "Pending", "0s", "<none>")
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        for kind in ask.store.kinds:
            status, table, _ = await ask("GET", _collection(kind), accept=TABLE)
            assert (status, table["kind"]) == (200, "Table"), kind.resource

    served(story)


def _collection(kind: Any) -> str:
    base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    return f"{base}/{kind.plural}"


def test_a_watch_in_tables_names_its_columns_once() -> None:
    async def story(ask: Caller) -> None:
        ask.store.create(configmap("a"))
        ask.store.create(configmap("b"))
        url = f"{ask.url}{HERE}?watch=1&timeoutSeconds=30"
        async with asyncio.timeout(20), ask.session.get(url, headers={"Accept": TABLE}) as stream:
            events = [msgspec.json.decode(await stream.content.readline()) for _ in range(2)]
        assert [bool(e["object"]["columnDefinitions"]) for e in events] == [True, False]
        assert [e["object"]["rows"][0]["cells"][0] for e in events] == ["a", "b"]

    served(story)


def test_a_watch_too_late_is_an_event_and_not_a_status_code() -> None:
    async def story(ask: Caller) -> None:
        ask.store.create(configmap("a"))
        ask.store.compact()
        async with asyncio.timeout(20), ask.session.get(f"{ask.url}{HERE}?watch=1&resourceVersion=1") as stream:
            assert stream.status == 200
            event = msgspec.json.decode(await stream.content.readline())
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")

    served(story)


def test_closing_the_server_ends_its_watches() -> None:
    async def whole() -> None:
        store = Store(FixedClock())
        server = await serve(store)
        async with aiohttp.ClientSession() as session, session.get(f"{server.url}/api/v1/pods?watch=1") as stream:
            async with asyncio.timeout(20):
                await server.close()
                with pytest.raises((aiohttp.ClientPayloadError, AssertionError)):
                    assert await stream.content.read() != b"", "the end, in good order or not"

    asyncio.run(whole())


def test_delete_answers_with_a_status_or_with_what_is_left() -> None:
    async def story(ask: Caller) -> None:
        ask.store.create(configmap("gone"))
        ask.store.create(configmap("held", finalizers=["example.com/hold"]))
        _, body, _ = await ask("DELETE", f"{HERE}/gone")
        assert (body["kind"], body["status"], body["details"]["kind"]) == ("Status", "Success", "configmaps")
        _, body, _ = await ask("DELETE", f"{HERE}/held")
        assert (body["kind"], "deletionTimestamp" in body["metadata"]) == ("ConfigMap", True)

    served(story)


def test_a_collection_is_deleted_by_selector() -> None:
    async def story(ask: Caller) -> None:
        for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"x": "1"})):
            ask.store.create(configmap(name, labels=labels))
        await ask("DELETE", f"{HERE}?labelSelector=x%3D1")
        _, left, _ = await ask("GET", HERE)
        assert [i["metadata"]["name"] for i in left["items"]] == ["b"]

    served(story)


def test_discovery_in_both_forms_names_every_kind() -> None:
    async def story(ask: Caller) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        found = set()
        for path in ("/api", "/apis"):
            _, body, headers = await ask("GET", path, accept=accept)
            assert headers["Content-Type"] == accept.partition(",")[0]
            found |= {
                (group["metadata"].get("name", ""), version["version"], one["resource"])
                for group in body["items"]
                for version in group["versions"]
                for one in version["resources"]
            }
        assert found == {(k.group, k.version, k.plural) for k in ask.store.kinds}
        _, groups, _ = await ask("GET", "/apis")
        for group in groups["groups"]:
            _, body, _ = await ask("GET", f"/apis/{group['preferredVersion']['groupVersion']}")
            assert body["kind"] == "APIResourceList"
        _, version, _ = await ask("GET", "/version")
        assert version["minor"] == "36"

    served(story)


def test_openapi_knows_the_merge_keys_and_every_reference_resolves() -> None:
    async def story(ask: Caller) -> None:
        _, index, _ = await ask("GET", "/openapi/v3")
        for path in index["paths"].values():
            _, document, _ = await ask("GET", path["serverRelativeURL"])
            schemas = document["components"]["schemas"]
            for reference in _references(document):
                assert reference.removeprefix("#/components/schemas/") in schemas
        _, core, _ = await ask("GET", "/openapi/v3/api/v1")
        containers = core["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
        assert containers["x-kubernetes-patch-merge-key"] == "name"
        assert "List of containers" in containers["description"]

    served(story)


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for value in node.values() for r in _references(value)]
    return [r for value in node for r in _references(value)] if isinstance(node, list) else []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/x/nonsense", 404),
        ("GET", "/apis/nonsense/v1", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("GET", "/nonsense", 404),
        ("GET", "/readyz", 200),
        ("GET", "/livez/ping", 200),
    ],
)
def test_paths_that_lead_nowhere(method: str, path: str, status: int) -> None:
    async def story(ask: Caller) -> None:
        found, body, _ = await ask(method, path, {} if method in ("POST", "PUT") else None)
        assert found == status
        assert status == 200 or body["kind"] == "Status"

    served(story)


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/apply-patch+yaml", "use `kubectl apply` without --server-side"),
        ("text/plain", "accepted media types include"),
    ],
)
def test_a_patch_in_a_form_that_is_not_spoken_is_refused(content_type: str, text: str) -> None:
    async def story(ask: Caller) -> None:
        ask.store.create(configmap("one"))
        status, body, _ = await ask("PATCH", f"{HERE}/one", b"{}", content_type=content_type)
        assert status == 415
        assert text in body["message"]

    served(story)


def test_the_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, "http://127.0.0.1:1")
    assert path.stat().st_mode & 0o777 == 0o600
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == document["contexts"][0]["name"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (730 * 86400, "2y"),
    ],
)
def test_ages_read_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert span(seconds) == text


def test_the_jsonpaths_that_columns_use() -> None:
    obj = {
        "metadata": {"labels": {"topology.kubernetes.io/zone": "z"}},
        "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    assert find(obj, steps_of(r".metadata.labels.topology\.kubernetes\.io/zone")) == "z"
    assert find(obj, steps_of('.status.conditions[?(@.type=="Ready")].status')) == "True"
    assert find(obj, steps_of(".status.conditions[0].type")) == "A"
    assert find(obj, steps_of(".status.missing.deeper")) is None
