"""A small world for stories: the in-memory cluster, the fake EC2, and an operator that may die and come back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubewright.api.crds import CRDS
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from kubewright.operator.operator import Operator
from kubewright.settings import Settings
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.faults import Gate, Process
from tests.scenario.cloud import Cloud

Item = dict[str, Any]
NODE_POOL, NODE_CLAIM = ("karpenter.sh/v1", "NodePool"), ("karpenter.sh/v1", "NodeClaim")
ORDER = "kubewright.sh/disruption-order"
POD, NODE, EVENT = ("v1", "Pod"), ("v1", "Node"), ("v1", "Event")


class World:
    """What a story sees and does. Everything is read from the store, as kubectl would."""

    def __init__(self, store: Store, cluster: PretendCluster, cloud: Cloud, process: Process) -> None:
        self.store = store
        self.cluster = cluster
        self.cloud = cloud
        self.process = process

    # what a person does

    def apply(self, *objects: Item) -> None:
        for obj in objects:
            self.store.create(obj)

    def scale(self, name: str, replicas: int) -> None:
        self.store.patch("apps/v1", "Deployment", "default", name, MergePatch({"spec": {"replicas": replicas}}))

    def delete(self, kind: tuple[str, str], name: str, namespace: str = "") -> None:
        self.store.delete(*kind, namespace, name)

    def patch(self, kind: tuple[str, str], name: str, body: Item, namespace: str = "") -> None:
        self.store.patch(*kind, namespace, name, MergePatch(body))

    # what a person sees

    def find(self, kind: tuple[str, str]) -> list[Item]:
        return self.store.list(*kind)[0]

    def running(self, app: str = "") -> list[Item]:
        return [
            p
            for p in self.find(POD)
            if p.get("status", {}).get("phase") == "Running"
            and "deletionTimestamp" not in p["metadata"]
            and app in ("", p["metadata"].get("labels", {}).get("app"))
        ]

    def claims(self) -> list[Item]:
        return self.find(NODE_CLAIM)

    def claims_that_are(self, condition: str) -> list[Item]:
        return [c for c in self.claims() if status(c, condition) == "True"]

    def nodes(self) -> list[Item]:
        return self.find(NODE)

    def events(self, reason: str) -> list[Item]:
        return [e for e in self.find(EVENT) if e["reason"] == reason]

    def now(self) -> datetime:
        return self.store.clock.now()

    @staticmethod
    def seconds() -> float:
        return asyncio.get_running_loop().time()

    # waiting

    async def until(self, condition: Callable[[], object], within_s: float = 300, what: str = "") -> float:
        """The second at which it came true."""
        return await loop.until(lambda: bool(condition()), within_s=within_s, every_s=0.5, what=what)

    async def until_running(self, count: int, app: str = "web", within_s: float = 300) -> float:
        return await self.until(lambda: len(self.running(app)) == count, within_s, f"{count} running pods of {app}")

    async def until_nothing_is_left(self, within_s: float = 900) -> float:
        return await self.until(self.is_bare, within_s, "no NodeClaim, Node or machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def is_bare(self) -> bool:
        return not (self.claims() or self.nodes() or self.cloud.alive())


Story = Callable[[World], Coroutine[Any, Any, None]]


class Setting(msgspec.Struct, frozen=True):
    """What a story may put in the place of the ordinary."""

    client: Callable[[Store], DirectClient] = DirectClient
    """The operator's view of the API server."""
    provider: Callable[[CloudProvider], CloudProvider] = lambda provider: provider
    registry: Registry | None = None


ORDINARY = Setting()


def play(
    story: Story,
    *,
    process: Process | None = None,
    settings: Settings | None = None,
    setting: Setting = ORDINARY,
    seed: int = 0,
    limit_s: float = 172_800,
    **cloud: Any,
) -> World:
    """Tell a story on virtual time; its failure, and any of the operator's own, is raised."""

    async def main() -> World:
        how = settings or Settings(cluster_name="sandbox")
        async with living(process or Process(), how, setting, seed=seed, **cloud) as world:
            await story(world)
            return world

    try:
        return loop.run(main(), limit_s=limit_s)
    except BaseExceptionGroup as group:
        inner: BaseException = group
        while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
            inner = inner.exceptions[0]
        raise inner from None


@contextlib.asynccontextmanager
async def living(
    process: Process, settings: Settings, setting: Setting = ORDINARY, *, seed: int = 0, **cloud: Any
) -> AsyncIterator[World]:
    clock = Clock(loop.EPOCH)
    store = Store(clock, seed=seed, crds=[CRDS[name] for name in sorted(CRDS)])
    async with PretendCluster(store) as cluster, asyncio.TaskGroup() as tasks:
        sold = Cloud(clock, DirectClient(store), died=cluster.kill_node, seed=seed, **cloud)

        def start(gate: Gate) -> Operator:
            client = setting.client(store)
            client.before.append(gate.before)
            client.after.append(gate.after)
            provider = setting.provider(sold.provider(client, gate, settings))
            return Operator(client, provider, settings, clock, registry=setting.registry)

        background = [
            tasks.create_task(sold.run(), name="cloud"),
            tasks.create_task(process.run(start), name="operator"),
        ]
        try:
            yield World(store, cluster, sold, process)
        finally:
            for task in background:
                task.cancel()


# objects


def pool(name: str = "general", *, consolidate_after: str = "30s", budgets: list[Item] | None = None, **template: Any) -> Item:
    spec = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge", "m6i.xlarge"]},
        ],
        **template,
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": spec},
            "disruption": {"consolidateAfter": consolidate_after, "budgets": budgets or [{"nodes": "100%"}]},
        },
    }


def node_class(name: str = "default") -> Item:
    by_tag = [{"tags": {"karpenter.sh/discovery": "sandbox"}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "role": "KarpenterNodeRole-sandbox",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": by_tag,
            "securityGroupSelectorTerms": by_tag,
        },
    }


def deployment(name: str = "web", replicas: int = 3, cpu: str = "1", *, annotations: Item | None = None, **spec: Any) -> Item:
    containers = [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {"containers": containers, **spec},
            },
        },
    }


def budget(name: str = "web", **spec: Any) -> Item:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def status(obj: Item, condition: str) -> str:
    found = [c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == condition]
    return found[0]["status"] if found else ""


def reason(obj: Item, condition: str) -> str:
    found = [c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == condition]
    return found[0].get("reason", "") if found else ""


def taints(node: Item) -> set[str]:
    return {t["key"] for t in node["spec"].get("taints", ())}


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def relabel(world: World, value: str = "blue", name: str = "general") -> None:
    """A change of the template: every machine of the pool drifts."""
    world.patch(NODE_POOL, name, {"spec": {"template": {"metadata": {"labels": {"team": value}}}}})


def names(things: Iterable[Item]) -> set[str]:
    return {t["metadata"]["name"] for t in things}


def ordered(world: World) -> list[str]:
    """NodeClaims that stay for now and have an order on them."""
    return [
        c["metadata"]["name"]
        for c in world.claims()
        if ORDER in c["metadata"].get("annotations", {}) and "deletionTimestamp" not in c["metadata"]
    ]


def is_clean(world: World) -> bool:
    """No mark of a disruption anywhere."""
    return not ordered(world) and not any(
        "karpenter.sh/disrupted" in taints(n) for n in world.nodes() if "deletionTimestamp" not in n["metadata"]
    )


SECOND = timedelta(seconds=1)
