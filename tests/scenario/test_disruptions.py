"""Commands under way: marked, bought for, waited for, carried out; or taken back without a trace."""

import json

import pytest

from kubewright.metrics import Registry
from kubewright.settings import DisruptionSettings, Settings
from tests.scenario.world import (
    NODE,
    NODE_POOL,
    ORDER,
    POD,
    Setting,
    World,
    budget,
    deployment,
    is_clean,
    names,
    node_class,
    ordered,
    play,
    pool,
    reason,
    relabel,
    status,
)


async def a_cluster(world: World, replicas: int = 9, *, guarded: bool = False, **of_pool) -> None:
    world.apply(node_class(), pool(**of_pool), deployment(replicas=replicas))
    if guarded:
        world.apply(budget(maxUnavailable=1))
    await world.until_running(replicas)


def test_drifted_machines_are_replaced_one_after_the_other_within_the_budget():
    async def story(world: World):
        await a_cluster(world, 9, guarded=True, budgets=[{"nodes": "1"}])
        old = names(world.claims())
        assert len(old) == 3
        relabel(world)
        most, least = 0, 9

        def done() -> bool:
            nonlocal most, least
            going = [c for c in world.claims() if c["metadata"]["name"] in old]
            down = [
                c
                for c in going
                if ("deletionTimestamp" in c["metadata"] or ORDER in c["metadata"].get("annotations", {}))
                and status(c, "InstanceTerminating") != "True"
            ]
            most, least = max(most, len(down)), min(least, len(world.running("web")))
            return not going

        await world.until(done, 1800)
        await world.until_running(9)
        assert most == 1, "the NodePool's budget"
        assert least >= 8, "the pods' budget"
        assert world.cloud.sold() == 6, "one new machine for each"
        await world.until(lambda: is_clean(world) and len(world.cloud.alive()) == 3)
        for claim in world.claims():
            assert claim["metadata"]["labels"]["team"] == "blue"
            assert "kubewright.sh/replaces" in claim["metadata"]["annotations"]

    play(story)


def test_the_replacement_stands_ready_before_the_first_pod_is_asked_to_leave():
    async def story(world: World):
        await a_cluster(world, 3)
        (old,) = world.claims()
        relabel(world)
        await world.until(lambda: ordered(world))
        (name,) = ordered(world)
        assert name == old["metadata"]["name"]
        held = next(c for c in world.claims() if c["metadata"]["name"] == name)
        order = json.loads(held["metadata"]["annotations"][ORDER])
        assert (order["reason"], order["claims"]) == ("Drifted", [name])
        assert reason(held, "DisruptionReason") == "Drifted"
        least = 3

        def is_going() -> bool:
            nonlocal least
            if any("deletionTimestamp" in c["metadata"] for c in world.claims()):
                return True
            least = min(least, len(world.running("web")))
            return False

        await world.until(is_going)
        assert least == 3
        (new,) = [c for c in world.claims() if c["metadata"]["name"] != old["metadata"]["name"]]
        assert new["metadata"]["name"] in order["replacements"]
        assert status(new, "Initialized") == "True"
        await world.until(lambda: len(world.claims()) == 1)
        assert {e["involvedObject"]["name"] for e in world.events("DisruptionLaunching")} == {new["metadata"]["name"]}
        assert world.events("DisruptionWaitingReadiness")
        assert {e["message"] for e in world.events("DisruptionTerminating")} == {
            "Disrupting Node: Drifted",
            "Disrupting NodeClaim: Drifted",
        }

    play(story)


def test_a_replacement_that_never_joins_is_taken_back_and_the_pool_stops_drifting():
    registry = Registry()

    async def story(world: World):
        await a_cluster(world, 3)
        (old,) = world.claims()
        world.cloud.joins = False
        relabel(world)
        await world.until(lambda: ordered(world))
        await world.until(lambda: is_clean(world) and len(world.claims()) == 1, 1200, "taken back after ten minutes")
        assert names(world.claims()) == {old["metadata"]["name"]}
        await world.until(lambda: len(world.cloud.alive()) == 1, 60, "the machine that did not join goes at once")
        assert len(world.running("web")) == 3
        assert status(world.claims()[0], "DisruptionReason") == ""
        assert json.loads(world.claims()[0]["metadata"]["annotations"]["kubewright.sh/disruption-retry"])["failures"] == 1
        world.cloud.joins = True
        await world.until(lambda: old["metadata"]["name"] not in names(world.claims()), 1200, "tried again later")
        await world.until_running(3)
        assert world.cloud.sold() == 3

    play(story, setting=Setting(registry=registry))
    labelled = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
    assert registry.value("karpenter_voluntary_disruption_queue_failures_total", **labelled) == 1


