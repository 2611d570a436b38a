"""/metrics on one port, /healthz and /readyz on another, as the reference's probes and ServiceMonitor expect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec
from aiohttp import web

from kubewright.errors import ConfigError
from kubewright.metrics.registry import CONTENT_TYPE, Registry

Checks = Mapping[str, Callable[[], bool]]
Page = Callable[[], tuple[str, bytes]]
"""Content type and body, made when it is asked for."""


class Ports(msgspec.Struct, frozen=True):
    """The ports that were opened; they differ from those asked for where 0 was asked for."""

    metrics: int
    health: int


@contextlib.asynccontextmanager
async def serve(
    registry: Registry,
    *,
    ready: Checks,
    alive: Checks | None = None,
    host: str = "",
    metrics_port: int = 8080,
    health_port: int = 8081,
    before_scrape: Callable[[], None] = lambda: None,
    pages: Mapping[str, Page] | None = None,
) -> AsyncIterator[Ports]:
    """Serve while the context lasts. `host` "" means all addresses; port 0 means any.

    `ready`, `alive`: name → check; /readyz and /healthz answer 200 when all hold, else 500 naming those that do not.
    `before_scrape` brings gauges up to date that depend on the time. `pages` are served beside /metrics, by path.

    Raises:
        ConfigError: a port is taken.
    """

    async def metrics(request: web.Request) -> web.StreamResponse:
        before_scrape()
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        for chunk in registry.chunks():
            await response.write(chunk)
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    async def livez(_: web.Request) -> web.Response:
        return _answer(alive or {})

    async def readyz(_: web.Request) -> web.Response:
        return _answer(ready)

    async with contextlib.AsyncExitStack() as stack:
        beside = {path: _handler(page) for path, page in (pages or {}).items()}
        opened_metrics = await stack.enter_async_context(
            _site({"/metrics": metrics, **beside}, host, metrics_port, "--metrics-port")
        )
        opened_health = await stack.enter_async_context(
            _site({"/healthz": livez, "/readyz": readyz}, host, health_port, "--health-probe-port")
        )
        yield Ports(opened_metrics, opened_health)


def _handler(page: Page) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(_: web.Request) -> web.Response:
        kind, body = page()
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return handler


def _answer(checks: Checks) -> web.Response:
    failed = [name for name in sorted(checks) if not checks[name]()]
    if not failed:
        return web.Response(text="ok")
    lines = [f"[{'-' if name in failed else '+'}]{name}" for name in sorted(checks)]
    return web.Response(status=500, text="\n".join(lines) + "\n")


@contextlib.asynccontextmanager
async def _site(routes: Mapping[str, Callable[[web.Request], object]], host: str, port: int, flag: str) -> AsyncIterator[int]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            raise ConfigError(f"{flag} {port} cannot be opened ({error.strerror}): free it or choose another") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
