"""Reserved capacity, told on virtual time: used up at once, never promised twice, whichever machine is launched first."""

from typing import Any

import pytest

from kubewright.sim.faults import Process, Side, at_every_write, kills
from tests.conftest import FOUND
from tests.scenario.world import Item, World, deployment, node_class, play, pool

CAPACITY_TYPE = "karpenter.sh/capacity-type"
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"

# each m5.xlarge has 4 cpu: three pods of 1 cpu and what the system keeps


def reserve(world: World, *counts: int) -> list[str]:
    """One reservation of m5.xlarge in each zone."""
    account = world.cloud.ec2.account
    zones = world.cloud.zones()[: len(counts)]
    return [account.reserve("m5.xlarge", zone, count) for zone, count in zip(zones, counts, strict=True)]


def reserving_class(ids: list[str]) -> Item:
    made = node_class()
    made["spec"]["capacityReservationSelectorTerms"] = [{"id": name} for name in ids]
    return made


def pool_of(name: str, *capacity_types: str, weight: int | None = None, **more: Any) -> Item:
    made = pool(name, **more)
    made["spec"]["template"]["spec"]["requirements"][0]["values"] = list(capacity_types)
    if weight is not None:
        made["spec"]["weight"] = weight
    return made


def by_capacity_type(world: World) -> dict[str, int]:
    found = [n["metadata"]["labels"][CAPACITY_TYPE] for n in world.nodes()]
    return {kind: found.count(kind) for kind in sorted(set(found))}


def test_c84_three_reservations_are_used_up_in_one_pass_and_the_rest_is_bought_beside():
    async def story(world: World):
        ids = reserve(world, 1, 1, 1)
        pools = pool_of("res", "reserved", weight=100), pool_of("od", "on-demand", weight=99)
        world.apply(reserving_class(ids), *pools)
        await world.sleep(60)
        world.apply(deployment(replicas=15))
        bought = await world.until(lambda: len(world.claims()) == 5, 60)
        assert bought <= 90, "all of it in the first pass"
        await world.until_running(15)
        assert by_capacity_type(world) == {"on-demand": 2, "reserved": 3}
        used = sorted(n["metadata"]["labels"].get(RESERVATION, "") for n in world.nodes())
        assert used == ["", "", *sorted(ids)]

    play(story)


def test_two_pools_that_share_a_reservation_never_overdraw_it():
    async def story(world: World):
        ids = reserve(world, 2)
        tainted = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        other = pool_of("other", "reserved", "on-demand", taints=tainted)
        world.apply(reserving_class(ids), pool_of("general", "reserved", "on-demand"), other)
        tolerant = deployment(
            "guest",
            replicas=6,
            tolerations=[{"key": "team", "operator": "Exists"}],
            nodeSelector={"karpenter.sh/nodepool": "other"},
        )
        await world.sleep(60)
        world.apply(deployment(replicas=6), tolerant)
        await world.until(lambda: len(world.running()) == 12, 600)
        assert by_capacity_type(world) == {"on-demand": 2, "reserved": 2}
        assert not world.events("InsufficientCapacityError")

    play(story)


def test_a_reserved_machine_that_ends_makes_room_for_the_next():
    async def story(world: World):
        ids = reserve(world, 1)
        world.apply(reserving_class(ids), pool_of("general", "reserved", "on-demand"))
        await world.sleep(60)
        world.apply(deployment(replicas=3))
        await world.until_running(3)
        assert by_capacity_type(world) == {"reserved": 1}
        world.scale("web", 0)
        await world.until_nothing_is_left()
        world.scale("web", 3)
        await world.until_running(3)
        assert by_capacity_type(world) == {"reserved": 1}

    play(story)


def life(process: Process) -> None:
    async def story(world: World) -> None:
        ids = reserve(world, 1, 1)
        world.apply(reserving_class(ids), pool_of("general", "reserved", "on-demand"), deployment(replicas=9))
        await world.until_running(9, within_s=900)
        await world.sleep(120)
        assert by_capacity_type(world) == {"on-demand": 1, "reserved": 2}
        assert world.cloud.sold() == 3

    play(story, process=process)


@pytest.mark.parametrize("side", Side)
def test_an_operator_killed_while_buying_neither_wastes_nor_overdraws_a_reservation(side, record_property):
    def buying(alive: Process):
        passed = alive.writes if side is Side.BEFORE else alive.landed
        return [
            k
            for k in kills(alive)
            if k.side is side and ("create NodeClaim" in passed[k.write - 1] or "Fleet" in passed[k.write - 1])
        ]

    outcomes = at_every_write(life, chosen=buying)
    failed = [o for o in outcomes if o.problem]
    record_property(FOUND, f"reservations kept though killed {side} a purchase: {len(outcomes) - len(failed)} of {len(outcomes)}")
    assert not failed
    assert len(outcomes) >= 3
