"""The operator under test on the plane: `kubewright run` with the fake EC2, as a process, with the rights of the chart alone.

    with Plane() as plane, Kubewright(plane) as kubewright:
        plane.create(NODECLASSES, nodeclass("default"))
        plane.create(NODEPOOLS, nodepool("default"))
        ...

Its machines become Node objects with the annotation that the plane's kwok looks after; nothing of the cloud takes time unless
`launch_s` or `join_s` says so. It runs as the ServiceAccount of `kubewright manifests`, and a call that these rights do not allow
fails the test that leaves the `with` block.
"""

import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.plane import crds
from tests.plane.binaries import ROOT
from tests.plane.karpenter import NODECLAIMS, NODEPOOLS
from tests.plane.kwok_provider import EXAMPLE, python_path
from tests.plane.plane import Plane
from tests.plane.processes import Process, free_ports, wait_until

__all__ = ["NODECLAIMS", "NODECLASSES", "NODEPOOLS", "Kubewright", "apply_crds", "apply_rights", "nodeclass", "nodepool"]

NODECLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
CLUSTER = "sandbox"
NAMESPACE, ACCOUNT = "kube-system", "kubewright"
PROGRAM = (sys.executable, "-m", "kubewright")


class Kubewright:
    """`kubewright run` as a process on a running plane, with the definitions it prints applied.

    `flags` and `env` are added to its own. The fake EC2 lives in the process; `state` is the file in which it is kept, so that
    a process that was killed finds its machines again: without one, they die with it. With `cloud` "kwok" it runs with the
    example of a third-party provider instead. `name` is that of its log, where several run. An API server that was just
    started refuses for a moment what it will allow: with `checked` false, refusals are not held against the rights.
    """

    def __init__(
        self,
        plane: Plane,
        *,
        launch_s: float = 0,
        join_s: float = 0,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        state: Path | None = None,
        program: Sequence[str] = PROGRAM,
        cloud: str = "fake-ec2",
        name: str = "kubewright",
        checked: bool = True,
    ) -> None:
        self._plane = plane
        self._checked = checked
        self._program = program
        self._cloud = cloud
        self._name = name
        fake = (
            *(f"--fake-launch-seconds={launch_s}", f"--fake-join-seconds={join_s}", f"--fake-kubeconfig={plane.kubeconfig()}"),
            *((f"--fake-state={state}",) if state else ()),
        )
        self._flags = [
            *(f"--cloud={cloud}", f"--cluster-name={CLUSTER}", "--disable-leader-election"),
            *(fake if cloud == "fake-ec2" else ()),
            *flags,
        ]
        self._env = dict(env or {})
        self.process: Process
        self.metrics_url: str

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.stop()
        if kind is None and self._checked:
            self.check_allowed()

    def check_allowed(self) -> None:
        """Raises AssertionError if the API server ever refused a call of this operator for want of rights."""
        lines = self.process.log.read_text(encoding="utf-8", errors="replace").splitlines()
        refused = [line for line in lines if " is forbidden: User " in line]
        assert not refused, f"calls that the chart's rights do not allow: {refused[:3]}"
        assert denied(self._plane) <= self._denied, "the API server denied a call that the log does not show"

    def start(self) -> None:
        """Apply what it needs and return when it is ready. Raises ProgramFailed if it does not become so."""
        apply_crds(self._plane)
        apply_rights(self._plane)
        if self._cloud == "kwok":
            self._plane.apply(*crds.kwok(), EXAMPLE / "rights.yaml")
            self._env.setdefault("PYTHONPATH", python_path(self._plane.directory / "installed"))
        self._denied = denied(self._plane)
        self._kubeconfig = self._plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        metrics, self._health = free_ports(2)
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        ports = (f"--metrics-port={metrics}", f"--health-probe-port={self._health}")
        argv = [*self._program, "run", f"--kubeconfig={self._kubeconfig}", *self._flags, *ports]
        env = {"PYTHONPATH": str(ROOT / "src"), **self._env}
        self.process = self._plane.spawn(self._name, argv, env=env)
        self._wait_ready()

    def page(self, path: str = "/metrics") -> str:
        """What it serves on its metrics port. Raises OSError if it does not answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.metrics_url.removesuffix("/metrics") + path, timeout=30) as response:
            return str(response.read(), "utf-8")

    def restart(self) -> None:
        """Start it again after it ended or was killed; returns when it is ready."""
        self.process.start()
        self._wait_ready()

    def _wait_ready(self) -> None:
        try:
            url = f"http://127.0.0.1:{self._health}/readyz"
            wait_until(lambda: self._plane.is_ready(url), of=self.process, timeout_s=60)
        except BaseException:
            self.process.stop()
            raise


def apply_crds(plane: Plane) -> None:
    """Apply what `kubewright crds` prints."""
    apply_printed(plane, "crds")


def apply_rights(plane: Plane, *, cloud: str = "aws") -> None:
    """Apply what `kubewright manifests` prints, with no pods: the account, its rights, and the rest of an installation."""
    apply_printed(plane, "manifests", "--no-crds", f"--cloud={cloud}", f"--cluster-name={CLUSTER}", "--replicas=0")


def apply_printed(plane: Plane, *command: str) -> None:
    """Apply what a command of kubewright prints."""
    done = subprocess.run([*PROGRAM, *command], capture_output=True, check=True, env={"PYTHONPATH": str(ROOT / "src")})
    file = plane.directory / f"kubewright-{command[0]}.yaml"
    file.write_bytes(done.stdout)
    plane.apply(file)


def denied(plane: Plane) -> int:
    """How many calls the API server has denied since it started; everybody else on a plane may do everything."""
    lines = plane.request("GET", "/metrics").body.splitlines()
    return sum(
        int(float(line.rpartition(" ")[2])) for line in lines if line.startswith('authorization_attempts_total{result="denied"')
    )


def nodeclass(name: str) -> dict[str, Any]:
    """An EC2NodeClass on what the fake account has."""
    discovery = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "role": "KarpenterNodeRole-sandbox",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
        },
    }


def nodepool(
    name: str,
    *,
    capacity_types: Sequence[str] = ("on-demand",),
    architectures: Sequence[str] = ("amd64",),
    consolidate_after: str = "0s",
) -> dict[str, Any]:
    """A NodePool on the node class `default` that buys what it is told and removes empty nodes without limit."""
    requirements = {"karpenter.sh/capacity-type": capacity_types, "kubernetes.io/arch": architectures}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [
                        {"key": key, "operator": "In", "values": list(values)} for key, values in requirements.items()
                    ],
                    "expireAfter": "Never",
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": "100%"}],
            },
        },
    }
