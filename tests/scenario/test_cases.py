"""Cases of disruption from docs/cases.md on the whole operator: C13, C19, C48 to C66."""

import json

import pytest

from kubewright.kube.client import MergePatch
from kubewright.settings import FeatureGates, Settings
from tests.scenario.world import (
    NODE,
    NODE_CLAIM,
    NODE_POOL,
    ORDER,
    POD,
    Item,
    World,
    budget,
    deployment,
    is_clean,
    names,
    node_class,
    ordered,
    play,
    pool,
    relabel,
    status,
    taints,
)

SPOT_TO_SPOT = Settings(cluster_name="sandbox", feature_gates=FeatureGates(spot_to_spot_consolidation=True))
SIZES = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge")


def needs(*types: str, capacity: str = "on-demand", zones: tuple[str, ...] = ()) -> list[Item]:
    found = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)},
    ]
    return found + ([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(zones)}] if zones else [])


def widen(world: World, requirements: list[Item]) -> None:
    """What the pool may buy from now on; what fits still is not drifted."""
    world.patch(NODE_POOL, "general", {"spec": {"template": {"spec": {"requirements": requirements}}}})


def types(world: World) -> list[str]:
    return sorted(n["metadata"]["labels"]["node.kubernetes.io/instance-type"] for n in world.nodes())


async def one_by_one(world: World, *wanted: tuple[str, str, str]) -> None:
    """Nodes as a case wants them: (app, cpu, instance type), each bought while the others are closed and none may go."""
    closed = {"consolidate_after": "Never", "budgets": [{"nodes": "0"}]}
    world.apply(node_class(), pool(requirements=needs(wanted[0][2]), **closed))
    for app, cpu, kind in wanted:
        widen(world, needs(kind))
        there = names(world.nodes())
        for name in there:
            world.patch(NODE, name, {"spec": {"unschedulable": True}})
        world.apply(deployment(app, 1, cpu))
        await world.until_running(1, app)
        assert len(world.nodes()) == len(there) + 1
        for name in there:
            world.patch(NODE, name, {"spec": {"unschedulable": None}})
    widen(world, needs(*sorted({kind for _, _, kind in wanted})))
    await world.sleep(5)


