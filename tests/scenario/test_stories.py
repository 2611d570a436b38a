"""The operator's life with a cluster, told on virtual time."""

from kubewright.sim.faults import Process
from tests.scenario.world import (
    NODE,
    NODE_CLAIM,
    SECOND,
    World,
    budget,
    deployment,
    node_class,
    play,
    pool,
    reason,
    status,
    taints,
    when,
)

# each machine has 4 cpu: three pods of 1 cpu and what the system keeps


async def a_cluster(world: World, replicas: int = 3, **of_pool):
    """A pool, and a Deployment that runs on it."""
    world.apply(node_class(), pool(**of_pool), deployment(replicas=replicas))
    await world.until_running(replicas)


def test_pods_that_pend_get_machines_that_join_and_take_them():
    async def story(world: World):
        world.apply(node_class(), pool(), deployment(replicas=7))
        pending = await world.until(lambda: len(world.find(("v1", "Pod"))) == 7)
        bought = await world.until(world.claims)
        assert bought - pending <= 11, "the batch closes a second after the last pod, ten after the first"
        ready = await world.until_running(7)
        assert len(world.claims()) == 3
        assert ready - bought < 65
        for claim in world.claims():
            for kind in ("Launched", "Registered", "Initialized", "Ready"):
                assert status(claim, kind) == "True"
            moments = [
                when(c["lastTransitionTime"])
                for kind in ("Launched", "Registered", "Initialized")
                for c in claim["status"]["conditions"]
                if c["type"] == kind
            ]
            assert moments == sorted(moments)
        assert {p["spec"]["nodeName"] for p in world.running("web")} <= {n["metadata"]["name"] for n in world.nodes()}
        assert world.events("Nominated")
        assert not any(taints(n) for n in world.nodes())

    play(story)


def test_empty_machines_go_after_consolidate_after_and_nothing_is_left():
    async def story(world: World):
        await a_cluster(world, 6)
        world.scale("web", 0)
        emptied = await world.until(lambda: not world.running("web"))
        going = await world.until(lambda: [c for c in world.claims() if "deletionTimestamp" in c["metadata"]])
        assert going - emptied >= 30, "not before consolidateAfter"
        assert going - emptied <= 30 + 10 + 15 + 5, "a poll and second thoughts later at the latest"
        await world.until_nothing_is_left()
        assert len(world.events("DisruptionTerminating")) == 4

    play(story)


def test_budgets_hold_while_empty_machines_go():
    async def story(world: World):
        await a_cluster(world, 12, budgets=[{"nodes": "1"}])
        assert len(world.nodes()) == 4
        world.scale("web", 0)
        most = 0

        def done():
            nonlocal most
            down = [n for n in world.nodes() if "deletionTimestamp" in n["metadata"] or "karpenter.sh/disrupted" in taints(n)]
            machines = {c["status"]["providerID"] for c in world.claims() if status(c, "InstanceTerminating") != "True"}
            most = max(most, sum(1 for n in down if n["spec"]["providerID"] in machines))
            return world.is_bare()

        await world.until(done, 1200)
        assert most == 1

    play(story)


def test_a_pool_that_never_consolidates_keeps_its_empty_machines():
    async def story(world: World):
        await a_cluster(world, consolidate_after="Never")
        world.scale("web", 0)
        await world.sleep(1800)
        assert len(world.nodes()) == 1

    play(story)


def test_what_the_cloud_has_run_out_of_is_bought_elsewhere():
    async def story(world: World):
        world.cloud.sell_out("m5.xlarge")
        world.cloud.sell_out("m6i.xlarge", zone=world.cloud.zones()[0])
        await a_cluster(world)
        (node,) = world.nodes()
        labels = node["metadata"]["labels"]
        assert labels["node.kubernetes.io/instance-type"] == "m6i.xlarge"
        assert labels["topology.kubernetes.io/zone"] != world.cloud.zones()[0]
        assert len(world.cloud.alive()) == 1

    play(story)


