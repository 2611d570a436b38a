"""Static NodePools, told on virtual time: as many nodes as they say, whatever pods ask for."""

import pytest
import structlog
import structlog.testing

from kubewright.settings import FeatureGates, Settings
from kubewright.sim.faults import Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import NODE_CLAIM, NODE_POOL, Item, World, deployment, node_class, play, pool

SETTINGS = Settings(cluster_name="sandbox", feature_gates=FeatureGates(static_capacity=True))


def static(name: str = "fixed", replicas: int = 2, **limits: str) -> Item:
    made = pool(name)
    made["spec"]["replicas"] = replicas
    if limits:
        made["spec"]["limits"] = limits
    return made


def resize(world: World, replicas: int, name: str = "fixed") -> None:
    world.patch(NODE_POOL, name, {"spec": {"replicas": replicas}})


def ready(world: World) -> int:
    return len([c for c in world.claims_that_are("Ready") if "deletionTimestamp" not in c["metadata"]])


def nodes_said(world: World) -> int:
    return world.find(NODE_POOL)[0]["status"].get("nodes", 0)


def test_a_static_pool_is_filled_without_any_pod_follows_its_number_and_ends_with_it():
    async def story(world: World):
        world.apply(node_class(), static(replicas=3))
        await world.until(lambda: ready(world) == 3)
        (claim,) = {c["metadata"]["labels"]["karpenter.sh/nodepool"] for c in world.claims()}
        assert claim == "fixed"
        wanted = {r["key"]: r["values"] for r in world.claims()[0]["spec"]["requirements"]}
        assert wanted["node.kubernetes.io/instance-type"] == ["m5.xlarge", "m6i.xlarge"], "what the template says"
        await world.sleep(600)
        assert (ready(world), world.cloud.sold()) == (3, 3), "empty nodes of it are kept"
        await world.until(lambda: nodes_said(world) == 3, 30)
        resize(world, 5)
        await world.until(lambda: ready(world) == 5)
        resize(world, 1)
        await world.until(lambda: len(world.nodes()) == 1 and len(world.cloud.alive()) == 1, 600)
        resize(world, 0)
        await world.until_nothing_is_left()
        assert world.cloud.sold() == 5

    play(story, settings=SETTINGS)


def test_pods_use_its_nodes_but_never_make_it_grow():
    async def story(world: World):
        world.apply(node_class(), static(replicas=1), pool("general"))
        await world.until(lambda: ready(world) == 1)
        world.apply(deployment(replicas=7))
        await world.until_running(7)
        owners = sorted(n["metadata"]["labels"]["karpenter.sh/nodepool"] for n in world.nodes())
        assert owners == ["fixed", "general", "general"]

    play(story, settings=SETTINGS)


def test_the_limit_on_nodes_holds_and_is_used_up():
    async def story(world: World):
        world.apply(node_class(), static(replicas=5, nodes="3"))
        await world.until(lambda: ready(world) == 3)
        await world.sleep(300)
        assert world.cloud.sold() == 3
        world.patch(NODE_POOL, "fixed", {"spec": {"limits": {"nodes": "4"}}})
        await world.until(lambda: ready(world) == 4)

    play(story, settings=SETTINGS)


def test_a_node_that_is_lost_or_deleted_is_replaced():
    async def story(world: World):
        world.apply(node_class(), static(replicas=2))
        await world.until(lambda: ready(world) == 2)
        world.delete(NODE_CLAIM, world.claims()[0]["metadata"]["name"])
        await world.until(lambda: ready(world) == 2 and world.cloud.sold() == 3 and len(world.claims()) == 2, 600)
        world.cloud.lose(world.claims()[0]["status"]["providerID"])
        await world.until(lambda: ready(world) == 2 and world.cloud.sold() == 4 and len(world.claims()) == 2, 1200)

    play(story, settings=SETTINGS)


def test_empty_nodes_go_before_nodes_with_pods():
    async def story(world: World):
        world.apply(node_class(), static(replicas=1))
        await world.until(lambda: ready(world) == 1)
        world.apply(deployment(replicas=3))
        await world.until_running(3)
        (busy,) = [n["metadata"]["name"] for n in world.nodes()]
        resize(world, 4)
        await world.until(lambda: ready(world) == 4)
        resize(world, 1)
        await world.until(lambda: len(world.nodes()) == 1, 600)
        assert [n["metadata"]["name"] for n in world.nodes()] == [busy]
        assert len(world.running("web")) == 3

    play(story, settings=SETTINGS)


