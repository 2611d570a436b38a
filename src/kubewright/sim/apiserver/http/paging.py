"""Lists in pages: all pages of one list are cut from the same moment."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from kubewright.errors import ServerUnavailable
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.store import Store

Item = dict[str, Any]

_KEPT = 64
"""How many unfinished lists are remembered; an older one is answered 410, as after etcd's compaction."""

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter."
)


class Page(msgspec.Struct, frozen=True):
    items: list[Item]
    resource_version: str
    more: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    snapshot: int
    start: int
    resource_version: str


class Pages:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: dict[int, list[Item]] = {}
        self._next = 0

    def page(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Page:
        """One page, or everything when no limit is asked. Raises Gone, KubeError (400)."""
        limit = _number(query, "limit")
        selected = bool(query.get("labelSelector") or query.get("fieldSelector"))
        if query.get("continue"):
            token = _read(query["continue"])
            items = self._snapshots.get(token.snapshot)
            if items is None or int(token.resource_version) < self._store.table(kind).oldest_version:
                raise answers.gone(_TOO_OLD)
            return self._cut(items, token.snapshot, token.start, limit, token.resource_version, selected=selected)
        self._check_version(query)
        items, version = self._store.list(
            kind.api_version, kind.kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        if not limit or len(items) <= limit:
            return Page(items, version)
        self._next += 1
        self._snapshots[self._next] = items
        if len(self._snapshots) > _KEPT:
            del self._snapshots[min(self._snapshots)]
        return self._cut(items, self._next, 0, limit, version, selected=selected)

    def _cut(self, items: list[Item], snapshot: int, start: int, limit: int, version: str, *, selected: bool) -> Page:
        end = start + limit if limit else len(items)
        if end >= len(items):
            del self._snapshots[snapshot]
            return Page(items[start:], version)
        remaining = None if selected else len(items) - end
        return Page(items[start:end], version, _write(_Token(snapshot, end, version)), remaining)

    def _check_version(self, query: Mapping[str, str]) -> None:
        asked = _number(query, "resourceVersion")
        if asked > self._store.version:
            text = f"Timeout: Too large resource version: {asked}, current: {self._store.version}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise ServerUnavailable(504, "Timeout", text, {"causes": [cause], "retryAfterSeconds": 1})
        if query.get("resourceVersionMatch") == "Exact" and asked != self._store.version:
            raise answers.gone(f"The resourceVersion for the provided list is too old: {asked}")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdigit():
        raise answers.bad_request(f'Invalid value: "{text}": {name} must be a whole number')
    return int(text)


def _write(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise answers.bad_request(f"continue key is not valid: {error}") from error