def test_a_machine_that_never_joins_is_given_up_after_fifteen_minutes_and_replaced():
    async def story(world: World):
        world.cloud.joins = False
        world.apply(node_class(), pool(), deployment())
        await world.until(lambda: world.claims_that_are("Launched"))
        (first,) = world.claims()
        launched = world.seconds()
        await world.sleep(60)  # it runs, and its kubelet is silent
        world.cloud.joins = True
        gone = await world.until(lambda: first["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}, 1200)
        assert 890 <= gone - launched <= 960
        await world.until_running(3)
        assert len(world.claims()) == len(world.cloud.alive()) == 1

    play(story)


def test_a_drain_waits_for_the_budget_of_its_pods_and_goes_on_when_it_opens():
    async def story(world: World):
        world.apply(budget(maxUnavailable=0))
        await a_cluster(world)
        (claim,) = world.claims()
        world.delete(NODE_CLAIM, claim["metadata"]["name"])
        await world.sleep(300)
        assert len([p for p in world.running("web") if p["spec"]["nodeName"] == claim["status"]["nodeName"]]) == 3
        (old,) = [n for n in world.nodes() if n["metadata"]["name"] == claim["status"]["nodeName"]]
        assert "karpenter.sh/disrupted" in taints(old)
        assert world.events("FailedDraining")
        world.patch(("policy/v1", "PodDisruptionBudget"), "web", {"spec": {"maxUnavailable": 1}}, "default")
        await world.until(lambda: claim["status"]["nodeName"] not in {n["metadata"]["name"] for n in world.nodes()})
        await world.until_running(3)
        await world.until(lambda: len(world.cloud.alive()) == len(world.claims()) == 1)

    play(story)


def test_pods_of_a_machine_that_goes_find_another_bought_for_them_in_time():
    async def story(world: World):
        world.apply(budget(minAvailable=2))
        await a_cluster(world)
        (claim,) = world.claims()
        least = 3

        def done():
            nonlocal least
            least = min(least, len(world.running("web")))
            return claim["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}

        world.delete(NODE_CLAIM, claim["metadata"]["name"])
        await world.until(done, 600)
        await world.until_running(3)
        assert least >= 2, "the budget held"

    play(story)


def test_the_termination_grace_period_ends_what_pods_would_not():
    async def story(world: World):
        world.apply(
            node_class(),
            pool(terminationGracePeriod="5m"),
            deployment(annotations={"karpenter.sh/do-not-disrupt": "true"}, terminationGracePeriodSeconds=30),
        )
        await world.until_running(3)
        (claim,) = world.claims()
        world.delete(NODE_CLAIM, claim["metadata"]["name"])
        start = world.seconds()
        await world.sleep(200)
        (held,) = [c for c in world.claims() if c["metadata"]["name"] == claim["metadata"]["name"]]
        deadline = when(held["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"])
        assert deadline == when(held["metadata"]["deletionTimestamp"]) + 300 * SECOND
        gone = await world.until(lambda: claim["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}, 600)
        assert 270 <= gone - start <= 400
        assert world.events("Disrupted")
        await world.until_running(3)

    play(story)


def test_a_node_that_a_person_deletes_is_drained_and_its_machine_ended():
    async def story(world: World):
        await a_cluster(world)
        (node,) = world.nodes()
        world.delete(NODE, node["metadata"]["name"])
        await world.until(lambda: node["metadata"]["name"] not in {n["metadata"]["name"] for n in world.nodes()})
        await world.until_running(3)
        await world.until(lambda: len(world.cloud.alive()) == len(world.claims()) == 1)
        assert node["spec"]["providerID"] not in world.cloud.alive()

    play(story)


def test_a_machine_grows_old_and_is_replaced():
    async def story(world: World):
        world.apply(node_class(), pool(expireAfter="1h"), deployment())
        await world.until_running(3)
        (old,) = world.claims()
        gone = await world.until(lambda: old["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}, 4200)
        assert gone >= 3600
        await world.until_running(3)

    play(story)


def test_a_machine_that_vanishes_takes_its_claim_along_and_its_pods_come_back():
    async def story(world: World):
        await a_cluster(world)
        (old,) = world.claims()
        world.cloud.lose(old["status"]["providerID"])
        await world.until(lambda: old["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}, 900)
        await world.until_running(3)
        assert len(world.claims()) == len(world.cloud.alive()) == 1

    play(story)


def test_a_spot_machine_that_is_called_back_is_replaced_before_it_goes():
    async def story(world: World):
        spot = [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge", "m6i.xlarge"]},
        ]
        await a_cluster(world, requirements=spot)
        (old,) = world.claims()
        world.cloud.call_back(old["status"]["providerID"])
        start = world.seconds()
        await world.until(lambda: old["metadata"]["name"] not in {c["metadata"]["name"] for c in world.claims()}, 300)
        ready = await world.until_running(3)
        assert ready - start < 120
        assert len(world.claims()) == len(world.cloud.alive()) == 1

    play(story)


def test_two_pools_by_weight_and_a_pool_that_is_not_ready():
    async def story(world: World):
        broken = pool("broken")
        broken["spec"]["weight"] = 100
        broken["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "missing"
        world.apply(broken)
        await a_cluster(world)
        (claim,) = world.claims()
        assert claim["metadata"]["labels"]["karpenter.sh/nodepool"] == "general"
        pools = {p["metadata"]["name"]: p for p in world.find(("karpenter.sh/v1", "NodePool"))}
        assert reason(pools["broken"], "NodeClassReady") == "NodeClassNotFound"
        assert status(pools["general"], "Ready") == "True"
        await world.sleep(10)
        pools = {p["metadata"]["name"]: p for p in world.find(("karpenter.sh/v1", "NodePool"))}
        assert pools["general"]["status"]["nodes"] == 1
        assert pools["general"]["status"]["resources"]["cpu"] == "4"

    play(story)


def test_a_launch_that_drags_on_does_not_hold_up_the_others():
    async def story(world: World):
        await a_cluster(world)
        for _ in range(60):
            world.cloud.ec2.fail_next("CreateFleet", "InternalError", status=500)
        world.apply(deployment("batch", replicas=3))
        await world.until(lambda: len(world.claims()) == 2)
        slow = next(c["metadata"]["name"] for c in world.claims() if status(c, "Launched") != "True")
        await world.sleep(20)
        assert status(next(c for c in world.claims() if c["metadata"]["name"] == slow), "Launched") == "Unknown"
        world.apply(deployment("late", replicas=3))
        await world.until(lambda: len(world.claims()) == 3, 60, "a claim for the pods that came later")
        await world.until_running(3, "batch", 900)
        await world.until_running(3, "late", 900)
        await world.sleep(120)
        assert len(world.claims()) == len(world.cloud.alive()) == world.cloud.sold() == 3

    play(story)


def test_the_same_seed_tells_the_same_story():
    async def story(world: World):
        await a_cluster(world, 7)
        world.scale("web", 2)
        await world.sleep(300)

    first, second = Process(), Process()
    play(story, process=first, seed=7)
    play(story, process=second, seed=7)
    assert first.writes == second.writes
