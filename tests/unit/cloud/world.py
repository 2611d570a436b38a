"""A cluster, a fake EC2 and a provider, on virtual time."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from kubewright.api.crds import CRDS
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.clock import Clock
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.settings import Settings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.loop import run

T = TypeVar("T")

NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "KarpenterNodeRole-sandbox",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "sandbox"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "sandbox"}}],
    },
}
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


class World:
    """Make it inside the loop."""

    def __init__(self, faults: Faults | None = None, seed: int = 0, spec: dict[str, Any] | None = None) -> None:
        self.clock = Clock(datetime(2026, 11, 29, tzinfo=UTC))
        self.store = Store(self.clock, crds=list(CRDS.values()))
        self.kube = DirectClient(self.store)
        self.ec2 = FakeEc2(self.clock, seed, faults)
        self.store.create({**NODE_CLASS, "spec": {**NODE_CLASS["spec"], **(spec or {})}})
        template = {"spec": {"nodeClassRef": REFERENCE, "requirements": []}}
        pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}}
        self.store.create({**pool, "spec": {"template": template}})
        self.provider = self.restarted()

    def restarted(self) -> AwsProvider:
        """A provider that remembers nothing."""
        return AwsProvider(self.ec2, self.kube, self.clock, Settings(cluster_name="sandbox"), self.ec2.settings)

    def node_class(self) -> dict[str, Any]:
        return self.store.get("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default")

    async def pool(self) -> NodePool:
        return await self.kube.get(NodePool, "general")

    async def claim(self, name: str = "general-1", cpu: str = "3", **values: Any) -> NodeClaim:
        """`values`: requirement key → allowed values."""
        wanted = [
            {"key": key, "operator": "In", "values": list(v)}
            for key, v in {"karpenter.sh/capacity-type": ["on-demand"], **values}.items()
        ]
        self.store.create(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "general"}},
                "spec": {
                    "nodeClassRef": REFERENCE,
                    "requirements": wanted,
                    "resources": {"requests": {"cpu": cpu, "memory": "5Gi"}},
                },
            }
        )
        return await self.kube.get(NodeClaim, name)


def story(
    tell: Callable[[World], Awaitable[T]], faults: Faults | None = None, *, seed: int = 0, ready: bool = True, **spec: Any
) -> T:
    """Run `tell` in a new world, whose NodeClass is ready unless told otherwise."""

    async def main() -> T:
        world = World(faults, seed, spec)
        await world.provider.begin()
        if ready:
            await world.provider.reconcile_node_class("default")
        try:
            return await tell(world)
        finally:
            world.ec2.stop()

    return run(main(), limit_s=7 * 24 * 3600)
