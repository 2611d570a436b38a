"""In which form a client wants its answer: the object, only its metadata, or a table for people.

`kubectl get` asks for tables; their cells are made by the server. Source: meta.k8s.io/v1 Table.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from kubewright.sim.apiserver.http import columns, printers
from kubewright.sim.apiserver.kinds import Kind

Item = Mapping[str, Any]


class Form(Protocol):
    def single(self, kind: Kind, obj: Item, now: datetime) -> Item: ...

    def listing(self, kind: Kind, items: Sequence[Item], meta: Item, now: datetime) -> Item: ...

    def event(self, kind: Kind, obj: Item, now: datetime, *, bookmark: bool, first: bool) -> Item: ...


def negotiate(accept: str) -> Form:
    """The first form in an Accept header that this server can make."""
    for part in accept.split(","):
        words = [word.strip() for word in part.split(";")]
        if words[0] not in ("application/json", "*/*", "application/*", ""):
            continue
        parameters = dict(word.partition("=")[::2] for word in words[1:])
        match parameters.get("as", ""):
            case "Table":
                return _Tables()
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return _MetadataOnly()
            case "":
                return _Whole()
    return _Whole()


class _Whole:
    def single(self, kind: Kind, obj: Item, now: datetime) -> Item:
        del kind, now
        return obj

    def listing(self, kind: Kind, items: Sequence[Item], meta: Item, now: datetime) -> Item:
        del now
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def event(self, kind: Kind, obj: Item, now: datetime, *, bookmark: bool, first: bool) -> Item:
        del kind, now, bookmark, first
        return obj


class _MetadataOnly:
    def single(self, kind: Kind, obj: Item, now: datetime) -> Item:
        del kind, now
        return partial(obj)

    def listing(self, kind: Kind, items: Sequence[Item], meta: Item, now: datetime) -> Item:
        del kind, now
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        return head | {"items": [partial(item) for item in items]}

    def event(self, kind: Kind, obj: Item, now: datetime, *, bookmark: bool, first: bool) -> Item:
        del kind, now, bookmark, first
        return partial(obj)


class _Tables:
    def single(self, kind: Kind, obj: Item, now: datetime) -> Item:
        return _table(kind, [obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, now)

    def listing(self, kind: Kind, items: Sequence[Item], meta: Item, now: datetime) -> Item:
        return _table(kind, items, meta, now)

    def event(self, kind: Kind, obj: Item, now: datetime, *, bookmark: bool, first: bool) -> Item:
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        if bookmark:
            return {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
                "columnDefinitions": [],
                "rows": [],
            }
        return _table(kind, [obj], meta, now, with_columns=first)


def partial(obj: Item) -> Item:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _table(kind: Kind, items: Sequence[Item], meta: Item, now: datetime, *, with_columns: bool = True) -> Item:
    shown = columns.of_custom(kind) if kind.custom else printers.columns_of(kind)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" else "",
            "description": column.description or f"{column.name} of the {kind.kind}",
            "priority": column.priority,
        }
        for column in shown
    ]
    rows = [{"cells": [column.cell(item, now) for column in shown], "object": partial(item)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": definitions if with_columns else [],
        "rows": rows,
    }
