"""Who the plane is and who may talk to it: its own authority, certificates, tokens and kubeconfigs, all thrown away with it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

_CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = plane
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1,DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Authority:
    """A certificate authority in a folder; `ca.crt` is what clients trust."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._config = directory / "openssl.cnf"
        self._config.write_text(_CONFIG, encoding="utf-8")
        self._openssl("req", "-x509", *self._new_key("ca"), "-out", "ca.crt", "-days", "30", "-extensions", "authority")

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.crt"

    def server(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, as files."""
        self._openssl("req", "-new", *self._new_key(name), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", "-days", "30", "-CA", "ca.crt", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-extfile", self._config.name, "-extensions", "server"),
        )
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A private key and its public key, as files: what service account tokens are signed and checked with."""
        private, public = self.directory / f"{name}.key", self.directory / f"{name}.pub"
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private.name)
        self._openssl("pkey", "-in", private.name, "-pubout", "-out", public.name)
        return private, public

    def _new_key(self, name: str) -> Sequence[str]:
        return (
            *("-config", self._config.name, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{name}.key"),
        )

    def _openssl(self, *arguments: str) -> None:
        try:
            done = subprocess.run(["openssl", *arguments], cwd=self.directory, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise RuntimeError("the plane makes its certificates with openssl, which is not on PATH: install openssl") from None
        if done.returncode:
            raise RuntimeError(f"openssl {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: str, token: str) -> Path:
    """A kubeconfig with one context, readable by its owner alone."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "plane",
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user, "namespace": "default"}}],
        "clusters": [{"name": "plane", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": token}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path
