"""Following one kind's history: one position a watcher, no queue to overflow."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.selection import Test
from kubewright.sim.apiserver.table import Change, Item

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store

BOOKMARK_EVERY_S = 60.0
"""Source: k8s.io/apiserver watch cache, about one a minute."""

TIMEOUT_S = 1800.0
"""When the server ends a watch of its own accord. Source: kube-apiserver --min-request-timeout."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def watch_table(
    store: "Store",
    kind: Kind,
    namespace: str,
    wanted: Test,
    resource_version: str,
    *,
    bookmarks: bool,
    initial_events: bool,
    timeout_s: float | None,
) -> AsyncIterator[tuple[str, Item]]:
    table = store.table(kind)
    loop = asyncio.get_running_loop()
    ends = loop.time() + (TIMEOUT_S if timeout_s is None else timeout_s)
    start = store.version
    if resource_version in ("", "0") or initial_events:
        position = table.position_after(start)
        for item in list(table.items(namespace)):
            if wanted(item):
                yield "ADDED", item
        if initial_events:
            yield "BOOKMARK", bookmark(kind, start, {INITIAL_EVENTS_END: "true"})
    else:
        start = _number(resource_version)
        if start < table.oldest_version:
            raise answers.gone(f"too old resource version: {start} ({table.oldest_version})")
        position = table.position_after(start)
    next_bookmark = loop.time() + BOOKMARK_EVERY_S
    while not store.closed:
        if position < table.dropped:
            raise answers.gone(f"too old resource version: {start} ({table.oldest_version})")
        while position - table.dropped < len(table.history):
            change = table.history[position - table.dropped]
            position += 1
            start = change.version
            event = _event(change, namespace, wanted)
            if event is not None:
                yield event
                if position < table.dropped:
                    raise answers.gone(f"too old resource version: {start} ({table.oldest_version})")
        now = loop.time()
        if now >= ends:
            return
        if bookmarks and now >= next_bookmark:
            next_bookmark = now + BOOKMARK_EVERY_S
            start = store.version
            yield "BOOKMARK", bookmark(kind, start, {})
            continue
        wake_at = min(ends, next_bookmark) if bookmarks else ends
        await _rest(table.next_change(), loop, wake_at)


def bookmark(kind: Kind, version: int, annotations: dict[str, str]) -> Item:
    meta: Item = {"resourceVersion": str(version)}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


async def _rest(change: "asyncio.Future[None]", loop: asyncio.AbstractEventLoop, until: float) -> None:
    alarm = loop.call_at(until, _ring, change)
    try:
        await change
    finally:
        alarm.cancel()
        change.cancel()


def _ring(change: "asyncio.Future[None]") -> None:
    if not change.done():
        change.set_result(None)


def _event(change: Change, namespace: str, wanted: Test) -> tuple[str, Item] | None:
    """What a watcher with this selector sees of `change`; leaving the selection looks like a deletion."""
    if namespace and change.last["metadata"].get("namespace") != namespace:
        return None
    was = change.before is not None and wanted(change.before)
    now = change.after is not None and wanted(change.after)
    if now:
        return "MODIFIED" if was else "ADDED", change.last
    if was and change.after is None:
        return "DELETED", change.last
    if was and change.before is not None:
        meta = {**change.before["metadata"], "resourceVersion": str(change.version)}
        return "DELETED", {**change.before, "metadata": meta}
    return None


def _number(version: str) -> int:
    if not version.isdigit():
        raise answers.bad_request(f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax')
    return int(version)
