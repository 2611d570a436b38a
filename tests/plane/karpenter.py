"""The reference on the plane: Karpenter with its kwok provider, to be measured beside us.

    with Plane() as plane, Karpenter(plane) as karpenter:
        plane.create(NODEPOOLS, nodepool("default"))
        ...

It makes Node objects with the annotation that the plane's kwok looks after. Left alone it sells 144 invented instance types, up
to 256 cpus large; a fair comparison gives it ours with `write_instance_types`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.plane import binaries, crds
from tests.plane.plane import Plane
from tests.plane.processes import Process, free_ports, wait_until

NODECLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NODEPOOLS = "/apis/karpenter.sh/v1/nodepools"
NODECLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


class Offering(NamedTuple):
    capacity_type: str
    zone: str
    usd_per_hour: float


class InstanceType(NamedTuple):
    """One machine to sell; `resources` are its capacity, to which the kwok provider adds nothing."""

    name: str
    architecture: str
    resources: Mapping[str, str]
    offerings: Sequence[Offering]


def write_instance_types(path: Path, types: Iterable[InstanceType]) -> Path:
    """A file for `Karpenter(instance_types=...)`: the machines that it may buy."""
    records = [
        {
            "name": one.name,
            "architecture": one.architecture,
            "operatingSystems": ["linux"],
            "resources": dict(one.resources),
            "offerings": [
                {
                    "Price": offering.usd_per_hour,
                    "Available": True,
                    "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [offering.capacity_type]},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [offering.zone]},
                    ],
                }
                for offering in one.offerings
            ],
        }
        for one in types
    ]
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


class Karpenter:
    """Karpenter 1.14.1 as a process on a running plane, with its definitions and a node class `default` applied.

    `instance_types` is a file that `write_instance_types` wrote. `cpu_millicores` is what its container would ask for, from which
    it sizes its parallelism. `env` adds settings by their environment names, for instance BATCH_IDLE_DURATION.
    """

    def __init__(
        self,
        plane: Plane,
        *,
        instance_types: Path | None = None,
        cpu_millicores: int = 2000,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._plane = plane
        self._env = {
            "CPU_REQUESTS": str(cpu_millicores),
            "DISABLE_LEADER_ELECTION": "true",
            "SYSTEM_NAMESPACE": "kube-system",
            **({"INSTANCE_TYPES_FILE_PATH": str(instance_types)} if instance_types else {}),
            **(env or {}),
        }
        self.process: Process
        self.metrics_url: str

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.stop()

    def start(self) -> None:
        """Apply what it needs and return when it is ready.

        Raises:
            BuildFailed: it is not there and cannot be built.
            ProgramFailed: it did not become ready.
        """
        program = binaries.ensure("karpenter")
        self._plane.apply(*crds.core(), *crds.kwok())
        if self._plane.request("GET", f"{NODECLASSES}/default").status == 404:
            self._plane.create(NODECLASSES, nodeclass("default"))
        metrics, health = free_ports(2)
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        ports = {"METRICS_PORT": str(metrics), "HEALTH_PROBE_PORT": str(health)}
        self.process = self._plane.spawn(
            "karpenter", [program], env={"KUBECONFIG": str(self._plane.kubeconfig()), **self._env, **ports}
        )
        try:
            wait_until(lambda: self._plane.is_ready(f"http://127.0.0.1:{health}/readyz"), of=self.process, timeout_s=60)
        except BaseException:
            self.process.stop()
            raise


def nodeclass(name: str) -> dict[str, Any]:
    """A node class of the kwok provider; it has no fields that matter here."""
    return {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name}}


def nodepool(
    name: str,
    *,
    capacity_types: Sequence[str] = ("spot",),
    architectures: Sequence[str] = ("amd64",),
    consolidate_after: str = "0s",
) -> dict[str, Any]:
    """A NodePool on the node class `default` that buys what it is told and consolidates without limit."""
    requirements = {"karpenter.sh/capacity-type": capacity_types, "kubernetes.io/arch": architectures}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": key, "operator": "In", "values": list(values)} for key, values in requirements.items()
                    ],
                    "expireAfter": "Never",
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": "100%"}],
            },
        },
    }
