"""The moment in which a machine joins: its Node is made, by default at once. From there on kwok plays its kubelet."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog
from msgspec import field

from kubewright.api.core import Node, NodeStatus
from kubewright.api.meta import Wire
from kubewright.errors import AlreadyExists, KubeError
from kubewright.kube.client import KubeClient

RETRY_S = 1.0


class NodeInfo(Wire, frozen=True, kw_only=True):
    """What the server asks every Node to say of its system."""

    architecture: str = field(default="", name="architecture")
    operating_system: str = ""
    kubelet_version: str = "fake"
    kube_proxy_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""
    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")


class FullNodeStatus(NodeStatus, frozen=True, kw_only=True):
    node_info: NodeInfo | None = None


class FullNode(Node, frozen=True, kw_only=True):
    """A Node with the parts that only its maker has to know."""

    status: FullNodeStatus = FullNodeStatus()


class Kubelets:
    """Makes Nodes; `run` belongs to the operator's background work.

    So a Node is late while nobody leads, and never lost: `missing` names those that should be there, and is asked at the start.
    """

    name = "kwok.kubelets"

    def __init__(self, client: KubeClient, missing: Callable[[], Awaitable[Sequence[FullNode]]]) -> None:
        self._client = client
        self._missing = missing
        self._work: asyncio.Queue[tuple[FullNode, timedelta]] = asyncio.Queue()
        self._log = structlog.get_logger("kubewright.kwok")

    def start(self, node: FullNode, after: timedelta) -> None:
        """Let the Node appear so much later."""
        self._work.put_nowait((node, after))

    async def run(self) -> None:
        for node in await self._missing():
            self.start(node, timedelta())
        async with asyncio.TaskGroup() as tasks:
            while True:
                node, after = await self._work.get()
                tasks.create_task(self.join(node, after), name=f"join {node.name}")

    async def join(self, node: FullNode, after: timedelta) -> None:
        await asyncio.sleep(after.total_seconds())
        while True:
            try:
                await self._client.create(node)
            except AlreadyExists:
                return
            except KubeError as error:
                self._log.warning("a Node cannot be made now", node=node.name, error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return
