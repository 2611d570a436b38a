"""The production `KubeClient`: our verbs and structs on lightkube's connection (kubeconfig, TLS, auth) over httpx2.

Why not lightkube's own verbs: docs/decisions/001-kubernetes-client.md.
"""

import asyncio
import contextlib
import socket
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

import httpx2

from kubewright.api.core import Pod
from kubewright.api.meta import Object
from kubewright.errors import ConfigError, Gone, ServerUnavailable
from kubewright.kube import wire
from kubewright.kube.client import Listing, MergePatch, Patch, WatchEvent
from kubewright.kube.config import Connection
from kubewright.kube.ratelimit import TokenBucket

T = TypeVar("T", bound=Object)

QPS = 200.0
BURST = 300
"""Source: spec/scheduling 12.3, kube-client-qps and kube-client-burst."""

PAGE = 500
"""Items of a list page; client-go's pager asks for as many."""

TIMEOUT = httpx2.Timeout(30.0, connect=10.0, pool=None)
"""Seconds without a byte. No limit on waiting for a free connection: the token bucket bounds that."""

WATCH_SILENCE_S = 150.0
"""The API server sends a bookmark about every minute; a watch that is silent longer hangs on a dead connection."""

WATCH_LIFE_S = 300
"""The server ends a watch after this plus up to as much again, by kind, so that not all end at once."""

_LIMITS = httpx2.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=60.0)


class ClientHooks:
    """What the client tells a listener; override what you want to hear."""

    def answered(self, method: str, kind: type[Object], subresource: str, code: int, took_s: float) -> None:
        """Called when a request was answered; `code` is 0 if it was not. A watch is answered when it begins."""


