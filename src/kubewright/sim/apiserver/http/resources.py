"""The verbs of every kind: a request's path, query and body in, the store's answer out."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from kubewright.kube.client import JsonPatch, MergePatch
from kubewright.sim.apiserver import answers, scaling
from kubewright.sim.apiserver.http import paging, streams, tables
from kubewright.sim.apiserver.http.tables import Form
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.patching import StrategicPatch
from kubewright.sim.apiserver.store import Store

Item = dict[str, Any]

_PATCH_FORMS = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


class Target(msgspec.Struct, frozen=True):
    """What a path names."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


class Resources:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = paging.Pages(store)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        target = self._target(request.path)
        form = tables.negotiate(request.headers.get("Accept", ""))
        match request.method, bool(target.name), target.subresource:
            case "GET" | "HEAD", False, _:
                if request.query.get("watch", "") in ("1", "true"):
                    return await streams.watch(self._store, request, target.kind, target.namespace, form)
                return self._list(request, target, form)
            case "GET" | "HEAD", True, _:
                return self._answer(self._get(target), target.kind, form)
            case "POST", False, _:
                return self._create(target, await _body(request), request.query, form)
            case "POST", True, "eviction" | "binding":
                return self._act(target, await _body(request), request.query)
            case "PUT", True, _:
                return self._update(target, await _body(request), request.query, form)
            case "PATCH", True, _:
                return self._patch(target, request.content_type, await request.read(), request.query, form)
            case "DELETE", True, "":
                return self._delete(target, await _optional_body(request), request.query)
            case "DELETE", False, _:
                return self._delete_all(target, await _optional_body(request), request.query)
            case method, _, _:
                raise answers.not_allowed(target.kind, method)

    def _target(self, path: str) -> Target:
        parts = [part for part in path.split("/") if part]
        group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, parts = parts[0], parts[1:]
        namespace = ""
        if len(parts) >= 3 and parts[0] == "namespaces" and not (len(parts) == 3 and parts[2] in ("status", "finalize")):
            namespace, parts = parts[1], parts[2:]
        if not 1 <= len(parts) <= 3:
            raise answers.no_such_resource()
        plural, name, subresource = (*parts, "", "")[:3]
        kind = self._store.kinds.by_path(group, version, plural)
        if kind is None or (namespace and not kind.namespaced) or (name and kind.namespaced and not namespace):
            raise answers.no_such_resource()
        if subresource and subresource not in kind.subresources:
            raise answers.no_such_resource()
        return Target(kind, namespace, name, subresource)

    # reading

    def _get(self, target: Target) -> Item:
        found = self._store.peek(target.kind, target.namespace, target.name)
        match target.subresource:
            case "scale":
                return scaling.scale_of(target.kind, found)
            case "" | "status":
                return found
            case _:
                raise answers.not_allowed(target.kind, "GET")

    def _list(self, request: web.Request, target: Target, form: Form) -> web.Response:
        page = self._pages.page(target.kind, target.namespace, request.query)
        meta: Item = {"resourceVersion": page.resource_version}
        if page.more:
            meta["continue"] = page.more
            if page.remaining is not None:
                meta["remainingItemCount"] = page.remaining
        return _json(form.listing(target.kind, page.items, meta, self._store.clock.now()))

    # writing

    def _create(self, target: Target, obj: Item, query: Mapping[str, str], form: Form) -> web.Response:
        _check_kind(target.kind, obj)
        meta = obj.setdefault("metadata", {})
        if target.kind.namespaced:
            if not target.namespace:
                raise answers.not_allowed(target.kind, "POST")
            if meta.setdefault("namespace", target.namespace) != target.namespace:
                raise answers.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        warnings: list[str] = []
        made = self._store.create(obj, strict=_strict(query), dry_run=_dry(query), warnings=warnings)
        return self._answer(made, target.kind, form, status=201, warnings=_shown(warnings, query))

    def _update(self, target: Target, obj: Item, query: Mapping[str, str], form: Form) -> web.Response:
        if target.subresource == "scale":
            old = self._store.peek(target.kind, target.namespace, target.name)
            key = (target.namespace, target.name)
            return _json(scaling.put(self._store, target.kind, key, old, obj, dry_run=_dry(query)))
        _check_kind(target.kind, obj)
        meta = obj.setdefault("metadata", {})
        if meta.setdefault("name", target.name) != target.name:
            raise answers.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
            )
        if target.kind.namespaced and meta.setdefault("namespace", target.namespace) != target.namespace:
            raise answers.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        warnings: list[str] = []
        made = self._store.update(obj, target.subresource, strict=_strict(query), dry_run=_dry(query), warnings=warnings)
        return self._answer(made, target.kind, form, warnings=_shown(warnings, query))

    def _patch(self, target: Target, content_type: str, body: bytes, query: Mapping[str, str], form: Form) -> web.Response:
        kind = target.kind
        warnings: list[str] = []
        made = self._store.patch(
            kind.api_version,
            kind.kind,
            target.namespace,
            target.name,
            _patch_of(content_type, body),
            target.subresource,
            strict=_strict(query),
            dry_run=_dry(query),
            warnings=warnings,
        )
        if target.subresource == "scale":
            return _json(made)
        return self._answer(made, kind, form, warnings=_shown(warnings, query))

    def _delete(self, target: Target, body: Item, query: Mapping[str, str]) -> web.Response:
        kind = target.kind
        last = self._store.delete(
            kind.api_version, kind.kind, target.namespace, target.name, dry_run=_dry(query, body), **_deletion(body, query)
        )
        key = (target.namespace, target.name)
        still = self._store.table(kind).get(key)
        if kind.kind == "Pod" and not kind.group:
            return _json(last)
        if still is not None and still["metadata"]["uid"] == last["metadata"]["uid"] and not _dry(query, body):
            return _json(last)
        details = {"name": target.name, "kind": kind.plural, "uid": last["metadata"]["uid"]}
        if kind.group:
            details["group"] = kind.group
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    def _delete_all(self, target: Target, body: Item, query: Mapping[str, str]) -> web.Response:
        kind = target.kind
        items, version = self._store.list(
            kind.api_version,
            kind.kind,
            target.namespace,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
        )
        for item in items:
            meta = item["metadata"]
            self._store.delete(
                kind.api_version,
                kind.kind,
                meta.get("namespace", ""),
                meta["name"],
                dry_run=_dry(query, body),
                **_deletion(body, query),
            )
        listing = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {"resourceVersion": version}}
        return _json(listing | {"items": items})

    def _act(self, target: Target, body: Item, query: Mapping[str, str]) -> web.Response:
        if (body.get("metadata") or {}).get("name", "") != target.name:
            named = "Binding" if target.subresource == "binding" else "Eviction"
            raise answers.bad_request(f"name in URL does not match name in {named} object")
        dry = _dry(query, body) or _dry(query, body.get("deleteOptions") or {})
        if target.subresource == "binding":
            node = (body.get("target") or {}).get("name", "")
            uid = (body.get("metadata") or {}).get("uid", "")
            self._store.bind(target.namespace, target.name, node, uid=uid)
        else:
            options = body.get("deleteOptions") or {}
            preconditions = options.get("preconditions") or {}
            self._store.evict(
                target.namespace,
                target.name,
                uid=preconditions.get("uid", ""),
                resource_version=preconditions.get("resourceVersion", ""),
                grace_period_s=options.get("gracePeriodSeconds"),
                dry_run=dry,
            )
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, status=201)

    def _answer(self, obj: Item, kind: Kind, form: Form, *, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
        if obj.get("kind") != kind.kind:
            return _json(obj, status=status)
        return _json(form.single(kind, obj, self._store.clock.now()), status=status, warnings=warnings)


def _json(obj: Any, *, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
    response = web.Response(status=status, body=msgspec.json.encode(obj), content_type="application/json")
    for warning in warnings:
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


async def _body(request: web.Request) -> Item:
    if request.content_type == "application/vnd.kubernetes.protobuf":
        raise answers.unsupported_media(
            "this in-memory API server reads JSON and YAML, and `kubectl create KIND` sends protobuf: "
            "use `kubectl create KIND NAME ... --dry-run=client -o yaml | kubectl apply -f -`"
        )
    if request.content_type not in ("application/json", "application/yaml", "application/octet-stream", ""):
        raise answers.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
        )
    raw = await request.read()
    try:
        obj = yaml.safe_load(raw) if request.content_type == "application/yaml" else msgspec.json.decode(raw)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise answers.bad_request(f"the object provided is unrecognized: {error}") from error
    if not isinstance(obj, dict):
        raise answers.bad_request("the object provided is unrecognized (must be of type Object)")
    return obj


async def _optional_body(request: web.Request) -> Item:
    return await _body(request) if await request.read() else {}


def _patch_of(content_type: str, body: bytes) -> MergePatch | JsonPatch | StrategicPatch:
    if content_type == "application/apply-patch+yaml":
        raise answers.unsupported_media(
            "this in-memory API server does not keep field managers, so it has no server-side apply: "
            "use `kubectl apply` without --server-side"
        )
    if content_type not in _PATCH_FORMS:
        raise answers.unsupported_media(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(_PATCH_FORMS)}"
        )
    try:
        patch = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise answers.bad_request(f"error decoding patch: {error}") from error
    if content_type == "application/json-patch+json":
        if not isinstance(patch, list):
            raise answers.bad_request("error decoding patch: a JSON patch is a list of operations")
        return JsonPatch(patch)
    if not isinstance(patch, dict):
        raise answers.bad_request("error decoding patch: it must be an object")
    return MergePatch(patch) if content_type == "application/merge-patch+json" else StrategicPatch(patch)


