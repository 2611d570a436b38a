"""The least client that can ask the API server something: for the plane itself and its tests, and independent of ours."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple


class RequestRefused(RuntimeError):
    """The API server answered with something else than success; the message is its own."""


class Answer(NamedTuple):
    """What came back, whether success or not."""

    method: str
    path: str
    status: int
    body: Any
    """Decoded JSON; text where the server sent none."""

    def body_or_raise(self) -> Any:
        """The body of a success. Raises RequestRefused otherwise."""
        if self.status >= 300:
            message = self.body.get("message", self.body) if isinstance(self.body, dict) else self.body
            raise RequestRefused(f"{self.method} {self.path}: {self.status} {message}")
        return self.body


class Client:
    """One API server, one token, one connection a request."""

    def __init__(self, url: str, *, authority: Path, token: str) -> None:
        self._url = url
        self._token = token
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(authority)))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Answer:
        """Raises OSError if the server cannot be reached."""
        status, raw = self._open(
            urllib.request.Request(
                self._url + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {self._token}", "Content-Type": content_type, "Accept": "application/json"},
            )
        )
        try:
            return Answer(method, path, status, json.loads(raw))
        except ValueError:
            return Answer(method, path, status, raw.decode(errors="replace"))

    def is_ready(self, url: str) -> bool:
        """Whether `url` answers 200. The token is sent to the API server alone."""
        headers = {"Authorization": f"Bearer {self._token}"} if url.startswith(self._url) else {}
        try:
            return self._open(urllib.request.Request(url, headers=headers))[0] == 200
        except OSError:
            return False

    def _open(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with self._opener.open(request, timeout=30) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
