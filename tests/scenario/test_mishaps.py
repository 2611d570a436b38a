"""What may go wrong around an operator that lives on: late or silent watches, writers in between, bugs of a provider."""

import asyncio

from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.cloud.provider import CloudProvider
from kubewright.errors import Conflict
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from tests.scenario.world import (
    NODE,
    NODE_CLAIM,
    NODE_POOL,
    POD,
    SECOND,
    Setting,
    World,
    deployment,
    node_class,
    play,
    pool,
    taints,
)


class Deaf(DirectClient):
    """Hears nothing of some kinds for a while, not even a bookmark."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.to: set[str] = set()

    async def watch(self, kind, namespace="", **options):
        async for event in super().watch(kind, namespace, **options):
            await loop.until(lambda: kind.RESOURCE.kind not in self.to, within_s=86_400)
            yield event


def test_nothing_is_disrupted_on_the_word_of_a_silent_watch():
    clients = []

    def deaf(store: Store) -> DirectClient:
        clients.append(Deaf(store))
        return clients[-1]

    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="5m"), deployment())
        await world.until_running(3)
        world.scale("web", 0)
        await world.until(lambda: not world.find(POD))
        await world.sleep(20)
        clients[0].to = {"Pod"}
        world.scale("web", 3)
        await world.until_running(3)
        await world.sleep(1800)
        assert len(world.running("web")) == 3
        assert not world.events("DisruptionTerminating")
        clients[0].to = set()
        await world.sleep(60)
        world.scale("web", 0)
        await world.until_nothing_is_left()

    play(story, setting=Setting(client=deaf))


class LateClaims(DirectClient):
    """The watch of NodeClaims is three seconds behind."""

    async def watch(self, kind, namespace="", **options):
        async for event in super().watch(kind, namespace, **options):
            if kind is NodeClaim:
                await asyncio.sleep(3)
            yield event


def test_a_claim_that_the_watch_has_not_shown_yet_is_counted():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=3))
        await world.until(world.claims)
        world.scale("web", 6)
        await world.until_running(6)
        assert world.cloud.sold() == 2

    play(story, setting=Setting(client=LateClaims))


class DeletedMeanwhile(DirectClient):
    """The first NodeClaim is deleted by somebody just before what was bought for it is written down."""

    done = False

    async def patch(self, kind, name, patch, namespace="", *, subresource=""):
        if kind is NodeClaim and isinstance(patch, MergePatch) and "providerID" in patch.body.get("status", {}) and not self.done:
            self.done = True
            self._store.delete(*NODE_CLAIM, "", name)
            raise Conflict(409, "Conflict", "the object has been modified")
        return await super().patch(kind, name, patch, namespace, subresource=subresource)


def test_a_machine_whose_claim_was_deleted_before_it_was_written_down_goes_at_once():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        first, second = world.cloud.ec2.machines.all.values()
        assert second.is_live
        assert first.billed_until - first.asked < 10 * SECOND, "before orphans are looked for"

    play(story, setting=Setting(client=DeletedMeanwhile))


def test_the_mark_of_a_disruption_that_nobody_remembers_is_taken_off():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment())
        await world.until_running(3)
        mark = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        world.patch(NODE, world.nodes()[0]["metadata"]["name"], {"spec": {"taints": [mark]}})
        await world.until(lambda: not any(taints(n) for n in world.nodes()), within_s=30)
        assert len(world.running("web")) == 3

    play(story)


def test_claims_of_an_older_hash_version_are_hashed_anew_with_their_pool():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        names = ("karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version")
        now = {name: world.claims()[0]["metadata"]["annotations"][name] for name in names}
        assert now == {name: world.find(NODE_POOL)[0]["metadata"]["annotations"][name] for name in names}
        old = {"metadata": {"annotations": dict(zip(names, ("1", "v1"), strict=True))}}
        world.patch(NODE_CLAIM, world.claims()[0]["metadata"]["name"], old)
        world.patch(NODE_POOL, "general", old)
        await world.sleep(5)
        for obj in (*world.claims(), *world.find(NODE_POOL)):
            assert {name: obj["metadata"]["annotations"][name] for name in names} == now

    play(story)


def test_nothing_is_bought_for_a_claim_that_could_vanish():
    """A claim made by hand has no finalizer yet."""

    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        made = world.claims()[0]
        by_hand = {
            "apiVersion": made["apiVersion"],
            "kind": made["kind"],
            "metadata": {"name": "by-hand"},
            "spec": {key: made["spec"][key] for key in ("nodeClassRef", "requirements")},
        }
        world.apply(by_hand)

        def bought():
            return [c for c in world.claims() if c["metadata"]["name"] == "by-hand" and c.get("status", {}).get("providerID")]

        await world.until(bought)
        assert "karpenter.sh/termination" in bought()[0]["metadata"]["finalizers"]
        world.delete(NODE_CLAIM, "by-hand")
        await world.until(lambda: len(world.claims()) == len(world.cloud.alive()) == 1)

    play(story)


class Buggy:
    """Raises what no contract mentions: twice when asked for types, and in a background part of its own."""

    def __init__(self, provider: CloudProvider) -> None:
        self._provider = provider
        self.node_class_types = provider.node_class_types
        self.asked = self.ran = 0

    def __getattr__(self, name):
        return getattr(self._provider, name)

    async def instance_types(self, pool: NodePool):
        self.asked += 1
        if self.asked <= 2:
            raise ZeroDivisionError("asked")
        return await self._provider.instance_types(pool)

    def background(self):
        return [*self._provider.background(), self]

    async def run(self) -> None:
        self.ran += 1
        raise ZeroDivisionError("ran")

    name = "buggy"


def test_bugs_of_a_provider_do_not_end_the_operator():
    made = []

    def buggy(provider: CloudProvider) -> CloudProvider:
        made.append(Buggy(provider))
        return made[-1]

    registry = Registry()

    async def story(world: World):
        world.apply(node_class(), pool(), deployment())
        await world.until_running(3)
        await world.sleep(600)
        world.scale("web", 0)
        await world.until_nothing_is_left()
        assert world.process.lives == 1

    play(story, setting=Setting(provider=buggy, registry=registry))
    assert 8 <= made[0].ran <= 25, "with growing pauses"
    labelled = {"controller": "", "provider": "buggy", "error": "ZeroDivisionError"}
    asked = [
        registry.value("karpenter_cloudprovider_errors_total", **{**labelled, "controller": who, "method": "GetInstanceTypes"})
        for who in ("", "disruption")
    ]
    assert sum(filter(None, asked)) == 2
    assert registry.value("karpenter_cloudprovider_errors_total", method="buggy", **labelled) == made[0].ran


def test_the_numbers_of_a_life():
    registry = Registry()
    exposed: list[str] = []

    async def story(world: World):
        world.apply(node_class(), pool(), deployment())
        await world.until_running(3)
        world.scale("web", 0)
        await world.until_nothing_is_left()
        await world.sleep(10)
        exposed.extend(registry.expose().decode().splitlines())

    play(story, setting=Setting(registry=registry))
    shown = {}
    for line in exposed:
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            shown[series.partition("{")[0]] = shown.get(series.partition("{")[0], 0) + float(value)
    for name, times in (
        ("nodeclaims_created_total", 1),
        ("nodeclaims_disrupted_total", 1),
        ("nodeclaims_terminated_total", 1),
        ("nodeclaims_termination_duration_seconds_count", 1),
        ("nodeclaims_instance_termination_duration_seconds_count", 1),
        ("nodes_created_total", 1),
        ("nodes_terminated_total", 1),
        ("nodes_lifetime_duration_seconds_count", 1),
        ("nodes_termination_duration_seconds_count", 1),
        ("pods_bound_duration_seconds_count", 3),
        ("pods_startup_duration_seconds_count", 3),
        ("pods_provisioning_bound_duration_seconds_count", 3),
        ("pods_provisioning_startup_duration_seconds_count", 3),
        ("voluntary_disruption_decisions_total", 1),
        ("cluster_state_synced", 1),
    ):
        assert shown[f"karpenter_{name}"] == times, name
    assert shown["karpenter_scheduler_scheduling_duration_seconds_count"] >= 1
    for controller in ("nodeclaim.lifecycle", "node.termination", "disruption", "nodepool.counter", "nodepool"):
        reconciled = {"controller": controller, "result": "requeue_after" if controller != "nodepool" else "success"}
        assert registry.value("controller_runtime_reconcile_total", **reconciled)