def _check_kind(kind: Kind, obj: Item) -> None:
    obj.setdefault("apiVersion", kind.api_version)
    obj.setdefault("kind", kind.kind)
    if (obj["apiVersion"], obj["kind"]) != (kind.api_version, kind.kind):
        raise answers.bad_request(
            f"the API version in the data ({obj['apiVersion']}) does not match the expected API version ({kind.api_version})"
            if obj["kind"] == kind.kind
            else f'{obj["kind"]} in version "{obj["apiVersion"]}" cannot be handled as a {kind.kind}'
        )


def _deletion(body: Item, query: Mapping[str, str]) -> dict[str, Any]:
    preconditions = body.get("preconditions") or {}
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    orphan = body.get("orphanDependents")
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    return {
        "uid": preconditions.get("uid") or "",
        "resource_version": preconditions.get("resourceVersion") or "",
        "grace_period_s": None if grace is None else int(grace),
        "propagation": propagation,
    }


def _strict(query: Mapping[str, str]) -> bool:
    asked = query.get("fieldValidation", "")
    if asked not in ("", "Ignore", "Warn", "Strict"):
        raise answers.bad_request(f'fieldValidation: Unsupported value: "{asked}": supported values: "Ignore", "Strict", "Warn"')
    return asked == "Strict"


def _shown(warnings: list[str], query: Mapping[str, str]) -> tuple[str, ...]:
    return () if query.get("fieldValidation") == "Ignore" else tuple(warnings)


def _dry(query: Mapping[str, str], body: Item | None = None) -> bool:
    return query.get("dryRun") == "All" or "All" in ((body or {}).get("dryRun") or ())
