"""Listening, and turning what the store says into HTTP."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from kubewright.errors import KubeError
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.http import discovery, openapi
from kubewright.sim.apiserver.http.resources import Resources
from kubewright.sim.apiserver.store import Store

_LARGEST_BODY = 3 * 1024 * 1024
"""Source: kube-apiserver's limit of request bodies."""

_LINGER_S = 1.0

_log = logging.getLogger(__name__)


class Server:
    """A listening server. It owns its connections, not the store."""

    def __init__(self, runner: web.AppRunner, url: str) -> None:
        self._runner = runner
        self.url = url
        """Where it listens, without a slash at the end."""

    async def close(self) -> None:
        """Stop listening and end every watch that came in here."""
        await self._runner.cleanup()


async def serve(store: Store, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve `store` over plain HTTP; port 0 takes a free one.

    There is no authentication, so `host` should stay on loopback.

    Raises:
        OSError: the port is taken.
    """
    app = web.Application(middlewares=[_refusals], client_max_size=_LARGEST_BODY)
    resources = Resources(store)
    app.router.add_get("/version", discovery.version)
    for path in ("/healthz", "/livez", "/readyz"):
        app.router.add_get(path, _ok)
        app.router.add_get(path + "/{check:.*}", _ok)
    discovery.add_routes(app, store)
    openapi.add_routes(app, store)
    app.router.add_route("*", "/api/{tail:.+}", resources.handle)
    app.router.add_route("*", "/apis/{tail:.+}", resources.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=_LINGER_S, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    bound = runner.addresses[0][1]
    return Server(runner, f"http://{f'[{host}]' if ':' in host else host}:{bound}")


def write_kubeconfig(path: Path, url: str, *, name: str = "kubewright-sandbox") -> None:
    """Write a kubeconfig that points kubectl at `url`, readable by its owner alone."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    path.chmod(0o600)


async def _ok(request: web.Request) -> web.Response:
    del request
    return web.Response(text="ok")


@web.middleware
async def _refusals(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """The one place where errors become Status objects."""
    try:
        return await handler(request)
    except KubeError as error:
        return status_response(error)
    except web.HTTPNotFound:
        return status_response(answers.no_such_resource())
    except web.HTTPRequestEntityTooLarge:
        return status_response(KubeError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"))
    except web.HTTPException as error:
        return status_response(KubeError(error.status, error.reason.replace(" ", ""), error.reason))
    except Exception as error:  # noqa: BLE001  # a bug here is the client's 500, with the traceback in our log
        _log.exception("%s %s failed", request.method, request.path)
        return status_response(answers.internal(f"Internal error occurred: {error}"))


def status_response(error: KubeError) -> web.Response:
    headers = {}
    retry = (error.details or {}).get("retryAfterSeconds")
    if retry:
        headers["Retry-After"] = str(retry)
    return web.Response(
        status=error.status,
        body=msgspec.json.encode(status_of(error)),
        content_type="application/json",
        headers=headers,
    )


def status_of(error: KubeError) -> dict[str, Any]:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
    }
    if error.details is not None:
        status["details"] = error.details
    return status | {"code": error.status}
