"""A tiny HTTP server that answers what a test says and keeps what it was asked. Loopback, real time."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from kubewright.kube.config import Connection
from kubewright.kube.http import HttpClient


class Asked(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = web.StreamResponse | tuple[int, Any]
Handler = Callable[[web.Request], Awaitable[Answer]]


class Server:
    """`answers` are given in turn; the last one again and again. `asked` is everything that came in."""

    def __init__(self, *answers: Answer | Handler) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.asked.append(
            Asked(request.method, request.path, dict(request.query), dict(request.headers), json.loads(text) if text else None)
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer) and not isinstance(answer, web.StreamResponse):
            answer = await answer(request)
        if isinstance(answer, tuple):
            code, body = answer
            return web.json_response(body, status=code) if not isinstance(body, bytes) else web.Response(status=code, body=body)
        return answer

    @contextlib.asynccontextmanager
    async def running(self, context: ssl.SSLContext | None = None) -> AsyncIterator["Server"]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            self.url = f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def client_of(server: Server, **options: Any) -> AsyncIterator[HttpClient]:
    async with server.running():
        client = HttpClient(Connection(server=server.url, verify=True), **options)
        try:
            yield client
        finally:
            await client.close()


def status(code: int, reason: str, message: str, **details: Any) -> tuple[int, dict[str, Any]]:
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    return code, body | ({"details": details} if details else {})


def stream(*chunks: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Handler:
    """A watch that sends these bytes and ends, or does `then` first."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        await response.write_eof()
        return response

    return answer
