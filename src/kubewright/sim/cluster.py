"""The pretend cluster: every controller that a Kubernetes cluster has besides ours, on a store, deterministic."""

import asyncio
from types import TracebackType
from typing import Any, Self

import msgspec

from kubewright.sim.apiserver.store import Store
from kubewright.sim.collector import Collector, NamespaceCollector
from kubewright.sim.kubelet import KubeletDelays, Kubelets
from kubewright.sim.nodes import NodeDelays, NodeLifecycle, PodCollector, TaintEviction
from kubewright.sim.runtime import Runtime
from kubewright.sim.scheduler.kube_scheduler import KubeScheduler
from kubewright.sim.volumes import Attachments, Claims, EphemeralClaims, VolumeDelays
from kubewright.sim.workloads.budgets import PodDisruptionBudgets
from kubewright.sim.workloads.daemonsets import DaemonSets
from kubewright.sim.workloads.deployments import Deployments
from kubewright.sim.workloads.jobs import Jobs
from kubewright.sim.workloads.replicasets import ReplicaSets
from kubewright.sim.workloads.statefulsets import StatefulSets


class ClusterSettings(msgspec.Struct, frozen=True):
    kubelet: KubeletDelays = KubeletDelays()
    nodes: NodeDelays = NodeDelays()
    volumes: VolumeDelays = VolumeDelays()


class PretendCluster:
    """`async with PretendCluster(store):` has scheduler, kubelets and controllers run while the block does.

    A controller that fails cancels the block, and its error leaves the block in place of that. Chance comes only from the store's
    seed, so the same block on the same store does the same.
    """

    def __init__(self, store: Store, settings: ClusterSettings | None = None) -> None:
        settings = settings or ClusterSettings()
        self.store = store
        self.runtime = runtime = Runtime(store)
        # First, so that a new node has its taints before a scheduler looks at it.
        self.kubelets = Kubelets(runtime, settings.kubelet)
        self.lifecycle = NodeLifecycle(runtime, self.kubelets, settings.nodes)
        Collector(runtime)
        NamespaceCollector(runtime)
        Deployments(runtime)
        ReplicaSets(runtime)
        StatefulSets(runtime)
        DaemonSets(runtime)
        Jobs(runtime)
        PodDisruptionBudgets(runtime)
        EphemeralClaims(runtime)
        Claims(runtime, settings.volumes)
        Attachments(runtime, settings.volumes)
        self.scheduler = KubeScheduler(runtime)
        TaintEviction(runtime)
        PodCollector(runtime, settings.nodes)
        self._task: asyncio.Task[None] | None = None
        self._block: asyncio.Task[Any] | None = None

    def kill_node(self, node: str) -> None:
        """The machine under a Node object dies: its kubelet falls silent, its pods neither run nor stop."""
        self.kubelets.stop_node(node)
        self.lifecycle.watch_out(node)

    def revive_node(self, node: str) -> None:
        """The machine came back."""
        self.kubelets.restart(node)
        self.lifecycle.watch_out(node)

    async def run(self) -> None:
        """Run until cancelled."""
        await self.runtime.run()

    async def __aenter__(self) -> Self:
        self._block = asyncio.current_task()
        self._task = asyncio.create_task(self.run(), name="pretend-cluster")
        self._task.add_done_callback(self._ended)
        return self

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and self._block is not None:
            self._block.cancel("the pretend cluster failed")

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None
        assert self._block is not None
        block, self._block = self._block, None
        self._task.cancel()
        await asyncio.wait([self._task])
        fault = None if self._task.cancelled() else self._task.exception()
        if fault is not None:
            if isinstance(error, asyncio.CancelledError):
                block.uncancel()  # it was us
            raise fault
