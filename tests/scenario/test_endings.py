"""Ends that ask nobody: illness, age, accidents; and how a node drains."""

import pytest

from kubewright.settings import FeatureGates, Settings
from kubewright.sim.apiserver.store import Store
from tests.scenario.world import (
    NODE,
    NODE_CLAIM,
    POD,
    World,
    deployment,
    names,
    node_class,
    play,
    pool,
    status,
    taints,
    when,
)

REPAIRING = Settings(cluster_name="sandbox", feature_gates=FeatureGates(node_repair=True))


async def a_cluster(world: World, replicas: int, **of_pool) -> None:
    world.apply(node_class(), pool(**of_pool), deployment(replicas=replicas))
    await world.until_running(replicas)


def fall_ill(world: World, *nodes: str) -> None:
    """Their kubelets fall silent; the machines run on."""
    for name in nodes:
        world.cluster.kill_node(name)


@pytest.mark.parametrize(("machines", "ill", "repaired"), [(3, 1, True), (6, 3, False)])
def test_a_node_that_is_not_ready_for_half_an_hour_is_replaced_unless_too_many_are(machines, ill, repaired):
    """Case C73: of three one may be; of six three may not."""

    async def story(world: World):
        await a_cluster(world, 3 * machines, consolidate_after="Never")
        sick = sorted(names(world.nodes()))[:ill]
        fall_ill(world, *sick)
        await world.until(lambda: all(status(n, "Ready") == "Unknown" for n in world.nodes() if n["metadata"]["name"] in sick))
        start = world.seconds()
        await world.sleep(29 * 60)
        assert set(sick) <= names(world.nodes())
        if repaired:
            gone = await world.until(lambda: not set(sick) & names(world.nodes()), 900)
            assert gone - start <= 40 * 60
            await world.until_running(3 * machines)
            await world.until(lambda: len(world.cloud.alive()) == len(world.claims()))
        else:
            await world.sleep(600)
            assert set(sick) <= names(world.nodes())
            (event,) = {e["message"] for e in world.events("NodeRepairBlocked")}
            assert event == "more than 20% nodes are unhealthy in the nodepool: 3 of 9 unhealthy, 2 allowed"

    play(story, settings=REPAIRING)


def test_without_the_gate_nothing_is_repaired():
    async def story(world: World):
        await a_cluster(world, 3, consolidate_after="Never")
        sick = names(world.nodes())
        fall_ill(world, *sick)
        await world.sleep(3600)
        assert sick <= names(world.nodes())

    play(story)


def remove_node(world: World, name: str) -> None:
    world.patch(NODE, name, {"metadata": {"finalizers": None}})
    world.delete(NODE, name)


def test_a_machine_whose_node_somebody_removed_is_ended_and_nothing_is_planned_onto_it():
    """Case C71."""

    async def story(world: World):
        await a_cluster(world, 3)
        (node,), (claim,) = world.nodes(), world.claims()
        remove_node(world, node["metadata"]["name"])
        await world.until(lambda: claim["metadata"]["name"] not in names(world.claims()), 600)
        await world.until_running(3, within_s=900)
        await world.until(lambda: len(world.cloud.alive()) == len(world.claims()) == 1)
        assert claim["status"]["providerID"] not in world.cloud.alive()

    play(story)


def daemon_set(name: str, **spec) -> dict:
    made = deployment(name, cpu="100m", **spec)
    del made["spec"]["replicas"]
    return {**made, "kind": "DaemonSet"}