class HttpClient:
    """Speaks to one API server. `qps`, `burst`: requests a second in the long run and at once; watches count as one each."""

    def __init__(
        self,
        connection: Connection,
        *,
        qps: float = QPS,
        burst: int = BURST,
        page: int = PAGE,
        hooks: ClientHooks | None = None,
    ) -> None:
        self._hooks = hooks or ClientHooks()
        self._page = page
        self._bucket = TokenBucket(qps, burst)
        self._extensions = {"sni_hostname": connection.tls_server_name} if connection.tls_server_name else {}
        try:
            transport = httpx2.AsyncHTTPTransport(
                verify=connection.verify,
                trust_env=False,
                limits=_LIMITS,
                proxy=connection.proxy or None,
                socket_options=[(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            )
            self._http = httpx2.AsyncClient(
                base_url=connection.server,
                auth=connection.auth,
                transport=transport,
                timeout=TIMEOUT,
                headers={
                    "Accept": "application/json",
                    # Deflating costs both sides more than the bytes do inside a cluster.
                    "Accept-Encoding": "identity",
                    "User-Agent": "kubewright",
                },
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise ConfigError(f"{connection.source}: cannot connect to {connection.server!r}: {error}") from error

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return wire.decode(kind, await self._send("GET", kind, namespace, name))

    async def list(self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        try:
            return await self._pages(kind, namespace, _selectors(labels, fields) | {"limit": str(self._page)})
        except Gone:
            # The snapshot that the pages are cut from was compacted meanwhile; one whole answer cannot be.
            return await self._pages(kind, namespace, _selectors(labels, fields))

    async def _pages(self, kind: type[T], namespace: str, params: dict[str, str]) -> Listing[T]:
        items: list[T] = []
        while True:
            page, version, more = wire.decode_page(kind, await self._send("GET", kind, namespace, params=params))
            items.extend(page)
            if not more:
                return Listing(items, version)
            params["continue"] = more

    async def watch(
        self, kind: type[T], namespace: str = "", *, resource_version: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[WatchEvent[T]]:
        path = wire.path(kind, namespace)
        params = _selectors(labels, fields) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_LIFE_S + zlib.crc32(path.encode()) % WATCH_LIFE_S),
        }
        await self._bucket.take()
        timeout = httpx2.Timeout(30.0, connect=10.0, read=WATCH_SILENCE_S, pool=None)
        with _errors_mapped(f"watch {path}"):
            request = self._http.build_request("GET", path, params=params, timeout=timeout, extensions=self._extensions)
            with self._timed("WATCH", kind) as answer:
                response = await self._http.send(request, stream=True)
                answer.code = response.status_code
            async with contextlib.aclosing(response):
                if response.status_code != 200:
                    raise wire.error_of(response.status_code, await response.aread())
                async for line in _lines(response):
                    yield wire.decode_event(kind, line)

    async def create(self, obj: T) -> T:
        kind = type(obj)
        if kind.RESOURCE.namespaced and not obj.namespace:
            raise ValueError(f"{kind.RESOURCE.kind} {obj.name!r} is namespaced, but no namespace was given")
        answer = await self._send("POST", kind, obj.namespace, content=wire.body(obj))
        return wire.decode(kind, answer)

    async def patch(self, kind: type[T], name: str, patch: Patch, namespace: str = "", *, subresource: str = "") -> T:
        form, content = ("merge-patch", patch.body) if isinstance(patch, MergePatch) else ("json-patch", patch.operations)
        answer = await self._send(
            "PATCH", kind, namespace, name, subresource, content=content, content_type=f"application/{form}+json"
        )
        return wire.decode(kind, answer)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        options = _delete_options(uid, resource_version, grace_period_s, propagation)
        await self._send("DELETE", kind, namespace, name, content=options or None)

    async def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", None, ""),
        }
        await self._send("POST", Pod, namespace, name, "eviction", content=eviction)

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(
        self,
        method: str,
        kind: type[Object],
        namespace: str,
        name: str = "",
        subresource: str = "",
        *,
        params: dict[str, str] | None = None,
        content: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of a good answer; a bad one is raised."""
        path = wire.path(kind, namespace, name, subresource)
        await self._bucket.take()
        with self._timed(method, kind, subresource) as answer, _errors_mapped(f"{method} {path}"):
            response = await self._http.request(
                method,
                path,
                params=params,
                content=None if content is None else wire.encode(content),
                headers=None if content is None else {"Content-Type": content_type},
                extensions=self._extensions,
            )
            answer.code = response.status_code
        if not response.is_success:
            raise wire.error_of(response.status_code, response.content)
        return response.content

    @contextlib.contextmanager
    def _timed(self, method: str, kind: type[Object], subresource: str = "") -> Iterator["_Answer"]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = _Answer()
        try:
            yield answer
        finally:
            self._hooks.answered(method, kind, subresource, answer.code, loop.time() - started)


class _Answer:
    code = 0


@contextlib.contextmanager
def _errors_mapped(what: str) -> Iterator[None]:
    """The only place where the library's errors become ours: no answer is `ServerUnavailable`."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise ServerUnavailable(0, "Timeout", f"{what}: no answer in time ({type(error).__name__})") from error
    except httpx2.HTTPError as error:
        raise ServerUnavailable(0, "NoAnswer", f"{what}: {error or type(error).__name__}") from error


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Whole lines as they come. The library's own line iterator decodes to text first, which costs as much as the JSON."""
    rest: list[bytes] = []
    async for chunk in response.aiter_raw():
        *whole, last = chunk.split(b"\n")
        if whole:
            rest.append(whole[0])
            whole[0] = b"".join(rest)
            rest = []
            for line in whole:
                if line:
                    yield line
        if last:
            rest.append(last)
    if rest:
        raise ServerUnavailable(0, "NoAnswer", "the watch broke off inside an event")


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {key: text for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}


def _delete_options(uid: str, resource_version: str, grace_period_s: int | None, propagation: str) -> dict[str, Any]:
    """The body of a delete, without what was not asked for."""
    preconditions = {key: text for key, text in (("uid", uid), ("resourceVersion", resource_version)) if text}
    options: dict[str, Any] = {}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation:
        options["propagationPolicy"] = propagation
    return options
