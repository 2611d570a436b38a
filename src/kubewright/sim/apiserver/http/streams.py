"""Watches over HTTP: one JSON document a line, for as long as the client stays."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from kubewright.errors import KubeError
from kubewright.sim.apiserver.http.tables import Form
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.store import Store

_TRUE = ("1", "true")


async def watch(store: Store, request: web.Request, kind: Kind, namespace: str, form: Form) -> web.StreamResponse:
    query = request.query
    timeout = query.get("timeoutSeconds", "")
    events = store.watch(
        kind.api_version,
        kind.kind,
        namespace,
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        query.get("resourceVersion", ""),
        bookmarks=query.get("allowWatchBookmarks", "") in _TRUE,
        initial_events=query.get("sendInitialEvents", "") in _TRUE,
        timeout_s=float(timeout) if timeout.isdigit() and timeout != "0" else None,
    )
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    await response.prepare(request)
    first = True
    try:
        async for name, item in events:
            shown = form.event(kind, item, store.clock.now(), bookmark=name == "BOOKMARK", first=first)
            first = False
            await response.write(_line(name, shown))
    except KubeError as error:  # too late for a status code: the answer began with 200
        from kubewright.sim.apiserver.http.server import status_of  # noqa: PLC0415 - server imports this module

        await response.write(_line("ERROR", status_of(error)))
    except ConnectionResetError:
        return response  # the client left
    await response.write_eof()
    return response


def _line(name: str, obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": name, "object": obj}) + b"\n"