def test_a_pool_whose_machines_do_not_join_stops_drifting_and_tries_again_with_one():
    async def story(world: World):
        await a_cluster(world, 9, consolidate_after="Never")
        old = names(world.claims())
        world.cloud.joins = False
        relabel(world)
        await world.until(lambda: ordered(world))
        await world.until(lambda: is_clean(world) and len(world.claims()) == 3, 1200, "all three are taken back")
        (found,) = world.find(NODE_POOL)
        assert status(found, "NodeRegistrationHealthy") == "False"
        stopped = world.cloud.sold()
        await world.sleep(45 * 60)
        assert world.cloud.sold() == stopped == 6
        assert any("did not join" in e["message"] for e in world.events("DisruptionBlocked"))
        world.cloud.joins = True
        await world.until(lambda: ordered(world), 3600)
        assert len(ordered(world)) == 1, "one first"
        await world.until(lambda: not old & names(world.claims()), 3600)
        await world.until_running(9)
        assert world.cloud.sold() == 9

    play(story)


def test_what_cannot_be_bought_leaves_everything_as_it_was():
    async def story(world: World):
        await a_cluster(world, 3)
        (old,) = world.claims()
        for kind in ("m5.xlarge", "m6i.xlarge"):
            world.cloud.sell_out(kind)
        relabel(world)
        await world.until(lambda: status(world.claims()[0], "Drifted") == "True")
        await world.sleep(300)
        assert old["metadata"]["name"] in names(world.claims())
        assert len(world.running("web")) == 3
        assert len(world.cloud.alive()) == 1
        await world.until(lambda: is_clean(world) and len(world.claims()) == 1, 120)

    play(story)


PIN, ICE = "karpenter.sh/do-not-disrupt", "kubewright.sh/freeze"


@pytest.mark.parametrize(("kind", "annotation"), [(POD, PIN), (POD, ICE), (NODE, PIN)])
def test_what_is_pinned_or_frozen_after_the_decision_is_not_disturbed(kind, annotation):
    async def story(world: World):
        await a_cluster(world, 3)
        (node,), pods = world.nodes(), world.running("web")
        relabel(world)
        await world.until(lambda: ordered(world))
        held, namespace = (pods[0], "default") if kind is POD else (node, "")
        world.patch(kind, held["metadata"]["name"], {"metadata": {"annotations": {annotation: "true"}}}, namespace)
        await world.until(lambda: is_clean(world), 900)
        assert names(pods) == names(world.running("web"))
        await world.until(lambda: len(world.cloud.alive()) == 1, 120, "what was bought in vain goes")

    play(story)


def test_a_frozen_pool_takes_back_what_is_under_way_and_thaws():
    async def story(world: World):
        await a_cluster(world, 3)
        (old,) = world.claims()
        relabel(world)
        await world.until(lambda: ordered(world))
        world.patch(NODE_POOL, "general", {"metadata": {"annotations": {"kubewright.sh/freeze": "true"}}})
        await world.until(lambda: is_clean(world) and len(world.cloud.alive()) == 1)
        await world.sleep(600)
        assert names(world.claims()) == {old["metadata"]["name"]}
        world.patch(NODE_POOL, "general", {"metadata": {"annotations": {"kubewright.sh/freeze": None}}})
        await world.until(lambda: old["metadata"]["name"] not in names(world.claims()), 600)
        await world.until_running(3)

    play(story)


def test_a_frozen_cluster_only_replaces_what_must_go():
    frozen = Settings(cluster_name="sandbox", disruption=DisruptionSettings(frozen=True))

    async def story(world: World):
        await a_cluster(world, 3, expireAfter="1h")
        (old,) = world.claims()
        relabel(world)
        await world.sleep(1800)
        assert names(world.claims()) == {old["metadata"]["name"]}
        assert is_clean(world)
        await world.until(lambda: old["metadata"]["name"] not in names(world.claims()), 3600, "age asks nobody")
        await world.until_running(3)
        world.scale("web", 0)
        await world.sleep(600)
        assert len(world.claims()) == 1

    play(story, settings=frozen)