def test_nodes_that_are_hardly_used_are_not_consolidated():
    async def story(world: World):
        world.apply(node_class(), static(replicas=3))
        await world.until(lambda: ready(world) == 3)
        world.apply(deployment(replicas=3))
        await world.until_running(3)
        await world.sleep(3600)
        assert (ready(world), world.cloud.sold()) == (3, 3)
        assert not world.events("DisruptionTerminating")
        assert not world.claims_that_are("Consolidatable")

    play(story, settings=SETTINGS)


def test_what_is_sold_out_is_bought_as_soon_as_it_is_back_and_not_asked_for_all_the_time():
    async def story(world: World):
        world.cloud.sell_out("m5.xlarge")
        world.cloud.sell_out("m6i.xlarge")
        world.apply(node_class(), static(replicas=2))
        await world.sleep(900)
        assert world.cloud.sold() == 0
        assert len(world.events("InsufficientCapacityError")) < 20

    play(story, settings=SETTINGS)


def test_without_the_gate_it_is_left_alone_and_that_is_said():
    async def story(world: World):
        world.apply(node_class(), static(replicas=2), deployment(replicas=1))
        await world.sleep(300)
        assert world.claims() == []

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    try:
        with structlog.testing.capture_logs() as logs:
            play(story)
    finally:
        structlog.configure(**before)
    said = [line for line in logs if "StaticCapacity=true" in line["event"]]
    assert [line["NodePool"] for line in said] == [{"name": "fixed"}]


def hashes(world: World) -> set[str]:
    return {c["metadata"]["annotations"]["karpenter.sh/nodepool-hash"] for c in world.claims()}


@pytest.mark.parametrize("limit", [None, "3", "2"])
def test_c41_drifted_nodes_are_replaced_one_by_one_even_at_the_limit(limit):
    """With a limit that equals the replicas the reference does nothing; here outgoing nodes are credited up to a surge of one."""

    async def story(world: World):
        made = static(replicas=2, **({"nodes": limit} if limit else {}))
        made["spec"]["disruption"]["budgets"] = [{"nodes": "1"}]
        world.apply(node_class(), made)
        await world.until(lambda: ready(world) == 2)
        (old,) = hashes(world)
        world.patch(NODE_POOL, "fixed", {"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}})
        most, least = 0, 9

        def rolled() -> bool:
            nonlocal most, least
            most, least = max(most, len(world.claims())), min(least, ready(world))
            return old not in hashes(world) and ready(world) == 2 and len(world.claims()) == 2

        await world.until(rolled, 3600)
        assert world.cloud.sold() == 4, "each is replaced once"
        assert least >= 2, "none goes before its successor is there"
        assert most == 3
        assert {n["metadata"]["labels"].get("team") for n in world.nodes()} == {"new"}

    play(story, settings=SETTINGS)


def life(process: Process) -> None:
    async def story(world: World) -> None:
        world.apply(node_class(), static(replicas=2))
        await world.until(lambda: ready(world) == 2, 600)
        assert world.cloud.sold() == 2, "nothing was bought twice"
        resize(world, 1)
        await world.until(lambda: len(world.nodes()) == 1 == len(world.cloud.alive()), 900)
        resize(world, 0)
        await world.until_nothing_is_left(1800)
        assert world.cloud.sold() == 2, "nothing was bought for what goes"

    play(story, process=process, settings=SETTINGS)


@pytest.mark.parametrize("side", Side)
def test_an_operator_killed_at_any_write_is_finished_by_the_next(side, record_property):
    def of_claims_and_machines(alive: Process):  # what pools' and nodes' writes do is told by the other stories
        passed = alive.writes if side is Side.BEFORE else alive.landed
        of_interest = ("create NodeClaim", "delete NodeClaim", "EC2")
        return [k for k in kills(alive) if k.side is side and any(w in passed[k.write - 1] for w in of_interest)]

    outcomes = at_every_write(life, chosen=of_claims_and_machines)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"static pool, killed {side} every write: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) > 5
