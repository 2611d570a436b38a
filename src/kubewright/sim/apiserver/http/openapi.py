"""OpenAPI v3 as far as kubectl reads it: for `explain`, for the merge keys of `apply`, and to learn that the server validates.

OpenAPI v2 is not served: kubectl asks for it in protobuf only, and falls back to v3 or to what it knows itself.
"""

import re
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from aiohttp import web
from lightkube.models import meta_v1

from kubewright.api.fields import Field, fields_of, models_under
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.store import Store
from kubewright.sim.apiserver.strategic import is_set, merge_key

Item = dict[str, Any]

_PARAMETER = re.compile(r"^\s*\* \*\*(?P<name>\S+)\*\* ``[^`]*``(?: - (?P<text>.*))?$")
_PLAIN: Mapping[str, Item] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "float": {"type": "number", "format": "double"},
    "dict": {"type": "object", "additionalProperties": True},
    "any": {},
    "Quantity": {"type": "string"},
    "IntOrString": {"type": "string", "format": "int-or-string"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
}
_WRITE_OPTIONS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def add_routes(app: web.Application, store: Store) -> None:
    async def index(request: web.Request) -> web.Response:
        del request
        paths = {}
        for group, versions in store.kinds.groups().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                body = _document(store, group, version)
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={zlib.crc32(body):08X}"}
        return web.json_response({"paths": paths})

    async def one(request: web.Request) -> web.Response:
        body = _document(store, request.match_info.get("group", ""), request.match_info["version"])
        return web.Response(body=body, content_type="application/json")

    app.router.add_get("/openapi/v3", index)
    app.router.add_get("/openapi/v3/api/{version}", one)
    app.router.add_get("/openapi/v3/apis/{group}/{version}", one)


def _document(store: Store, group: str, version: str) -> bytes:
    kinds = tuple(kind for kind in store.kinds if (kind.group, kind.version) == (group, version))
    if not kinds:
        raise answers.no_such_resource()
    return _render(_Same(kinds))


class _Same:
    """Kinds as a cache key: the same tuples of the same objects are the same document."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._key = tuple((k.api_version, k.kind, id(k.schema)) for k in kinds)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._key == other._key


@cache
def _render(same: _Same) -> bytes:
    schemas: Item = {}
    paths: Item = {}
    for kind in same.kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        name = _schema_name(kind)
        if kind.custom:
            schemas |= _models(meta_v1.ObjectMeta)
            schemas[name] = _custom(kind)
        else:
            schemas |= _models(kind.model)
        schemas[name]["x-kubernetes-group-version-kind"] = [gvk]
        base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        place = f"{base}/namespaces/{{namespace}}" if kind.namespaced else base
        answer = {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": _ref(name)}}}}}
        paths[f"{place}/{kind.plural}/{{name}}"] = {
            verb: {
                "responses": answer,
                "x-kubernetes-action": verb,
                "x-kubernetes-group-version-kind": gvk,
                **({} if verb == "get" else {"parameters": _WRITE_OPTIONS}),
            }
            for verb in ("get", "put", "patch", "delete")
        }
        paths[f"{place}/{kind.plural}"] = {
            verb: {
                "responses": answer,
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": gvk,
                **({} if verb == "get" else {"parameters": _WRITE_OPTIONS}),
            }
            for verb, action in (("get", "list"), ("post", "post"))
        }
    document = {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}}
    return msgspec.json.encode({**document, "paths": paths, "components": {"schemas": schemas}})


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"


def _schema_name(kind: Kind) -> str:
    if kind.custom:
        return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"
    return _name_of(kind.model)


def _name_of(model: Any) -> str:
    """`models.core_v1.Pod` → `io.k8s.api.core.v1.Pod`."""
    group, _, version = model.__module__.rsplit(".", 1)[-1].rpartition("_")
    if group == "meta":
        return f"io.k8s.apimachinery.pkg.apis.meta.{version}.{model.__name__}"
    return f"io.k8s.api.{group}.{version}.{model.__name__}"


def _models(root: Any) -> Item:
    return {_name_of(model): _schema_of(model) for model in models_under(root)}


@cache
def _schema_cached(model: Any) -> bytes:
    about, described = _docs(model)
    properties: Item = {}
    for name, field in fields_of(model).items():
        schema = _field_schema(field)
        if described.get(name):
            schema = (
                {"allOf": [schema], "description": described[name]}
                if "$ref" in schema
                else schema | {"description": described[name]}
            )
        key = merge_key(model, name)
        if key:
            schema |= {"x-kubernetes-patch-merge-key": key, "x-kubernetes-patch-strategy": "merge"}
        elif is_set(model, name):
            schema |= {"x-kubernetes-patch-strategy": "merge"}
        properties[name] = schema
    schema = {"type": "object", "description": about, "properties": properties}
    needed = [name for name, field in fields_of(model).items() if field.required]
    if needed:
        schema["required"] = needed
    return msgspec.json.encode(schema)


def _schema_of(model: Any) -> Item:
    schema: Item = msgspec.json.decode(_schema_cached(model))
    return schema


def _field_schema(field: Field) -> Item:
    one = {"$ref": _ref(_name_of(field.model))} if field.model is not None else dict(_PLAIN[field.leaf])
    return {"type": "array", "items": one} if field.many else one


def _docs(model: Any) -> tuple[str, Mapping[str, str]]:
    """What the model's docstring says of it, and of each of its fields."""
    about: list[str] = []
    fields: dict[str, list[str]] = {}
    current = about
    for line in (model.__doc__ or "").splitlines():
        found = _PARAMETER.match(line)
        if found is not None:
            current = fields.setdefault(found["name"], [])
            current.append(found["text"] or "")
        elif line.strip() == "**parameters**":
            current = []
        else:
            current.append(line.strip())
    return " ".join(about).strip(), {name: " ".join(text).strip() for name, text in fields.items()}


def _custom(kind: Kind) -> Item:
    schema: Item = dict(kind.schema or {})
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **schema.get("properties", {}),
        "metadata": {
            "allOf": [{"$ref": _ref(_name_of(meta_v1.ObjectMeta))}],
            "description": "Standard object's metadata.",
        },
    }
    return schema
