"""Which cluster and as whom; and that every mistake in a kubeconfig is named with its mend."""

import asyncio
import base64
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from aiohttp import web

from kubewright.api.core import Node
from kubewright.errors import ConfigError, Forbidden, ServerUnavailable
from kubewright.kube import config
from kubewright.kube.http import HttpClient
from tests.plane.credentials import Authority
from tests.unit.kube.server import Server, status

NODE = {"metadata": {"name": "n"}}


def kubeconfig(tmp_path: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "clusters": [{"name": "eks", "cluster": {"server": "https://example.invalid:6443"} | (cluster or {})}],
        "contexts": [{"name": "prod", "context": {"cluster": "eks", "user": "me", "namespace": "karpenter"}}],
        "users": [{"name": "me", "user": user or {}}],
    } | top
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def refused(path: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment={}, **options)
    return str(caught.value).replace(str(Path(path).parent) + "/", "")


EXEC = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws"}


def test_a_good_file_gives_server_and_namespace(tmp_path: Path) -> None:
    found = config.load(kubeconfig(tmp_path), environment={})
    assert (found.server, found.namespace, found.auth) == ("https://example.invalid:6443", "karpenter", None)


def test_every_mistake_names_file_field_found_and_mend(tmp_path: Path) -> None:
    def said(**options: Any) -> str:
        return refused(kubeconfig(tmp_path, **options))

    assert said(**{"current-context": ""}) == (
        "config: current-context is empty: set it with `kubectl config use-context NAME` or name a context"
    )
    assert said(**{"current-context": "dev"}) == (
        "config: current-context names the context 'dev', which contexts does not have; it has: prod"
    )
    assert said(clusters=[]) == "config: context 'prod' names the cluster 'eks', which clusters does not have; it has: none"
    assert said(users=None) == "config: context 'prod' names the user 'me', which users does not have; it has: none"
    assert said(contexts={"prod": {}}) == "config: contexts must be a list of entries with a name, found dict"
    assert said(contexts=[{"name": "prod", "context": {}}]) == "config: contexts[prod].cluster must be a name, found nothing"
    assert said(cluster={"server": "example.invalid:6443"}) == (
        "config: clusters[eks].cluster.server must begin with https:// or http://, found 'example.invalid:6443': "
        "write https://example.invalid:6443"
    )
    assert said(cluster={"certificate-authority": "ca.crt"}) == (
        "config: clusters[eks].cluster.certificate-authority names 'ca.crt', which is not a file: "
        "mend the path or remove the field"
    )
    assert "context 'prod' cannot be used" in said(cluster={"certificate-authority-data": "bm90IGEgY2VydA=="})
    assert "certificate-authority-data of context 'prod' is not base64" in said(cluster={"certificate-authority-data": "%"})
    assert said(user={"client-certificate-data": "eA=="}) == (
        "config: users[me].user has client-certificate but no client-key (nor client-key-data): add it"
    )
    assert said(user={"auth-provider": {"name": "oidc"}}) == (
        "config: users[me].user.auth-provider is not supported: use exec, a token, a client certificate or a password"
    )
    assert said(user={"exec": EXEC | {"apiVersion": "v9"}}).startswith(
        "config: users[me].user.exec.apiVersion must be one of client.authentication.k8s.io/v1,"
    )
    assert "users[me].user.exec.provideClusterInfo is not supported" in said(user={"exec": EXEC | {"provideClusterInfo": True}})
    assert "has a field of the wrong type" in said(user={"token": 7})


def test_what_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    assert refused(missing).startswith("nowhere: no kubeconfig can be read there (No such file or directory)")
    path = tmp_path / "config"
    path.write_text("a: [")
    assert refused(str(path)).startswith("config: not YAML: ")
    path.write_text("- a")
    assert refused(str(path)) == "config: expected a kubeconfig (a mapping with clusters, contexts and users), found list"