def consolidate(world: World) -> None:
    world.patch(NODE_POOL, "general", {"spec": {"disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}}})


@pytest.mark.parametrize(("gate", "cheaper", "replaced"), [(False, 21, False), (True, 6, False), (True, 21, True)])
def test_c48_spot_to_spot_needs_its_gate_and_fifteen_cheaper_types(gate, cheaper, replaced):
    large, every = "m6i.32xlarge", [f"{family}.{size}" for size in SIZES for family in ("m5", "m6i", "m7g")]

    async def story(world: World):
        world.apply(node_class(), pool(requirements=needs(large, capacity="spot")), deployment(replicas=1))
        await world.until_running(1)
        widen(world, needs(large, *every[:cheaper], capacity="spot"))
        if not replaced:
            await world.sleep(600)
            assert types(world) == [large]
            told = " ".join(e["message"] for e in world.events("Unconsolidatable"))
            assert ("SpotToSpotConsolidation is disabled" in told) is not gate
            assert (str(cheaper) in told and "15" in told) is gate
            return
        await world.until(lambda: ordered(world))
        (order,) = {c["metadata"]["annotations"][ORDER] for c in world.claims() if c["metadata"]["name"] in ordered(world)}
        (name,) = json.loads(order)["replacements"]
        (new,) = [c for c in world.claims() if c["metadata"]["name"] == name]
        (offered,) = [r["values"] for r in new["spec"]["requirements"] if r["key"] == "node.kubernetes.io/instance-type"]
        assert len(offered) == 15
        assert large not in offered
        await world.until(lambda: types(world) and large not in types(world), 600)
        await world.sleep(900)
        assert len(world.claims()) == 1
        assert world.cloud.sold() == 2, "among the fifteen cheapest already: it stays"

    play(story, settings=SPOT_TO_SPOT if gate else None)


@pytest.mark.parametrize(("first", "second", "left"), [("3", "6", 2), ("3", "3", 1)])
def test_c49_the_same_price_is_no_saving_and_one_that_can_go_goes(first, second, left):
    async def story(world: World):
        await one_by_one(world, ("a", first, "m5.2xlarge"), ("b", second, "m5.2xlarge"))
        widen(world, needs("m5.2xlarge", "m5.4xlarge"))
        consolidate(world)
        await world.sleep(900)
        assert types(world) == ["m5.2xlarge"] * left
        assert len(world.running("a")) == len(world.running("b")) == 1
        assert world.cloud.sold() == 2, "nothing was bought for it"

    play(story)


def test_c51_no_machine_is_swapped_for_its_like_and_it_comes_to_rest():
    async def story(world: World):
        full = [(f"full-{i}", "7.2", "m5.2xlarge") for i in range(3)]
        await one_by_one(world, *full, ("half", "4", "m5.4xlarge"))
        widen(world, needs("m5.xlarge", "m5.2xlarge", "m5.4xlarge"))
        consolidate(world)
        await world.until(lambda: len(world.nodes()) == len(world.claims()) == 3, 900, "the half empty one takes a pod")
        at_rest = names(world.claims())
        assert types(world) == ["m5.2xlarge", "m5.2xlarge", "m5.4xlarge"]
        await world.sleep(3600)
        assert names(world.claims()) == at_rest
        assert world.cloud.sold() == 4, "nothing was bought for it"

    play(story)


def test_c53_a_hopeless_pod_holds_up_nobody():
    async def story(world: World):
        await one_by_one(world, ("gone", "3", "m5.2xlarge"), ("small", "1", "m5.4xlarge"))
        world.apply(deployment("lost", 1, nodeSelector={"x": "y"}))
        widen(world, needs("m5.large", "m5.2xlarge", "m5.4xlarge"))
        world.scale("gone", 0)
        consolidate(world)
        await world.until(lambda: types(world) == ["m5.large"], 600)
        await world.until_running(1, "small")

    play(story)


def test_c54_who_cannot_move_is_named():
    async def story(world: World):
        zones = world.cloud.zones()
        world.apply(node_class(), pool(requirements=needs("m5.xlarge")))
        world.apply(deployment("db", 1, nodeSelector={"topology.kubernetes.io/zone": zones[1]}))
        await world.until_running(1, "db")
        (db,) = world.running("db")
        widen(world, needs("m5.xlarge", zones=(zones[0],)))
        await world.until(lambda: world.events("DisruptionBlocked"))
        await world.sleep(120)
        told = {e["message"] for e in world.events("DisruptionBlocked")}
        assert any(f"default/{db['metadata']['name']}" in text for text in told), told
        assert names(world.running("db")) == names([db])

    play(story)


def test_c56_nodes_emptied_at_the_same_instant_all_wait_their_time_and_then_go_together():
    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="5m"), deployment(replicas=15))
        await world.until_running(15)
        await world.sleep(13 * 60)
        assert len(world.claims()) == 5
        world.scale("web", 0)
        emptied = await world.until(lambda: not world.running("web"))
        first = await world.until(lambda: len([c for c in world.claims() if "deletionTimestamp" not in c["metadata"]]) < 5, 600)
        assert first - emptied >= 300
        went = await world.until(lambda: all("deletionTimestamp" in c["metadata"] for c in world.claims()), 60)
        assert went - emptied <= 300 + 10 + 15 + 15

    play(story)


def test_c58_a_pod_that_comes_while_a_node_is_thought_over_keeps_it():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=1))
        await world.until_running(1)
        (node,) = names(world.nodes())
        world.scale("web", 0)
        emptied = await world.until(lambda: not world.find(POD))
        await world.sleep(emptied + 40 - world.seconds())  # found after half a minute, begun fifteen seconds later
        world.scale("web", 1)
        await world.until_running(1)
        await world.sleep(120)
        assert names(world.nodes()) == {node}
        assert not any(taints(n) - {"kubewright.sh/going-soon"} for n in world.nodes())
        assert world.cloud.sold() == 1

    play(story)


