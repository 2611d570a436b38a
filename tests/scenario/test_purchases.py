"""Machines that nobody uses are noticed, named, and not bought in a loop; fleets that work are left alone; caps hold."""

import json
import random
from collections.abc import Callable
from datetime import datetime

import pytest

from kubewright.lifecycle.unused import TALLY
from kubewright.metrics import Registry
from kubewright.settings import PurchaseSettings, Settings
from kubewright.sim.faults import Process, Side, at_every_write, kills
from kubewright.sim.scheduler.judge import Pass, Verdict
from tests.conftest import FOUND
from tests.scenario.test_buffers import SETTINGS as WITH_BUFFERS
from tests.scenario.test_buffers import buffer, ready_nodes, template
from tests.scenario.world import (
    NODE,
    NODE_POOL,
    Item,
    Setting,
    World,
    deployment,
    node_class,
    play,
    pool,
)

SAYS = "0/1 nodes are available: 1 node(s) had an agent that refuses."
HOUR_S = 3600
Refuses = Callable[[str], bool]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[Refuses], None]:
    """kube-scheduler refuses pods of some apps everywhere, by a rule that kubewright knows nothing of."""
    judge = Pass.judge
    rule: list[Refuses] = []

    def hidden(self: Pass, one) -> Verdict:
        if rule and rule[-1](one.labels.get("app", "")):
            return Verdict(None, SAYS)
        return judge(self, one)

    monkeypatch.setattr(Pass, "judge", hidden)
    return rule.append


def tally_of(world: World, name: str = "general") -> Item:
    found = [p for p in world.find(NODE_POOL) if p["metadata"]["name"] == name]
    return json.loads(found[0]["metadata"].get("annotations", {}).get(TALLY, "{}"))


def told(world: World, kind: str = "NodeClaim") -> list[str]:
    return [e["message"] for e in world.events("UnusedPurchase") if e["involvedObject"]["kind"] == kind]


def test_a_pod_that_kube_scheduler_never_binds_costs_ever_fewer_machines_and_others_none(refuse):
    refuse(lambda app: app == "web")
    registry = Registry()
    waits, sold = [], []

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=1, cpu="2"))
        await world.until(lambda: told(world), within_s=900)
        (first,) = told(world)
        assert first.startswith("Nobody uses general-")
        assert "bought at $0.1920/h for default/web-" in first
        assert f"and says: {SAYS}" in first
        assert "NodePool general buys for that workload again after 2026-01-01T00:1" in first
        await world.until(
            lambda: not world.claims(), within_s=600, what="the node that nobody uses goes, as nobody is expected there"
        )
        for i in range(2):
            world.apply(deployment(f"good-{i}", replicas=1, cpu="3"))
            asked = world.seconds()
            waits.append(await world.until_running(1, f"good-{i}") - asked)
            await world.sleep(HOUR_S - 200)
        spoken = [e["message"] for e in world.events("FailedScheduling") if e["involvedObject"]["name"].startswith("web-")]
        assert any("bought for it were not used; it is not bought for there until" in m for m in spoken)
        sold.append(world.cloud.sold() - 2)

    world = play(story, setting=Setting(registry=registry), limit_s=40 * HOUR_S)
    assert max(waits) < 120, "what works is bought for at once, held or not"
    assert 3 <= sold[0] <= 5, "in two hours: ten minutes, twenty, forty, … apart"
    assert registry.value("kubewright_unused_purchases_total", nodepool="general", reason="never") == len(told(world))


def test_a_pool_that_nothing_comes_to_pauses_whatever_the_workload(refuse):
    refuse(lambda app: app.startswith("job"))

    async def story(world: World):
        world.apply(node_class(), pool())
        for i in range(14):
            world.apply(deployment(f"job-{i}", replicas=1))
            await world.sleep(600)
            world.delete(("apps/v1", "Deployment"), f"job-{i}", "default")
        assert "NodePool general buys nothing until" in told(world, "NodePool")[-1]
        assert 3 <= world.cloud.sold() <= 8, "for fourteen workloads in a row"

    play(story)


def test_pods_that_go_elsewhere_are_named_and_nothing_is_held():
    async def story(world: World):
        world.apply(node_class(), pool(consolidate_after="20m"), deployment("filler", replicas=1, cpu="3"))
        await world.until_running(1, "filler")
        world.apply(deployment("web", replicas=1, cpu="2"))
        await world.until(lambda: len(world.claims()) == 2)
        world.scale("filler", 0)
        await world.until_running(1, "web", within_s=60)
        await world.until(lambda: told(world), within_s=900)
        assert tally_of(world)["points"] == 1
        assert "held" not in tally_of(world)
        asked = world.seconds()
        world.scale("web", 4)
        assert await world.until_running(4, "web") - asked < 200
        await world.until(lambda: tally_of(world) == {}, what="a machine that is used ends what was counted")

    world = play(story)
    (text,) = told(world)
    assert "default/web-" in text
    assert " went to node " in text


def test_a_taint_that_nobody_declared_is_named_and_forgiven_when_it_goes():
    """Case C75: another agent's taint stands for a while on nodes that join."""
    taint = {"key": "agent/not-ready", "effect": "NoSchedule"}

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=1))
        await world.until(world.nodes)
        (node,) = world.nodes()
        name = node["metadata"]["name"]
        world.patch(NODE, name, {"spec": {"taints": [*node["spec"].get("taints", ()), taint]}})
        await world.until(lambda: told(world), within_s=300)
        for other in world.nodes():
            kept = [t for t in other["spec"].get("taints", ()) if t["key"] != "agent/not-ready"]
            world.patch(NODE, other["metadata"]["name"], {"spec": {"taints": kept}})
        await world.until_running(1, "web")
        await world.until(lambda: tally_of(world) == {}, within_s=120)

    world = play(story)
    assert "the node has taint agent/not-ready:NoSchedule" in told(world)[0]
    assert "add it to spec.template.spec.startupTaints of the NodePool" in told(world)[0]


