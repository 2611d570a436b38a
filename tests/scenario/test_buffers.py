"""CapacityBuffers, told on virtual time: room stands ready, real pods take it at once, and it is filled up again."""

import pytest

from kubewright.metrics import Registry
from kubewright.settings import FeatureGates, Settings
from kubewright.sim.faults import Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import EVENT, POD, Item, Setting, World, deployment, node_class, play, pool, reason, status

SETTINGS = Settings(cluster_name="sandbox", feature_gates=FeatureGates(capacity_buffer=True))
BUFFER = ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
IN_DEFAULT = {"namespace": "default"}

# each machine has 4 cpu: three pods of 1 cpu and what the system keeps


def template(name: str = "shape", cpu: str = "1") -> Item:
    spec = deployment(name, cpu=cpu)["spec"]["template"]
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name, **IN_DEFAULT}, "template": spec}


def buffer(name: str = "room", **spec) -> Item:
    wanted = spec or {"podTemplateRef": {"name": "shape"}, "replicas": 3}
    return {"apiVersion": BUFFER[0], "kind": BUFFER[1], "metadata": {"name": name, **IN_DEFAULT}, "spec": wanted}


def the(world: World) -> Item:
    (found,) = world.find(BUFFER)
    return found


def ready_nodes(world: World) -> int:
    return len(world.claims_that_are("Initialized"))


def is_provisioned(world: World) -> bool:
    return status(the(world), "Provisioning") == "True"


def test_room_is_bought_stays_and_goes_with_its_buffer():
    async def story(world: World):
        world.apply(node_class(), pool(), template(), buffer())
        await world.until(lambda: status(the(world), "ReadyForProvisioning") == "True", 30)
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 1)
        assert the(world)["status"]["replicas"] == 3
        await world.sleep(900)
        assert ready_nodes(world) == 1, "an empty node that is somebody's room is kept"
        assert world.cloud.sold() == 1, "and is not bought again and again"
        assert world.find(POD) == []
        assert world.events("FailedScheduling") == world.events("Nominated") == []
        assert [e for e in world.find(EVENT) if "capacity-buffer" in e["message"]] == [], "nobody misses pods that never come"
        world.delete(BUFFER, "room", "default")
        await world.until_nothing_is_left()

    play(story, settings=SETTINGS)


def test_real_pods_take_the_room_without_waiting_and_it_is_filled_up_again():
    async def story(world: World):
        world.apply(node_class(), pool(), template(), buffer())
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 1)
        world.apply(deployment(replicas=3))
        asked = world.seconds()
        running = await world.until_running(3)
        assert running - asked < 10, "no machine had to be waited for"
        await world.until(lambda: ready_nodes(world) == 2, 120)
        await world.until(lambda: is_provisioned(world), 60)
        assert world.cloud.sold() == 2

    play(story, settings=SETTINGS)


def test_a_share_of_a_workload_follows_it():
    async def story(world: World):
        ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
        world.apply(node_class(), pool(), deployment(replicas=3), buffer(scalableRef=ref, percentage=50))
        await world.until_running(3)
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 2)
        assert the(world)["status"]["replicas"] == 2
        world.scale("web", 12)
        await world.until_running(12)
        await world.until(lambda: the(world)["status"]["replicas"] == 6 and is_provisioned(world))
        await world.until(lambda: ready_nodes(world) == 6, 120)

    play(story, settings=SETTINGS)


def test_what_it_points_at_may_come_later_and_the_reason_is_said_meanwhile():
    async def story(world: World):
        world.apply(node_class(), pool(), buffer())
        await world.until(lambda: reason(the(world), "ReadyForProvisioning") == "PodTemplateNotFound", 30)
        assert reason(the(world), "Provisioning") == "NotReadyForProvisioning"
        world.apply(template())
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 1)

    play(story, settings=SETTINGS)


def test_room_that_no_machine_can_give_is_said_and_stops_no_real_pod():
    registry = Registry()

    async def story(world: World):
        world.apply(node_class(), pool(), template(cpu="99"), buffer(), deployment(replicas=3))
        await world.until_running(3)
        await world.until(lambda: reason(the(world), "Provisioning") == "RequiresNewCapacity", 60)
        (said,) = [c["message"] for c in the(world)["status"]["conditions"] if c["type"] == "Provisioning"]
        assert said == "0/3 virtual pods required new capacity, 3 failed"
        assert ready_nodes(world) == 1
        assert registry.value("karpenter_scheduler_unschedulable_pods_count", controller="provisioner") == 0, "they are no pods"

    play(story, settings=SETTINGS, setting=Setting(registry=registry))


def test_consolidation_does_not_take_room_that_is_kept_and_comes_to_rest():
    """Two machines hold 3 pods and room for 3; one could hold the pods, and then the room would have to be bought again."""

    async def story(world: World):
        world.apply(node_class(), pool(), template(), buffer(), deployment(replicas=6))
        await world.until_running(6)
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 3)
        world.scale("web", 3)
        await world.until(lambda: ready_nodes(world) == 2 and is_provisioned(world) and len(world.running("web")) == 3, 1800)
        sold = world.cloud.sold()
        await world.sleep(3600)
        assert (ready_nodes(world), world.cloud.sold(), sold) == (2, 3, 3)
        assert is_provisioned(world)

    play(story, settings=SETTINGS)


@pytest.mark.parametrize("left", [4, 5])
def test_nodes_that_pods_and_room_need_together_stay(left):
    async def story(world: World):
        world.apply(node_class(), pool(), template(), buffer(), deployment(replicas=6))
        await world.until_running(6)
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 3)
        world.scale("web", left)
        await world.sleep(3600)
        assert (ready_nodes(world), world.cloud.sold()) == (3, 3), "nothing is removed to be bought again"
        assert not world.events("DisruptionTerminating")

    play(story, settings=SETTINGS)


def life(process: Process) -> None:
    async def story(world: World) -> None:
        world.apply(node_class(), pool(), template(), buffer())
        await world.until(lambda: is_provisioned(world) and ready_nodes(world) == 1, 900)
        await world.sleep(120)
        assert world.cloud.sold() == 1, "bought once, and kept"
        world.delete(BUFFER, "room", "default")
        await world.until_nothing_is_left(1800)

    play(story, process=process, settings=SETTINGS)


@pytest.mark.parametrize("side", Side)
def test_an_operator_killed_at_any_write_is_finished_by_the_next(side, record_property):
    def of_interest(alive: Process):  # what the writes to pools and nodes do is told by the other stories
        passed = alive.writes if side is Side.BEFORE else alive.landed
        return [k for k in kills(alive) if k.side is side and ("Claim" in passed[k.write - 1] or "Buffer" in passed[k.write - 1])]

    outcomes = at_every_write(life, chosen=of_interest)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"room kept though killed {side} a write: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) >= 8