def test_c59_drift_does_not_ask_whether_there_is_consolidation():
    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="Never"), deployment(replicas=1))
        await world.until_running(1)
        world.scale("web", 0)
        await world.sleep(600)
        assert len(world.claims()) == 1
        relabel(world)
        await world.until_nothing_is_left()
        assert {e["message"] for e in world.events("DisruptionTerminating")} == {
            "Disrupting Node: Drifted",
            "Disrupting NodeClaim: Drifted",
        }

    play(story)


def test_c61_a_scheduled_budget_is_a_ceiling_in_its_window_only():
    closed = {"nodes": "0", "schedule": "0 * * * *", "duration": "20m"}  # the first twenty minutes of every hour

    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="Never", budgets=[closed]), deployment(replicas=1))
        await world.until_running(1)
        old = names(world.claims())
        await world.until(lambda: world.now().minute == 0, 3700)
        relabel(world)
        await world.sleep(60)
        assert status(world.claims()[0], "Drifted") == "True"
        (told,) = {e["message"] for e in world.events("DisruptionBlocked") if e["involvedObject"]["kind"] == "NodePool"}
        assert told == 'No allowed disruptions for disruption reason "Drifted" due to blocking budget'
        await world.until(lambda: not old & names(world.claims()), 3600)
        assert 20 <= world.now().minute <= 25
        await world.until_running(1)

    play(story)


def test_c64_nodes_that_are_not_ready_use_up_the_budget():
    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="Never", budgets=[{"nodes": "1"}]), deployment(replicas=9))
        await world.until_running(9)
        down = min(names(world.nodes()))
        old = names(world.claims())
        world.cluster.kill_node(down)
        await world.until(lambda: any(status(n, "Ready") == "Unknown" for n in world.nodes()))
        relabel(world)
        await world.sleep(240)
        assert old <= names(world.claims())
        assert is_clean(world)
        world.cluster.revive_node(down)
        await world.until(lambda: not old & names(world.claims()), 1200)

    play(story)


def test_c66_two_budgets_on_one_pod_stop_its_node_and_no_other():
    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="Never"))
        world.apply(deployment("gw", 1, "3"), deployment("web", 1, "3"))
        world.apply(budget("gw", maxUnavailable=1))
        second = budget("gw", maxUnavailable=1)
        world.apply({**second, "metadata": {**second["metadata"], "name": "gw-too"}})
        await world.until_running(1, "gw")
        await world.until_running(1, "web")
        (gw,), (web,) = world.running("gw"), world.running("web")
        for claim in names(world.claims()):
            world.delete(NODE_CLAIM, claim)
        await world.until(lambda: web["spec"]["nodeName"] not in names(world.nodes()), 300)
        await world.sleep(600)
        assert gw["spec"]["nodeName"] in names(world.nodes())
        assert names(world.running("gw")) == names([gw])
        assert any("violates multiple PDBs" in e["message"] for e in world.events("FailedDraining"))
        asked = [w for w in world.process.writes if w.startswith("evict Pod") and gw["metadata"]["name"] in w]
        assert len(asked) <= 80, "no hot loop"

    play(story)


def test_c19_a_pod_that_is_being_made_smaller_still_holds_its_old_share():
    def holds(world: World, pod: Item, cpu: str) -> None:
        share = {"cpu": cpu, "memory": "1Gi"}
        told = [{**s, "allocatedResources": share, "resources": {"requests": share}} for s in pod["status"]["containerStatuses"]]
        body = MergePatch({"status": {"containerStatuses": told}})
        world.store.patch(*POD, "default", pod["metadata"]["name"], body, "status")

    async def story(world: World):
        await one_by_one(world, ("java", "1", "m5.2xlarge"), ("web", "5", "m5.2xlarge"))
        (java,) = world.running("java")
        holds(world, java, "4")
        consolidate(world)
        await world.sleep(600)
        assert types(world) == ["m5.2xlarge"] * 2, "4 and 5 of 8 cpu"
        holds(world, java, "1")
        await world.until(lambda: types(world) == ["m5.2xlarge"], 900)

    play(story)