def test_what_was_learned_survives_a_restart(refuse):
    refuse(lambda app: app == "web")
    process = Process()

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=1))
        await world.until(lambda: tally_of(world), within_s=900)
        (held,) = tally_of(world)["held"].values()
        until = datetime.fromisoformat(held["until"])
        sold = world.cloud.sold()
        await world.until(lambda: not world.claims(), within_s=600)
        process._task.cancel()
        await world.until(lambda: process.lives == 2)
        await world.sleep((until - world.now()).total_seconds() - 60)
        assert world.cloud.sold() == sold, "nothing is bought while the workload is held"
        await world.until(lambda: world.cloud.sold() == sold + 1, within_s=180)
        assert len(told(world)) == 1

    play(story, process=process)


@pytest.mark.parametrize("side", Side)
def test_whoever_is_killed_while_it_is_noted_counts_once(refuse, side, record_property):
    refuse(lambda app: app == "web")

    def life(process: Process) -> None:
        async def story(world: World):
            world.apply(node_class(), pool(), deployment("web", replicas=1))
            await world.until(lambda: world.claims_that_are("Initialized"))
            await world.sleep(270)
            process.mark()
            await world.until(lambda: tally_of(world), within_s=120)
            await world.until(lambda: not world.claims(), within_s=300)
            assert tally_of(world)["points"] == 2
            assert [held["times"] for held in tally_of(world)["held"].values()] == [1]
            assert world.cloud.sold() == 1

        play(story, process=process)

    def while_it_is_noted(alive: Process):  # how the node then goes is told by other stories
        return [k for k in kills(alive, since_mark=True) if k.side is side][:8]

    outcomes = at_every_write(life, chosen=while_it_is_noted)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"a purchase in vain, killed {side} every write: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) > 5


def test_a_scheduler_that_comes_round_ends_it(refuse):
    refuse(lambda app: app == "web")

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=1))
        await world.until(lambda: tally_of(world), within_s=900)
        refuse(lambda app: False)
        await world.until_running(1, "web", within_s=1200)
        await world.until(lambda: tally_of(world) == {}, within_s=120)
        assert len(world.claims()) == 1

    play(story)


@pytest.mark.parametrize("seed", range(2))
def test_fleets_that_work_are_never_throttled(seed: int):
    chance = random.Random(seed)
    registry = Registry()

    async def story(world: World):
        world.apply(node_class(), pool(), pool("spare", weight=None) if False else pool("other"))
        apps = [f"app-{i}" for i in range(4)]
        for app in apps:
            world.apply(deployment(app, replicas=chance.randint(0, 5), cpu=chance.choice(("500m", "1", "3"))))
        for _ in range(25):
            await world.sleep(chance.choice((5, 30, 90, 300, 600)))
            world.scale(chance.choice(apps), chance.randint(0, 8))
            for name in ("general", "other"):
                found = tally_of(world, name)
                assert "until" not in found
                assert "held" not in found
        for app in apps:
            world.scale(app, 2)
            await world.until_running(2, app, within_s=300)

    play(story, seed=seed, setting=Setting(registry=registry))
    never = [registry.value("kubewright_unused_purchases_total", nodepool=p, reason="never") for p in ("general", "other")]
    assert not any(never)


def test_room_that_stands_ready_for_a_buffer_is_not_bought_in_vain():
    async def story(world: World):
        world.apply(node_class(), pool(), template(), buffer())
        await world.until(lambda: ready_nodes(world) == 1)
        await world.sleep(900)
        assert not world.events("UnusedPurchase")
        assert tally_of(world) == {}

    play(story, settings=WITH_BUFFERS)


def test_the_cap_on_spending_holds_and_lets_go():
    settings = Settings(cluster_name="sandbox", purchases=PurchaseSettings(spend_cap_usd_per_hour=0.5))
    most = []

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=20, cpu="3"))
        for _ in range(60):
            await world.sleep(10)
            most.append(world.cloud.ec2.usd_per_hour())
        assert len(world.running("web")) == 2
        (told_pool, *_) = [e["message"] for e in world.events("SpendingCapped")]
        assert "over the cap of $0.50/h (--spend-cap)" in told_pool
        spoken = [e["message"] for e in world.events("FailedScheduling")]
        assert any("not bought now: it would cost" in m for m in spoken)
        world.scale("web", 2)
        await world.sleep(300)
        assert len(world.running("web")) == 2

    play(story, settings=settings)
    assert max(most) <= 0.5


def test_the_cap_on_purchases_holds_over_a_restart():
    settings = Settings(cluster_name="sandbox", purchases=PurchaseSettings(per_hour=2))
    process = Process()
    bought = []

    async def story(world: World):
        world.apply(node_class(), pool(), deployment("web", replicas=4, cpu="3"))
        await world.until(lambda: world.cloud.sold() == 2, within_s=60)
        process._task.cancel()
        await world.until(lambda: process.lives == 2)
        for _ in range(68):
            await world.sleep(60)
            bought.append(world.cloud.sold())
        assert bought[-1] == 4

    play(story, process=process, settings=settings)
    assert all(later - earlier <= 2 for earlier, later in zip(bought, bought[58:], strict=False)), "in any hour"
    assert bought[50] == 2
