"""Machines that run become Nodes, and Nodes whose machines are gone go: what a kubelet's start and a cloud-controller-manager do.

Works on any API server through a `KubeClient`. In memory the pretend kubelets make the Node Ready; on a real plane kwok does, if
the Node carries what kwok looks for (`JoinerSettings.labels`, `.annotations`).
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import field

from kubewright.api.core import CSINode, CsiNodeDriver, CsiNodeSpec, Node, NodeSpec, NodeStatus, Taint, VolumeNodeResources
from kubewright.api.meta import Condition, ObjectMeta, Wire
from kubewright.clock import Clock
from kubewright.errors import AlreadyExists, Conflict, KubeError, NotFound
from kubewright.kube.client import KubeClient
from kubewright.sim.objects import LABEL_HOSTNAME, LABEL_REGION, LABEL_ZONE

EBS_DRIVER = "ebs.csi.aws.com"
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_RETRY_S = 1.0


class Machine(msgspec.Struct, frozen=True):
    """A running instance, and what the kubelet on it was told."""

    provider_id: str
    node_name: str
    instance_type: str
    zone: str
    region: str
    address: str
    arch: str = "amd64"
    os: str = "linux"
    capacity: Mapping[str, str] = {}
    """Quantities as text, `pods` included."""
    allocatable: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    """From --node-labels in the user data."""
    taints: tuple[Taint, ...] = ()
    """From --register-with-taints in the user data."""
    volume_limit: int | None = None
    """EBS volumes that may be attached; None: the node has no CSI driver."""


class JoinerSettings(msgspec.Struct, frozen=True):
    join_s: float = 20.0
    """From a running instance to its Node: the machine boots, the kubelet starts."""
    join_jitter_s: float = 5.0
    """Up to this much more, by the seed."""
    forget_s: float = 10.0
    """From the end of an instance to the deletion of its Node."""
    labels: Mapping[str, str] = {}
    """Put on every Node besides its own."""
    annotations: Mapping[str, str] = {}
    """Put on every Node; `kwok.x-k8s.io/node: fake` has kwok keep it alive."""


class Address(Wire, frozen=True, kw_only=True):
    type: str
    address: str


class NodeInfo(Wire, frozen=True, kw_only=True):
    """What a server asks a Node to say of its system; all its fields are obligatory there."""

    architecture: str = field(default="amd64", name="architecture")
    operating_system: str = "linux"
    kubelet_version: str = "v1.36.3"
    kube_proxy_version: str = ""
    os_image: str = "pretend"
    kernel_version: str = "0"
    container_runtime_version: str = "pretend://1"
    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")


class FullNodeStatus(NodeStatus, frozen=True, kw_only=True):
    addresses: tuple[Address, ...] = ()
    node_info: NodeInfo | None = None


class FullNode(Node, frozen=True, kw_only=True):
    """A Node with the parts that only whoever makes one has to know."""

    status: FullNodeStatus = FullNodeStatus()


class Joiner:
    """Feed it `running` and `terminated` from the cloud, and have `run` run.

    `never_joins` is the fault switch: machines it picks run, are paid for, and never become Nodes. `died` hears the name of every
    Node whose machine is gone, at once.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        settings: JoinerSettings | None = None,
        *,
        seed: int = 0,
        never_joins: Callable[[Machine], bool] = lambda _: False,
        died: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings or JoinerSettings()
        self._seed = seed
        self._never_joins = never_joins
        self._died = died
        self._machines: dict[str, Machine] = {}
        """By provider id, from running to forgotten."""
        self._gone: set[str] = set()
        self._work: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    def running(self, machine: Machine) -> None:
        """An instance reached the running state."""
        self._machines[machine.provider_id] = machine
        if not self._never_joins(machine):
            self._work.put_nowait((machine.provider_id, self._settings.join_s + self._jitter(machine)))

    def terminated(self, provider_id: str) -> None:
        """An instance was terminated, by whoever; one that is not known is ignored."""
        machine = self._machines.get(provider_id)
        if machine is None or provider_id in self._gone:
            return
        self._gone.add(provider_id)
        self._died(machine.node_name)
        self._work.put_nowait((provider_id, self._settings.forget_s))

    async def run(self) -> None:
        """Make and delete Nodes until cancelled. Whatever the server refuses for now is tried again."""
        async with asyncio.TaskGroup() as group:
            while True:
                provider_id, delay_s = await self._work.get()
                group.create_task(self._act(provider_id, delay_s), name=f"joiner {provider_id}")

    def _jitter(self, machine: Machine) -> float:
        # Seeded by the machine, so that another machine's luck does not change this one's.
        chance = random.Random(f"{self._seed}/{machine.provider_id}").random()  # noqa: S311 - reproducible on purpose
        return round(chance * self._settings.join_jitter_s, 3)

    async def _act(self, provider_id: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        machine = self._machines.get(provider_id)
        while machine is not None:
            try:
                if provider_id in self._gone:
                    await self._forget(machine)
                else:
                    await self._join(machine)
            except KubeError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _join(self, machine: Machine) -> None:
        # What is there already is from a try before this one, of which only the answer was lost.
        with suppress(AlreadyExists):
            await self._client.create(self.node(machine))
        if machine.volume_limit is not None:
            limit = VolumeNodeResources(count=machine.volume_limit)
            whole = _CsiDriver(name=EBS_DRIVER, allocatable=limit, node_id=machine.provider_id.rpartition("/")[2])
            csi = CSINode(metadata=ObjectMeta(name=machine.node_name), spec=CsiNodeSpec(drivers=(whole,)))
            with suppress(AlreadyExists):
                await self._client.create(csi)

    async def _forget(self, machine: Machine) -> None:
        with suppress(NotFound, Conflict):  # gone already, or another machine's by now
            node = await self._client.get(Node, machine.node_name)
            if node.spec.provider_id == machine.provider_id:
                await self._client.delete(Node, machine.node_name, uid=node.metadata.uid)
        with suppress(NotFound):
            await self._client.delete(CSINode, machine.node_name)
        del self._machines[machine.provider_id]
        self._gone.discard(machine.provider_id)

    def node(self, machine: Machine) -> FullNode:
        """The Node as it first appears: not Ready, with every label and taint it will ever get from kubelet and cloud."""
        now = self._clock.now()
        taints = machine.taints if NOT_READY in machine.taints else (*machine.taints, NOT_READY)
        return FullNode(
            metadata=ObjectMeta(
                name=machine.node_name,
                labels={**self._settings.labels, **machine.labels, **_cloud_labels(machine)},
                annotations=dict(self._settings.annotations),
            ),
            spec=NodeSpec(provider_id=machine.provider_id, taints=taints),
            status=FullNodeStatus(
                capacity=dict(machine.capacity),
                allocatable=dict(machine.allocatable or machine.capacity),
                conditions=(_not_ready(now),),
                addresses=(
                    Address(type="InternalIP", address=machine.address),
                    Address(type="InternalDNS", address=machine.node_name),
                    Address(type="Hostname", address=machine.node_name),
                ),
                node_info=NodeInfo(architecture=machine.arch, operating_system=machine.os),
            ),
        )


class _CsiDriver(CsiNodeDriver, frozen=True, kw_only=True):
    """With the field that a server wants and nobody here reads."""

    node_id: str = field(default="", name="nodeID")


def _cloud_labels(machine: Machine) -> dict[str, str]:
    """What kubelet and cloud-controller-manager put on a Node; the beta names are still put there, too."""
    found = {
        LABEL_HOSTNAME: machine.node_name,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": machine.os,
        "node.kubernetes.io/instance-type": machine.instance_type,
        LABEL_ZONE: machine.zone,
        LABEL_REGION: machine.region,
        "beta.kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/os": machine.os,
        "beta.kubernetes.io/instance-type": machine.instance_type,
        "failure-domain.beta.kubernetes.io/zone": machine.zone,
        "failure-domain.beta.kubernetes.io/region": machine.region,
    }
    if machine.volume_limit is not None:
        found["topology.ebs.csi.aws.com/zone"] = machine.zone
    return found


def _not_ready(now: datetime) -> Condition:
    moment = now.replace(microsecond=0)
    return Condition(
        type="Ready",
        status="False",
        reason="KubeletNotReady",
        message="container runtime network not ready",
        last_transition_time=moment,
    )
