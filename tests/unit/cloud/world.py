"""A cluster, a fake EC2 and a provider, on virtual time."""

import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from kubewright.api.crds import CRDS
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.clock import Clock
from kubewright.cloud.aws import catalogue
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.kube.client import MergePatch
from kubewright.settings import FeatureGates, Settings
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


FAMILIES = ("m4", "m5", "m5a", "m6g", "m7a", "m8i", "c5", "c6g", "r5", "t3", "g5", "p5", "i3")


@functools.cache
def few() -> catalogue.Catalogue:
    """Some families are enough for most stories; reading the rest would take most of their time."""
    whole = catalogue.embedded()
    types = tuple(t for t in whole.types if t.instance_type.partition(".")[0] in FAMILIES)
    names = {t.instance_type for t in types}
    regions = {name: replace(r, sold={k: v for k, v in r.sold.items() if k in names}) for name, r in whole.regions.items()}
    prices = {region: {k: v for k, v in listed.items() if k in names} for region, listed in whole.on_demand.items()}
    return replace(whole, types=types, regions=regions, on_demand=prices)


class World:
    """Make it inside the loop."""

    START = datetime(2026, 11, 29, tzinfo=UTC)

    def __init__(
        self, faults: Faults | None = None, seed: int = 0, spec: dict[str, Any] | None = None, *, whole: bool = False
    ) -> None:
        self.known = catalogue.embedded() if whole else few()
        self.clock = Clock(self.START)
        self.store = Store(self.clock, crds=list(CRDS.values()))
        self.kube = DirectClient(self.store)
        self.ec2 = FakeEc2(self.clock, seed, faults, known=self.known)
        self.store.create({**NODE_CLASS, "spec": {**NODE_CLASS["spec"], **(spec or {})}})
        template = {"spec": {"nodeClassRef": REFERENCE, "requirements": []}}
        pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}}
        self.store.create({**pool, "spec": {"template": template}})
        self.provider = self.restarted()

    def restarted(self, *, reserved: bool = True, **aws: Any) -> AwsProvider:
        """A provider that remembers nothing; `aws` are its settings."""
        settings = Settings(cluster_name="sandbox", feature_gates=FeatureGates(reserved_capacity=reserved))
        return AwsProvider(self.ec2, self.kube, self.clock, settings, replace(self.ec2.settings, **aws), self.known)

    def patch_class(self, spec: dict[str, Any]) -> None:
        self.store.patch("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default", MergePatch({"spec": spec}))

    def node_class(self) -> dict[str, Any]:
        return self.store.get("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default")

    async def pool(self) -> NodePool:
        return await self.kube.get(NodePool, "general")

    async def claim(self, name: str = "general-1", cpu: str = "3", efa: str = "", **values: Any) -> NodeClaim:
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
                    "resources": {"requests": {"cpu": cpu, "memory": "5Gi", **({"vpc.amazonaws.com/efa": efa} if efa else {})}},
                },
            }
        )
        return await self.kube.get(NodeClaim, name)


def story(
    tell: Callable[[World], Awaitable[T]],
    faults: Faults | None = None,
    *,
    seed: int = 0,
    ready: bool = True,
    whole: bool = False,
    **spec: Any,
) -> T:
    """Run `tell` in a new world, whose NodeClass is ready unless told otherwise."""

    async def main() -> T:
        world = World(faults, seed, spec, whole=whole)
        await world.provider.begin()
        if ready:
            await world.provider.reconcile_node_class("default")
        try:
            return await tell(world)
        finally:
            world.ec2.stop()

    return run(main(), limit_s=7 * 24 * 3600)