def test_where_to_look_goes_path_then_pod_then_variable(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    assert config.load(environment={"KUBECONFIG": path}).source == path
    with pytest.raises(ConfigError, match="merging is not supported"):
        config.load(environment={"KUBECONFIG": f"{path}:{path}2"})
    pod = service_account(tmp_path)
    inside = {"KUBECONFIG": path, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = config.load(environment=inside, service_account=str(pod))
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "karpenter")
    assert config.load(path, environment=inside, service_account=str(pod)).source == path
    found = config.load(environment=inside | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=str(pod))
    assert found.server == "https://[fd00::1]:443"


def service_account(tmp_path: Path) -> Path:
    pod = tmp_path / "serviceaccount"
    pod.mkdir()
    (pod / "token").write_text("first\n")
    (pod / "namespace").write_text("karpenter")
    (pod / "ca.crt").write_text(Path(httpx2_bundle()).read_text())
    return pod


def httpx2_bundle() -> str:
    """Any certificates will do."""
    found = ssl.get_default_verify_paths()
    for path in (found.cafile, found.openssl_cafile):
        if path and Path(path).is_file():
            return path
    import certifi

    return certifi.where()


def test_half_a_service_account_is_named(tmp_path: Path) -> None:
    pod = service_account(tmp_path)
    (pod / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt is missing though the token is there"):
        config.load(environment={"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, service_account=str(pod))


def calls(connection: config.Connection, server: Server, times: int = 1) -> list[str]:
    """The Authorization headers of so many calls."""

    async def main() -> None:
        async with server.running():
            client = HttpClient(config.Connection(server=server.url, verify=True, auth=connection.auth))
            try:
                for _ in range(times):
                    await client.get(Node, "n")
            finally:
                await client.close()

    asyncio.run(main())
    return [asked.headers.get("Authorization", "") for asked in server.asked]


def test_a_token_is_sent(tmp_path: Path) -> None:
    connection = config.load(kubeconfig(tmp_path, user={"token": "abc"}), environment={})
    assert calls(connection, Server((200, NODE))) == ["Bearer abc"]


def test_a_password_is_sent(tmp_path: Path) -> None:
    connection = config.load(kubeconfig(tmp_path, user={"username": "me", "password": "pw"}), environment={})
    assert calls(connection, Server((200, NODE))) == ["Basic " + base64.b64encode(b"me:pw").decode()]


def test_a_token_file_is_read_beside_the_kubeconfig_and_again_when_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    connection = config.load(kubeconfig(tmp_path, user={"tokenFile": "token"}), environment={})

    async def refuse(_: web.Request) -> tuple[int, Any]:
        (tmp_path / "token").write_text("new")
        return status(401, "Unauthorized", "Unauthorized")

    assert calls(connection, Server((200, NODE), refuse, (200, NODE)), 2) == ["Bearer old", "Bearer old", "Bearer new"]


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """A credential plug-in that counts its runs."""
    file = tmp_path / "plugin.py"
    file.write_text(
        "import json, os, pathlib, sys\n"
        f"runs = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "n = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(n))\n" + script
    )
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(file), "token"],
        "env": [{"name": "WHO", "value": "me"}],
    }


GOOD = (
    "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
    "assert info['spec'] == {'interactive': False} and sys.argv[1] == 'token'\n"
    "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': info['apiVersion'],"
    " 'status': {'token': f\"{os.environ['WHO']}-{n}\", 'expirationTimestamp': EXPIRES}}))\n"
)
LATER, SOON = "'2100-01-01T00:00:00Z'", "'2020-01-01T00:00:00Z'"


def test_a_plug_in_runs_once_for_many_calls_and_again_when_refused(tmp_path: Path) -> None:
    user = {"exec": plugin(tmp_path, GOOD.replace("EXPIRES", LATER))}
    connection = config.load(kubeconfig(tmp_path, user=user), environment={})
    server = Server((200, NODE), (200, NODE), status(401, "Unauthorized", "x"), (200, NODE))
    assert calls(connection, server, 3) == ["Bearer me-1"] * 3 + ["Bearer me-2"]


def test_a_credential_about_to_expire_is_renewed_before_use(tmp_path: Path) -> None:
    user = {"exec": plugin(tmp_path, GOOD.replace("EXPIRES", SOON))}
    connection = config.load(kubeconfig(tmp_path, user=user), environment={})
    assert calls(connection, Server((200, NODE)), 2) == ["Bearer me-1", "Bearer me-2"]


def test_calls_at_once_share_one_run_of_the_plug_in(tmp_path: Path) -> None:
    user = {"exec": plugin(tmp_path, GOOD.replace("EXPIRES", LATER))}
    connection = config.load(kubeconfig(tmp_path, user=user), environment={})
    server = Server((200, NODE))

    async def main() -> None:
        async with server.running():
            client = HttpClient(config.Connection(server=server.url, verify=True, auth=connection.auth))
            await asyncio.gather(*(client.get(Node, "n") for _ in range(5)))
            await client.close()

    asyncio.run(main())
    assert (tmp_path / "runs").read_text() == "1"


def test_calls_refused_at_once_share_one_run_of_the_plug_in(tmp_path: Path) -> None:
    user = {"exec": plugin(tmp_path, GOOD.replace("EXPIRES", LATER))}
    connection = config.load(kubeconfig(tmp_path, user=user), environment={})

    async def only_the_second(request: web.Request) -> tuple[int, Any]:
        return (200, NODE) if request.headers["Authorization"] == "Bearer me-2" else status(401, "Unauthorized", "x")

    server = Server(only_the_second)

    async def main() -> None:
        async with server.running():
            client = HttpClient(config.Connection(server=server.url, verify=True, auth=connection.auth))
            await asyncio.gather(*(client.get(Node, "n") for _ in range(5)))
            await client.close()

    asyncio.run(main())
    assert (tmp_path / "runs").read_text() == "2"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sys.exit('no session, log in first')", "ended with 1: no session, log in first"),
        ("print('secret-token')", "did not print an ExecCredential"),
        ("print(json.dumps({'status': {}}))", "returned nothing, expected status.token"),
    ],
)
def test_a_plug_in_that_fails_says_why_and_tells_no_secret(tmp_path: Path, script: str, said: str) -> None:
    connection = config.load(kubeconfig(tmp_path, user={"exec": plugin(tmp_path, script)}), environment={})
    with pytest.raises(ServerUnavailable) as caught:
        calls(connection, Server((200, NODE)))
    assert said in str(caught.value)
    assert "secret-token" not in repr(caught.value)