def test_empty_machines_of_a_second_look_do_not_wait_for_those_of_the_first():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=3), deployment("api", replicas=3, cpu="1.1"))
        await world.until_running(3)
        await world.until_running(3, "api")
        assert len(world.claims()) == 2
        world.scale("web", 0)
        await world.sleep(10)
        world.scale("api", 0)
        gone: list[float] = []

        def done() -> bool:
            going = [c for c in world.claims() if "deletionTimestamp" in c["metadata"]]
            if going or len(world.claims()) < 2:
                gone.append(world.seconds())
            return not world.claims()

        start = world.seconds()
        await world.until(done, 300)
        assert gone[0] - start < 45
        assert gone[-1] - start < 80, "both were thought over at the same time"

    play(story)


def test_a_pool_at_its_limit_still_drifts():
    async def story(world: World):
        limited = pool(budgets=[{"nodes": "1"}])
        limited["spec"]["limits"] = {"nodes": "3"}
        world.apply(node_class(), limited, deployment(replicas=9))
        await world.until_running(9)
        old = names(world.claims())
        relabel(world)
        most = 0

        def done() -> bool:
            nonlocal most
            most = max(most, sum(1 for c in world.claims() if status(c, "InstanceTerminating") != "True"))
            return not old & names(world.claims())

        await world.until(done, 1800)
        await world.until_running(9)
        assert most == 4, "one more than the limit while one goes"

    play(story)


def test_why_a_node_stays_is_a_condition_of_its_claim():
    disruptable = "kubewright.sh/Disruptable"

    def told(world: World) -> str:
        (claim,) = world.claims()
        return next((c["message"] for c in claim["status"]["conditions"] if c["type"] == disruptable), "")

    async def story(world: World):
        world.apply(budget(minAvailable=3))
        await a_cluster(world, 3)
        await world.until(lambda: "PDB=default/web" in told(world), 120)
        assert status(world.claims()[0], disruptable) == "False"
        assert reason(world.claims()[0], disruptable).startswith("Pdb")
        world.patch(NODE_POOL, "general", {"metadata": {"annotations": {"kubewright.sh/freeze": "true"}}})
        await world.until(lambda: "frozen" in told(world) and world.claims_that_are("Consolidatable"), 60)
        versions = {c["metadata"]["resourceVersion"] for c in world.claims()}
        await world.sleep(900)
        assert versions == {c["metadata"]["resourceVersion"] for c in world.claims()}, "nothing is written where nothing changed"
        world.patch(NODE_POOL, "general", {"metadata": {"annotations": {"kubewright.sh/freeze": None}}})
        world.delete(("policy/v1", "PodDisruptionBudget"), "web", "default")
        await world.until(lambda: "frozen" not in told(world) and "PDB" not in told(world), 60)

    play(story)


def test_the_numbers_of_a_disruption():
    registry = Registry()
    exposed: list[str] = []

    async def story(world: World):
        await a_cluster(world, 3)
        relabel(world)
        (old,) = names(world.claims())
        await world.until(lambda: old not in names(world.claims()), 600)
        await world.until_running(3)
        await world.sleep(60)
        exposed.append(registry.expose().decode())

    play(story, setting=Setting(registry=registry))
    decided = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
    assert registry.value("karpenter_voluntary_disruption_decisions_total", **decided) == 1
    assert registry.value("karpenter_voluntary_disruption_decisions_by_nodepool_total", nodepool="general", **decided) == 1
    assert (
        registry.value("karpenter_nodeclaims_created_total", reason="drifted", nodepool="general", min_values_relaxed="false")
        == 1
    )
    ended = {"reason": "drifted", "nodepool": "general", "capacity_type": "on-demand", "consolidation_policy": ""}
    assert registry.value("karpenter_nodeclaims_disrupted_total", termination_mode="graceful", **ended) == 1
    assert registry.value("karpenter_pods_disruption_initiated_total", termination_mode="graceful", **ended) == 3
    assert registry.value("karpenter_pods_drained_total", reason="Drifted") == 3
    assert registry.value("karpenter_voluntary_disruption_eligible_nodes", reason="drifted") == 0
    for kind in ("Drifted", "Empty", "Underutilized"):
        assert registry.value("karpenter_nodepools_allowed_disruptions", nodepool="general", reason=kind) == 1
    assert registry.value("karpenter_voluntary_disruption_consolidation_timeouts_total", consolidation_type="single") == 0
    looked = 'voluntary_disruption_decision_evaluation_duration_seconds_count{consolidation_type="",reason="drifted"} 1'
    assert looked in exposed[0]
