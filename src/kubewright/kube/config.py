"""Which cluster, and as whom: a kubeconfig file or the service account of a pod.

lightkube reads, selects and authenticates; this module finds the file, looks for what lightkube would fail on or silently
drop, and says so by file and field.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import BearerTokenFileAuth, user_auth, verify_cluster
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from kubewright.errors import ConfigError
from kubewright.kube.execauth import ExecAuth

DEFAULT_FILE = "~/.kube/config"

_FIELDS = {"certificate_auth": "certificate-authority", "client_cert": "client-certificate", "client_key": "client-key"}
"""lightkube's name → the kubeconfig's."""
_USER_REFUSED = ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra")


class Connection(msgspec.Struct, frozen=True):
    """Everything a client needs to talk to one API server."""

    server: str
    verify: Any
    """An ssl.SSLContext, with the client certificate loaded if there is one."""
    auth: httpx2.Auth | None = None
    namespace: str = "default"
    tls_server_name: str = ""
    proxy: str = ""
    source: str = ""
    """Where this came from, for messages."""


def load(
    path: str = "", context: str = "", *, environment: Mapping[str, str] | None = None, service_account: str = SERVICE_ACCOUNT
) -> Connection:
    """The connection of `path` (a kubeconfig) and `context` (else its current one).

    Without a path: the pod's service account if there is one, else $KUBECONFIG, else ~/.kube/config.

    Raises:
        ConfigError: names file, field, what was found and the mend.
    """
    environment = os.environ if environment is None else environment
    if not path and not context and "KUBERNETES_SERVICE_HOST" in environment and Path(service_account, "token").is_file():
        return _in_cluster(service_account, environment)
    files = [path] if path else [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if len(files) > 1:
        raise ConfigError(
            f"$KUBECONFIG names {len(files)} files ({', '.join(files)}), and merging is not supported: name one, or write "
            "the merged one with `kubectl config view --flatten`"
        )
    return _from_file(Path(files[0] if files else DEFAULT_FILE).expanduser(), context, environment)


def _in_cluster(service_account: str, environment: Mapping[str, str]) -> Connection:
    for name in ("ca.crt", "namespace"):
        if not Path(service_account, name).is_file():
            raise ConfigError(
                f"{service_account}/{name} is missing though the token is there: mount the whole service account volume "
                "(automountServiceAccountToken: true)"
            )
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not port:
        raise ConfigError("$KUBERNETES_SERVICE_HOST is set but $KUBERNETES_SERVICE_PORT is not: set both or neither")
    host = environment["KUBERNETES_SERVICE_HOST"]
    config = KubeConfig.from_server(f"https://{f'[{host}]' if ':' in host else host}:{port}").get()
    assert config is not None
    config.cluster.certificate_auth = str(Path(service_account, "ca.crt"))
    return Connection(
        server=config.cluster.server,
        verify=verify_cluster(config.cluster, User(), config.abs_file, trust_env=False),
        # Rotated by the kubelet; lightkube reads it again when the API server says 401.
        auth=BearerTokenFileAuth(str(Path(service_account, "token"))),
        namespace=Path(service_account, "namespace").read_text().strip() or "default",
        source=service_account,
    )


def _from_file(path: Path, context: str, environment: Mapping[str, str]) -> Connection:
    document = _read(path)
    context = context or document.get("current-context") or ""
    if not isinstance(context, str) or not context:
        raise ConfigError(f"{path}: current-context is empty: set it with `kubectl config use-context NAME` or name a context")
    chosen = _pick(path, document, "context", context, "current-context")
    wanted_by = f"context {context!r}"
    cluster = _pick(path, document, "cluster", _text(path, f"contexts[{context}].cluster", chosen), wanted_by)
    user_name = chosen.get("user") or ""
    user = _pick(path, document, "user", user_name, wanted_by) if user_name else {}
    _check(path, chosen["cluster"], cluster, user_name, user)
    try:
        single = KubeConfig.from_dict(
            {
                "clusters": [{"name": chosen["cluster"], "cluster": cluster}],
                "contexts": [{"name": context, "context": chosen}],
                "users": [{"name": user_name, "user": user}] if user_name else [],
            },
            fname=path,
        ).get(context)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: context {context!r} or its cluster or user has a field of the wrong type: {error}") from error
    assert single is not None
    return Connection(
        server=single.cluster.server,
        verify=_verify(path, single),
        auth=_auth(path, single, user, environment),
        namespace=single.namespace,
        tls_server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        source=str(path),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"{path}: no kubeconfig can be read there ({error.strerror}); name one with --kubeconfig or $KUBECONFIG, "
            "or run inside a pod"
        ) from error
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}: expected a kubeconfig (a mapping with clusters, contexts and users), found {_shape(document)}"
        )
    return document


def _pick(path: Path, document: Mapping[str, Any], singular: str, name: str, wanted_by: str) -> dict[str, Any]:
    """The entry called `name` of the list of {name, singular: {...}}."""
    plural = f"{singular}s"
    entries = document.get(plural) or []
    if not isinstance(entries, list) or not all(isinstance(e, dict) and "name" in e for e in entries):
        raise ConfigError(f"{path}: {plural} must be a list of entries with a name, found {_shape(entries)}")
    names = [str(e["name"]) for e in entries]
    if name not in names:
        known = ", ".join(sorted(names)) or "none"
        raise ConfigError(f"{path}: {wanted_by} names the {singular} {name!r}, which {plural} does not have; it has: {known}")
    found = entries[names.index(name)].get(singular)
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {plural}[{name}].{singular} must be a mapping, found {_shape(found)}")
    return found


def _text(path: Path, field: str, holder: Mapping[str, Any]) -> str:
    value = holder.get(field.rpartition(".")[2])
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: {field} must be a name, found {_shape(value)}")
    return value


def _check(path: Path, cluster_name: str, cluster: Mapping[str, Any], user_name: str, user: Mapping[str, Any]) -> None:
    server = _text(path, f"clusters[{cluster_name}].cluster.server", cluster)
    if not server.startswith(("https://", "http://")):
        raise ConfigError(
            f"{path}: clusters[{cluster_name}].cluster.server must begin with https:// or http://, found {server!r}: "
            f"write https://{server}"
        )
    for field in _USER_REFUSED:
        if user.get(field):
            raise ConfigError(
                f"{path}: users[{user_name}].user.{field} is not supported: use exec, a token, a client certificate or a password"
            )
    for field, holder, where in (
        ("certificate-authority", cluster, f"clusters[{cluster_name}].cluster"),
        ("client-certificate", user, f"users[{user_name}].user"),
        ("client-key", user, f"users[{user_name}].user"),
        ("tokenFile", user, f"users[{user_name}].user"),
    ):
        file = holder.get(field)
        if file and not holder.get(f"{field}-data") and not (path.parent / str(file)).is_file():
            raise ConfigError(f"{path}: {where}.{field} names {file!r}, which is not a file: mend the path or remove the field")
    for half, other in (("client-certificate", "client-key"), ("client-key", "client-certificate")):
        if _has(user, half) and not _has(user, other):
            raise ConfigError(f"{path}: users[{user_name}].user has {half} but no {other} (nor {other}-data): add it")


def _verify(path: Path, single: SingleConfig) -> ssl.SSLContext:
    cluster, user = single.cluster, single.user or User()
    # The ssl module reads client keys from files only; these are ours alone and gone when the context has them.
    with tempfile.TemporaryDirectory(prefix="kubewright-") as directory:
        for holder, field in (
            (cluster, "certificate_auth"),
            (user, "client_cert"),
            (user, "client_key"),
        ):
            encoded = getattr(holder, f"{field}_data")
            if not encoded:
                continue
            file = Path(directory, field)
            try:
                file.write_bytes(base64.b64decode(encoded, validate=True))
            except binascii.Error as error:
                raise ConfigError(
                    f"{path}: {_FIELDS[field]}-data of context {single.context_name!r} is not base64 ({error}): "
                    "encode the PEM file with `base64 -w0`"
                ) from error
            setattr(holder, field, str(file))
            setattr(holder, f"{field}_data", None)
        try:
            return verify_cluster(cluster, user, single.abs_file, trust_env=True)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise ConfigError(
                f"{path}: the certificates of context {single.context_name!r} cannot be used ({error}): expected PEM, in base64 "
                "in the fields that end in -data (certificate-authority, client-certificate, client-key)"
            ) from error


def _auth(path: Path, single: SingleConfig, raw: Mapping[str, Any], environment: Mapping[str, str]) -> httpx2.Auth | None:
    user = single.user
    if user is None:
        return None
    if user.token_file:
        user.token_file = str(single.abs_file(user.token_file))
    if user.exec is not None and not (user.token or user.token_file):
        return ExecAuth.from_config(path, single.context.user or "", raw["exec"], environment)
    try:
        return user_auth(user)
    except LightkubeConfigError as error:
        raise ConfigError(f"{path}: users[{single.context.user}].user: {error}") from error


def _has(holder: Mapping[str, Any], field: str) -> bool:
    return bool(holder.get(field) or holder.get(f"{field}-data"))


def _shape(value: object) -> str:
    return "nothing" if value is None else type(value).__name__ if isinstance(value, dict | list) else repr(value)
