"""NodeOverlays, told on virtual time: prices turn purchases, capacity joins machines, verdicts stand on the objects."""

import pytest

from kubewright.settings import FeatureGates, Settings
from kubewright.sim.faults import Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import Item, World, deployment, node_class, play, pool, reason, status

OVERLAY = ("karpenter.sh/v1alpha1", "NodeOverlay")
SETTINGS = Settings(cluster_name="sandbox", feature_gates=FeatureGates(node_overlay=True))
TYPE = "node.kubernetes.io/instance-type"


def overlay(name: str, *types: str, **spec) -> Item:
    wanted = [{"key": TYPE, "operator": "In", "values": list(types)}] if types else []
    return {"apiVersion": OVERLAY[0], "kind": OVERLAY[1], "metadata": {"name": name}, "spec": {"requirements": wanted, **spec}}


def type_of(node: Item) -> str:
    return node["metadata"]["labels"][TYPE]


def message(obj: Item, condition: str) -> str:
    return next(c["message"] for c in obj["status"]["conditions"] if c["type"] == condition)


def named(world: World, name: str) -> Item:
    return next(o for o in world.find(OVERLAY) if o["metadata"]["name"] == name)


async def bought_type(world: World, *overlays: Item) -> str:
    world.apply(node_class(), pool(), *overlays, deployment(replicas=1))
    await world.until_running(1)
    (node,) = world.nodes()
    return type_of(node)


def test_a_price_turns_the_purchase_and_the_cloud_is_told_the_order():
    bought = {}

    async def plain(world: World):
        bought["plain"] = await bought_type(world)

    async def corrected(world: World):
        dear = overlay("dear", bought["plain"], priceAdjustment="+10%")
        bought["corrected"] = await bought_type(world, dear)
        (claim,) = world.claims()
        assert claim["metadata"]["annotations"]["karpenter.sh/price-overlay-applied"] == "true"
        assert status(named(world, "dear"), "Ready") == "True"

    play(plain, settings=SETTINGS)
    play(corrected, settings=SETTINGS)
    assert bought["corrected"] != bought["plain"]


def test_without_the_gate_nothing_is_read_and_nothing_is_said():
    async def story(world: World):
        assert await bought_type(world, overlay("dear", "m5.xlarge", "m6i.xlarge", price="99"))
        (claim,) = world.claims()
        assert "karpenter.sh/price-overlay-applied" not in claim["metadata"]["annotations"]
        assert "status" not in named(world, "dear")

    play(story)


def test_of_two_that_clash_one_stands_and_says_so_and_the_other_follows_when_it_goes():
    async def story(world: World):
        world.apply(node_class(), pool(), overlay("a", "m5.xlarge", price="1"), overlay("b", price="2"))
        await world.until(lambda: status(named(world, "a"), "Ready") == "False")
        assert status(named(world, "b"), "Ready") == "True"
        assert reason(named(world, "a"), "ValidationSucceeded") == "Conflict"
        assert message(named(world, "a"), "ValidationSucceeded") == "conflict with another overlay"
        world.delete(OVERLAY, "b")
        await world.until(lambda: status(named(world, "a"), "Ready") == "True", 60)

    play(story, settings=SETTINGS)


def test_capacity_joins_the_machine_and_pods_that_ask_for_it_are_placed():
    async def story(world: World):
        world.apply(node_class(), pool(), overlay("dongles", "m6i.xlarge", capacity={"example.com/dongle": "2"}))
        asking = deployment("keys", replicas=2)
        requests = asking["spec"]["template"]["spec"]["containers"][0]["resources"]
        requests["requests"]["example.com/dongle"] = "1"
        requests["limits"] = {"example.com/dongle": "1"}
        world.apply(asking)
        await world.until(lambda: world.claims_that_are("Launched"))
        (claim,) = world.claims()
        assert claim["status"]["capacity"]["example.com/dongle"] == "2"
        assert claim["metadata"]["labels"][TYPE] == "m6i.xlarge"
        assert claim["metadata"]["annotations"]["karpenter.sh/capacity-overlay-applied"] == "true"

    play(story, settings=SETTINGS)


def test_c10_a_broken_pool_stops_neither_overlays_nor_the_other_pools():
    async def story(world: World):
        broken = pool("broken", nodeClassRef={"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gone"})
        world.apply(node_class(), pool("good"), broken, overlay("cheaper", priceAdjustment="-10%"), deployment(replicas=1))
        await world.until_running(1)
        (claim,) = world.claims()
        assert claim["metadata"]["labels"]["karpenter.sh/nodepool"] == "good"
        assert status(named(world, "cheaper"), "Ready") == "True"
        pools = {p["metadata"]["name"]: p for p in world.find(("karpenter.sh/v1", "NodePool"))}
        assert status(pools["broken"], "Ready") == "False"
        assert reason(pools["broken"], "NodeClassReady") == "NodeClassNotFound"

    play(story, settings=SETTINGS)


def test_a_machine_that_an_overlay_makes_dear_is_replaced_and_that_settles():
    async def story(world: World):
        first = await bought_type(world)
        world.apply(overlay("dear", first, priceAdjustment="+300%"))
        await world.until(lambda: [type_of(n) for n in world.nodes()] not in ([], [first]) and len(world.nodes()) == 1, 1800)
        second = type_of(world.nodes()[0])
        assert second != first
        await world.sleep(3600)
        assert world.cloud.sold() == 2, "it comes to rest"
        assert len(world.running("web")) == 1

    play(story, settings=SETTINGS)


def judged_life(process: Process) -> None:
    async def story(world: World) -> None:
        world.apply(node_class(), pool(), overlay("a", "m5.xlarge", price="1"), overlay("b", price="2"))
        await world.until(
            lambda: status(named(world, "a"), "Ready") == "False" and status(named(world, "b"), "Ready") == "True", 600
        )
        world.delete(OVERLAY, "b")
        await world.until(lambda: status(named(world, "a"), "Ready") == "True", 600)

    play(story, process=process, settings=SETTINGS)


@pytest.mark.parametrize("side", Side)
def test_an_operator_killed_at_any_write_is_followed_by_one_that_says_it(side, record_property):
    def overlays_only(alive: Process):
        passed = alive.writes if side is Side.BEFORE else alive.landed
        return [k for k in kills(alive) if k.side is side and "NodeOverlay" in passed[k.write - 1]]

    outcomes = at_every_write(judged_life, chosen=overlays_only)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"overlays judged though killed {side} a write: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) >= 3