def test_a_node_drains_in_four_groups_each_after_the_one_before_is_gone():
    """Case C67."""
    critical = {"priorityClassName": "system-cluster-critical"}
    slow = {"kubewright.sh/sim-stop-duration": "1h"}  # every pod takes its whole grace

    async def story(world: World):
        world.apply(
            node_class(),
            pool(),
            deployment("web", 1, annotations=slow, terminationGracePeriodSeconds=135),
            daemon_set("logger", annotations=slow, terminationGracePeriodSeconds=20),
            deployment("dns", 1, annotations=slow, terminationGracePeriodSeconds=20, **critical),
            daemon_set("proxy", annotations=slow, terminationGracePeriodSeconds=20, **critical),
        )
        await world.until(lambda: len(world.running("web")) == len(world.running("dns")) == len(world.running("proxy")) == 1)
        (node,) = names(world.nodes())
        world.delete(NODE, node)
        seen: dict[str, dict[str, float]] = {}

        def done() -> bool:
            here = {p["metadata"]["labels"]["app"]: p for p in world.find(POD) if p["spec"].get("nodeName") == node}
            for app in ("web", "logger", "dns", "proxy"):
                told = seen.setdefault(app, {})
                if app not in here or "deletionTimestamp" in here[app]["metadata"]:
                    told.setdefault("asked", world.seconds())
                if app not in here:
                    told.setdefault("gone", world.seconds())
            return node not in names(world.nodes())

        await world.until(done, 900)
        for before, after in (("web", "logger"), ("logger", "dns"), ("dns", "proxy")):
            assert seen[before]["gone"] <= seen[after]["asked"], (before, after, seen)

    play(story)


def test_expiry_waits_for_a_pinned_pod_for_ever_or_as_long_as_its_grace_allows():
    """Case C69, with hours for days: nothing in it depends on how long a life is."""
    pinned = {"karpenter.sh/do-not-disrupt": "true", "kubewright.sh/sim-stop-duration": "1h"}

    async def story(world: World, grace: str | None):
        of_pool = {"terminationGracePeriod": grace} if grace else {}
        world.apply(node_class(), pool(expireAfter="1h", **of_pool))
        world.apply(deployment("job", 1, annotations=pinned, terminationGracePeriodSeconds=60))
        await world.until_running(1, "job")
        (claim,), (job,) = world.claims(), world.running("job")
        born = when(claim["metadata"]["creationTimestamp"])
        await world.until(lambda: "deletionTimestamp" in world.claims()[0]["metadata"], 4000)
        assert (world.now() - born).total_seconds() == pytest.approx(3600, abs=2)
        if grace is None:
            await world.sleep(3600)
            assert job["metadata"]["name"] in names(world.running("job"))
            assert "karpenter.sh/disrupted" in taints(world.nodes()[0])
            assert any("waiting to be evicted" in e["message"] for e in world.events("FailedDraining"))
            return
        await world.until(lambda: job["metadata"]["name"] not in names(world.running("job")), 7200)
        assert (world.now() - born).total_seconds() == pytest.approx(2 * 3600 - 60, abs=5)
        await world.until(lambda: claim["status"]["providerID"] not in world.cloud.alive(), 300)
        assert (world.now() - born).total_seconds() <= 2 * 3600 + 10, "the machine is gone with the hour"

    play(lambda world: story(world, None))
    play(lambda world: story(world, "1h"))


def test_a_machine_that_lacks_the_device_it_was_bought_for_stays_uninitialized_and_says_why():
    """Case C76: not taken for empty, and nothing more is bought for the same pod."""

    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="0s"), deployment("train", 1))
        await world.until(lambda: world.claims_that_are("Launched"))
        (claim,) = world.claims()
        # what the pod needed was promised, and the kubelet never found it
        asked = {"spec": {"resources": {"requests": {**claim["spec"]["resources"]["requests"], "nvidia.com/gpu": "1"}}}}
        force(world.store, claim["metadata"]["name"], asked)
        await world.sleep(1200)
        (claim,) = world.claims()
        (told,) = [c for c in claim["status"]["conditions"] if c["type"] == "Initialized"]
        assert (told["status"], told["reason"]) == ("Unknown", "ResourceNotRegistered")
        assert "nvidia.com/gpu" in told["message"]
        assert len(world.cloud.alive()) == 1

    play(story)


def force(store: Store, claim: str, body: dict) -> None:
    """Change what the API server holds immutable, as if it had been created so."""
    kind = store.kind(*NODE_CLAIM)
    held = store.table(kind).get(("", claim))
    assert held is not None
    held["spec"]["resources"] = body["spec"]["resources"]