def test_a_plug_in_that_is_not_installed_gives_its_hint(tmp_path: Path) -> None:
    user = {"exec": EXEC | {"command": "no-such-program-here", "installHint": "install it from the cupboard"}}
    connection = config.load(kubeconfig(tmp_path, user=user), environment={"PATH": "/nowhere"})
    with pytest.raises(ServerUnavailable, match=r"cannot be started .*; install it from the cupboard"):
        calls(connection, Server((200, NODE)))


def test_a_refused_credential_is_forbidden(tmp_path: Path) -> None:
    connection = config.load(kubeconfig(tmp_path, user={"token": "abc"}), environment={})
    with pytest.raises(Forbidden, match="who are you"):
        calls(connection, Server(status(401, "Unauthorized", "who are you")))


def test_the_auth_of_a_connection_never_prints_its_secret(tmp_path: Path) -> None:
    connection = config.load(kubeconfig(tmp_path, user={"token": "hush-hush"}), environment={})
    assert isinstance(connection.auth, httpx2.Auth)
    assert "hush-hush" not in repr(connection)


def test_a_client_certificate_is_shown_and_the_servers_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, key = authority.server("server")
    ours, our_key = tmp_path / "client.crt", tmp_path / "client.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=me"),
            *("-keyout", str(our_key), "-out", str(ours)),
        ],
        check=True,
        capture_output=True,
    )

    def text(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ours))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(served, key)

    async def main(cluster: dict[str, Any], user: dict[str, Any]) -> None:
        server = Server((200, NODE))
        async with server.running(context):
            path = kubeconfig(tmp_path, cluster={"server": server.url} | cluster, user=user)
            client = HttpClient(config.load(path, environment={}))
            try:
                await client.get(Node, "n")
            finally:
                await client.close()

    trust = {"certificate-authority-data": text(authority.certificate)}
    shown = {"client-certificate-data": text(ours), "client-key-data": text(our_key)}
    files = {"client-certificate": str(ours), "client-key": str(our_key)}
    asyncio.run(main(trust, shown))
    asyncio.run(main({"certificate-authority": str(authority.certificate)}, files))
    asyncio.run(main({"insecure-skip-tls-verify": True}, files))
    asyncio.run(main(trust | {"tls-server-name": "localhost"}, shown))
    with pytest.raises(ServerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(main({}, shown))
    with pytest.raises(ServerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(main(trust | {"tls-server-name": "elsewhere.example"}, shown))
    with pytest.raises(ServerUnavailable):
        asyncio.run(main(trust, {}))
