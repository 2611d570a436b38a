"""Credentials from a plug-in, as EKS, GKE and AKS kubeconfigs want them.

lightkube has this too, but knows no `client.authentication.k8s.io/v1`, does not tell the plug-in what it wants
(KUBERNETES_EXEC_INFO), ignores the expiry it is told, and starts one process per request in flight.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from kubewright.errors import ConfigError, ServerUnavailable

API_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
RENEW_BEFORE = timedelta(minutes=1)
TIMEOUT_S = 60.0


class _CredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    """What the plug-in prints."""

    status: _CredentialStatus = _CredentialStatus()


class ExecAuth(httpx2.Auth):
    """Runs `command` for a bearer token, keeps it until a minute before it expires, and runs it again on a 401."""

    def __init__(self, command: list[str], environment: Mapping[str, str], hint: str = "") -> None:
        self._command = command
        self._environment = environment
        self._hint = hint
        self._bearer = ""
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def from_config(cls, path: Path, user: str, raw: Mapping[str, Any], environment: Mapping[str, str]) -> "ExecAuth":
        """From the `exec` of a kubeconfig's user.

        Raises:
            ConfigError: names file, field, what was found and the mend.
        """
        where = f"{path}: users[{user}].user.exec"
        version = raw.get("apiVersion")
        if version not in API_VERSIONS:
            raise ConfigError(f"{where}.apiVersion must be one of {', '.join(API_VERSIONS)}, found {version!r}")
        if raw.get("provideClusterInfo"):
            raise ConfigError(f"{where}.provideClusterInfo is not supported: set it to false, or use a token")
        if raw.get("interactiveMode") == "Always":
            raise ConfigError(f"{where}.interactiveMode is Always, but nobody is there to answer: use Never or IfAvailable")
        command = raw.get("command")
        if not isinstance(command, str) or not command:
            raise ConfigError(f"{where}.command must be a program, found {command!r}")
        if "/" in command:
            command = str(path.parent / command)
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        return cls(
            [command, *(raw.get("args") or [])],
            {
                **environment,
                **{entry["name"]: entry["value"] for entry in raw.get("env") or []},
                "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
            },
            str(raw.get("installHint") or ""),
        )

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        bearer = await self._current(refused="")
        request.headers["Authorization"] = bearer
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = await self._current(refused=bearer)
            yield request

    async def _current(self, *, refused: str) -> str:
        """The bearer header; a new one if the last is old or was refused. Many askers start one process."""
        async with self._lock:
            stale = self._expires is not None and datetime.now(UTC) >= self._expires - RENEW_BEFORE
            if not self._bearer or stale or self._bearer == refused:
                await self._renew()
            return self._bearer

    async def _renew(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=dict(self._environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise self._refusal(
                f"cannot be started ({error.strerror}){f'; {self._hint.strip()}' if self._hint else ''}"
            ) from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise self._refusal(f"did not answer within {TIMEOUT_S:.0f} s") from error
        if process.returncode != 0:
            raise self._refusal(f"ended with {process.returncode}: {err[-500:].decode(errors='replace').strip()}")
        try:
            status = msgspec.json.decode(out, type=_Credential).status
        except msgspec.DecodeError:
            # Not chained and not quoted: what it printed may hold a secret.
            raise self._refusal("did not print an ExecCredential") from None
        if not status.token:
            kind = "a client certificate, which is not supported" if status.client_certificate_data else "nothing"
            raise self._refusal(f"returned {kind}, expected status.token")
        self._bearer = f"Bearer {status.token}"
        self._expires = status.expiration_timestamp

    def _refusal(self, what: str) -> ServerUnavailable:
        return ServerUnavailable(0, "CredentialPlugin", f"the credential plug-in {self._command[0]!r} {what}")
