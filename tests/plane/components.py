"""The programs of a plane and the flags each one needs, as data."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NODE_ANNOTATION = "kwok.x-k8s.io/node"
NODE_ANNOTATION_VALUE = "fake"
"""kwok plays the kubelet of exactly the nodes that carry this annotation, as Karpenter's kwok provider sets it too."""


class Files(NamedTuple):
    """Where things lie in a plane's folder."""

    authority: Path
    certificate: Path
    key: Path
    account_private: Path
    account_public: Path
    tokens: Path
    admin: Path
    """The kubeconfig of `system:masters`."""
    stages: Path
    data: Path


class Component(NamedTuple):
    """One program: how to start it and where it says that it is ready."""

    name: str
    flags: tuple[str, ...]
    ready: str
    """A URL that answers 200 once the program is of use."""


def components(files: Files, ports: Mapping[str, int], extra: Mapping[str, tuple[str, ...]]) -> list[Component]:
    """Every program, in the order in which they are started; `extra` flags come last, so that they win."""
    etcd, peer, server = (f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}", ports["kube-apiserver"])
    tls = (f"--tls-cert-file={files.certificate}", f"--tls-private-key-file={files.key}")
    # At the default 20 requests a second the controllers, not what is tested, would decide how long 500 pods take.
    client = (
        *(f"--{use}kubeconfig={files.admin}" for use in ("", "authentication-", "authorization-")),
        *("--bind-address=127.0.0.1", "--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=1000"),
    )
    flags = {
        "etcd": (
            *(f"--data-dir={files.data}", "--unsafe-no-fsync", "--log-level=error"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
        ),
        "kube-apiserver": (
            *(f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", f"--secure-port={server}", *tls),
            # The address of the Service "kubernetes", which nothing here uses; a machine without a network has none to guess.
            *("--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"),
            *(f"--token-auth-file={files.tokens}", "--authorization-mode=RBAC"),
            *(f"--service-account-key-file={files.account_public}", "--service-account-issuer=https://plane.invalid"),
            f"--service-account-signing-key-file={files.account_private}",
            # Pods need no token here, and need not wait for their account to exist.
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
        ),
        "kube-scheduler": (*client, *tls, f"--secure-port={ports['kube-scheduler']}"),
        "kube-controller-manager": (
            *(*client, *tls, f"--secure-port={ports['kube-controller-manager']}"),
            *("--controllers=*,-nodeipam", "--use-service-account-credentials=false", f"--root-ca-file={files.authority}"),
        ),
        "kwok": (
            *(f"--kubeconfig={files.admin}", f"--config={files.stages}", f"--server-address=127.0.0.1:{ports['kwok']}"),
            f"--manage-nodes-with-annotation-selector={NODE_ANNOTATION}={NODE_ANNOTATION_VALUE}",
            # It renews their leases, as kubelets do, or the controller manager would call the nodes lost after 50 s.
            "--node-lease-duration-seconds=40",
            # Addresses for the records alone: those of nodes whose makers gave none are kept for documentation, and nobody's.
            *("--node-ip=192.0.2.2", "--cidr=10.128.0.0/9"),
        ),
    }
    ready = {
        "etcd": f"{etcd}/health",
        "kube-apiserver": f"https://127.0.0.1:{server}/readyz",
        "kube-scheduler": f"https://127.0.0.1:{ports['kube-scheduler']}/readyz",
        "kube-controller-manager": f"https://127.0.0.1:{ports['kube-controller-manager']}/healthz",
        "kwok": f"http://127.0.0.1:{ports['kwok']}/healthz",
    }
    return [Component(name, (*flags[name], *extra.get(name, ())), ready[name]) for name in flags]


PORTS = ("etcd", "peer", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")
