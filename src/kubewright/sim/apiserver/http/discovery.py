"""Which kinds are there: discovery in the old form, group by group, and in the new one, everything at once."""

from typing import Any

import msgspec
from aiohttp import web

from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import VERBS, Kind
from kubewright.sim.apiserver.store import Store

Item = dict[str, Any]

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+kubewright.sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}

_AGGREGATED = "APIGroupDiscoveryList"

_RESPONSE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "binding": ("", "v1", "Binding", ["create"]),
}


def add_routes(app: web.Application, store: Store) -> None:
    async def core(request: web.Request) -> web.Response:
        if form := _aggregated(request):
            return _reply(_all_of(store, core=True), form)
        return _reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})

    async def groups(request: web.Request) -> web.Response:
        if form := _aggregated(request):
            return _reply(_all_of(store, core=False), form)
        found = [_group(name, versions) for name, versions in store.kinds.groups().items() if name]
        return _reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": found})

    async def group(request: web.Request) -> web.Response:
        name = request.match_info["group"]
        versions = store.kinds.groups().get(name)
        if versions is None or not name:
            raise answers.no_such_resource()
        return _reply({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)})

    async def resources(request: web.Request) -> web.Response:
        group, version = request.match_info.get("group", ""), request.match_info["version"]
        kinds = [k for k in store.kinds if (k.group, k.version) == (group, version)]
        if not kinds:
            raise answers.no_such_resource()
        listed = [entry for kind in kinds for entry in _resources(kind)]
        return _reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": listed})

    app.router.add_get("/api", core)
    app.router.add_get("/apis", groups)
    app.router.add_get("/api/{version}", resources)
    app.router.add_get("/apis/{group}", group)
    app.router.add_get("/apis/{group}/{version}", resources)


async def version(request: web.Request) -> web.Response:
    del request
    return _reply(VERSION)


def _reply(obj: Any, content_type: str = "application/json") -> web.Response:
    return web.Response(body=msgspec.json.encode(obj), headers={"Content-Type": content_type})


def _aggregated(request: web.Request) -> str:
    """The content type of the aggregated form that the client takes, or ""."""
    for part in request.headers.get("Accept", "").split(","):
        words = dict(word.strip().partition("=")[::2] for word in part.split(";")[1:])
        if words.get("as") == _AGGREGATED and words.get("v") == "v2":
            return f"application/json;g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED}"
        if part.strip() in ("application/json", "*/*"):
            return ""
    return ""


def _group(name: str, versions: list[str]) -> Item:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: Kind) -> list[Item]:
    own: Item = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        own["shortNames"] = list(kind.short_names)
    if kind.categories:
        own["categories"] = list(kind.categories)
    found = [own]
    for name in sorted(kind.subresources):
        group, ver, response, verbs = _RESPONSE_KINDS.get(name, (kind.group, kind.version, kind.kind, ["get", "patch", "update"]))
        entry = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced, "kind": response}
        if (group, ver) != (kind.group, kind.version):
            entry |= {"group": group, "version": ver}
        found.append(entry | {"verbs": verbs})
    return found


def _all_of(store: Store, *, core: bool) -> Item:
    groups = []
    for name, versions in store.kinds.groups().items():
        if (not name) != core:
            continue
        listed = [
            {
                "version": v,
                "resources": [_described(k) for k in store.kinds if (k.group, k.version) == (name, v)],
                "freshness": "Current",
            }
            for v in versions
        ]
        groups.append({"metadata": {"name": name} if name else {}, "versions": listed})
    return {"kind": _AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups}


def _described(kind: Kind) -> Item:
    subresources = []
    for name in sorted(kind.subresources):
        group, ver, response, verbs = _RESPONSE_KINDS.get(name, (kind.group, kind.version, kind.kind, ["get", "patch", "update"]))
        subresources.append(
            {"subresource": name, "responseKind": {"group": group, "version": ver, "kind": response}, "verbs": verbs}
        )
    described: Item = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(VERBS),
    }
    for field, value in (("shortNames", kind.short_names), ("categories", kind.categories), ("subresources", subresources)):
        if value:
            described[field] = list(value)
    return described
