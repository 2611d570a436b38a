"""Capacity that is paid for already: reservations, capacity blocks, and placement groups beside them."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubewright.api import aws_labels, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, launch
from kubewright.cloud.aws.upkeep import ReservationUpkeep
from kubewright.errors import InsufficientCapacity, NotFound
from kubewright.kube.client import MergePatch
from tests.unit.cloud.world import World, story

ZONE, TYPE, MARKET = labels.ZONE, labels.INSTANCE_TYPE, labels.CAPACITY_TYPE
TERMS = {"capacityReservationSelectorTerms": [{"tags": {"team": "ml"}}]}
ALL = {MARKET: ["reserved", "spot", "on-demand"]}


def reserve(
    world: World, kind: str = "m5.xlarge", zone: str = "us-west-2b", count: int = 2, sort: str = "default", **more
) -> str:
    return world.ec2.account.reserve(kind, zone, count, kind=sort, tags={"team": "ml"}, **more)


async def reserved(world: World, **more) -> str:
    name = reserve(world, **more)
    await world.provider.reconcile_node_class("default")
    return name


async def types(world: World):
    return {t.name: t for t in await world.provider.instance_types(await world.pool())}


def template(world: World, index: int = -1) -> api.LaunchTemplateData:
    """Of the last machine."""
    return [data for _, data in world.ec2.account.templates.values()][index]


async def written(world: World, claim: NodeClaim, bought) -> NodeClaim:
    await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"labels": dict(bought.labels)}}))
    body = {"status": {"providerID": bought.provider_id, "imageID": bought.image_id}}
    return await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")


def test_a_reservation_shows_in_status_and_as_the_cheapest_offering():
    async def tell(world: World):
        name = await reserved(world)
        (shown,) = world.node_class()["status"]["capacityReservations"]
        assert (shown["id"], shown["instanceType"], shown["availabilityZone"]) == (name, "m5.xlarge", "us-west-2b")
        assert (shown["reservationType"], shown["state"]) == ("default", "active")
        conditions = {c["type"]: c["status"] for c in world.node_class()["status"]["conditions"]}
        assert conditions["CapacityReservationsReady"] == "True"
        first = (await types(world))["m5.xlarge"].offerings[0]
        assert (first.capacity_type, first.zone, first.reservation_capacity) == ("reserved", "us-west-2b", 2)
        assert first.price == pytest.approx(0.192 / 10_000_000)

    story(tell, **TERMS)


def test_reserved_capacity_is_bought_first_and_then_what_else_is_allowed():
    async def tell(world: World):
        name = await reserved(world)
        wish = {**ALL, TYPE: ["m5.xlarge"]}
        for i in range(2):
            bought = await world.provider.create(await world.claim(f"r{i}", **wish))
            assert bought.labels[MARKET] == "reserved"
            assert bought.labels[aws_labels.CAPACITY_RESERVATION_ID] == name
            assert bought.labels[aws_labels.CAPACITY_RESERVATION_TYPE] == "default"
            assert bought.labels[aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE] == "false"
            assert (await world.provider.get(bought.provider_id)).labels[MARKET] == "reserved"
        said = template(world).capacity_reservation_specification
        assert said.capacity_reservation_preference == "capacity-reservations-only"
        assert said.capacity_reservation_target.capacity_reservation_id == name
        assert world.ec2.account.reservations[name].available_instance_count == 0
        used_up = (await types(world))["m5.xlarge"].offerings[0]
        assert (used_up.available, used_up.unavailable_because) == (False, "the reservation is used up")
        third = await world.provider.create(await world.claim("third", **wish))
        assert third.labels[MARKET] == "spot"
        assert template(world).capacity_reservation_specification.capacity_reservation_preference == "none"

    story(tell, **TERMS)


def test_a_reservation_that_turns_out_used_up_is_not_asked_again_and_the_type_is_not_marked():
    async def tell(world: World):
        name = await reserved(world, count=1)
        world.ec2.account.hold(name)  # somebody else's machine
        with pytest.raises(InsufficientCapacity, match="ReservationCapacityExceeded"):
            await world.provider.create(await world.claim("a", **{MARKET: ["reserved"], TYPE: ["m5.xlarge"]}))
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(await world.claim("b", **{MARKET: ["reserved"], TYPE: ["m5.xlarge"]}))
        offered = (await types(world))["m5.xlarge"].offerings
        assert all(o.available for o in offered if o.capacity_type != "reserved")

    story(tell, **TERMS)


def test_without_the_gate_nothing_is_reserved_and_open_reservations_fill_by_themselves():
    async def tell(world: World):
        reserve(world)
        world.provider = world.restarted(reserved=False)
        await world.provider.reconcile_node_class("default")
        assert {o.capacity_type for o in (await types(world))["m5.xlarge"].offerings} == {"spot", "on-demand"}
        await world.provider.create(await world.claim(**{TYPE: ["m5.xlarge"]}))
        assert template(world).capacity_reservation_specification is None
        assert "CapacityReservationsReady" not in {c["type"] for c in world.node_class()["status"]["conditions"]}

    story(tell, ready=False, **TERMS)


def test_of_several_reservations_of_a_place_the_fullest_and_of_kinds_the_default_first():
    async def tell(world: World):
        reserve(world, count=1)
        most = reserve(world, count=5)
        reserve(world, kind="m5.2xlarge", interruptible=True, count=9)
        reserve(world, kind="m5.xlarge", zone="us-west-2c", count=1)
        await world.provider.reconcile_node_class("default")
        claim = await world.claim(cpu="2", **ALL)
        choice = launch.choose(claim, tuple((await types(world)).values()))
        assert (choice.capacity_type, choice.reservation_type, choice.interruptible) == ("reserved", "default", False)
        assert [b.type.name for b in choice.types] == ["m5.xlarge"]
        ids = {o.zone: min(o.requirements[aws_labels.CAPACITY_RESERVATION_ID].values) for b in choice.types for o in b.offerings}
        assert set(ids) == {"us-west-2b", "us-west-2c"}
        assert ids["us-west-2b"] == most

    story(tell, **TERMS)


def test_a_capacity_block_is_bought_alone_and_left_before_its_end():
    async def tell(world: World):
        ends = world.clock.now() + timedelta(hours=2)
        name = await reserved(world, kind="p5.48xlarge", sort="capacity-block", ends=ends)
        claim = await world.claim("block", cpu="100", **{MARKET: ["reserved"], TYPE: ["p5.48xlarge"]})
        fleets = world.ec2.machines.fleets
        bought = await world.provider.create(claim)
        request = [r for r, _ in fleets.values()][-1]
        assert request.target_capacity_specification.default_target_capacity_type == "capacity-block"
        assert (request.on_demand_options, request.spot_options) == (None, None)
        assert template(world).instance_market_options.market_type == "capacity-block"
        assert bought.labels[aws_labels.CAPACITY_RESERVATION_TYPE] == "capacity-block"
        claim = await written(world, claim, bought)
        upkeep = upkeep_of(world)
        await upkeep.look()
        assert (await world.kube.get(NodeClaim, claim.name)).metadata.deletion_timestamp is None
        await clock_to(world, ends - timedelta(minutes=39))
        await world.provider.reconcile_node_class("default")
        assert world.node_class()["status"]["capacityReservations"][0]["state"] == "expiring"
        offering = next(o for o in (await types(world))["p5.48xlarge"].offerings if o.capacity_type == "reserved")
        assert offering.unavailable_because == "the capacity block ends"
        await upkeep.look()
        assert await gone(world, claim)
        assert world.ec2.account.reservations[name].available_instance_count == 1

    story(tell, **TERMS)


def test_interruptible_reserved_capacity_is_asked_for_as_such():
    async def tell(world: World):
        await reserved(world, interruptible=True)
        bought = await world.provider.create(await world.claim(**{MARKET: ["reserved"], TYPE: ["m5.xlarge"]}))
        request = [r for r, _ in world.ec2.machines.fleets.values()][-1]
        assert request.target_capacity_specification.default_target_capacity_type == "reserved-capacity"
        assert request.reserved_capacity_options.reservation_types == ("interruptible-capacity-reservation",)
        assert template(world).instance_market_options.market_type == "interruptible-capacity-reservation"
        assert bought.labels[aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE] == "true"

    story(tell, **TERMS)


def test_a_machine_that_left_its_reservation_is_relabelled_and_one_that_ended_leaves_its_place():
    async def tell(world: World):
        name = await reserved(world, count=1)
        claim = await world.claim(**{MARKET: ["reserved"], TYPE: ["m5.xlarge"]})
        claim = await written(world, claim, await world.provider.create(claim))
        upkeep = upkeep_of(world)
        await upkeep.look()
        (machine,) = world.ec2.machines.all.values()
        machine.seen = _without_reservation(machine.seen)
        await upkeep.look()
        found = (await world.kube.get(NodeClaim, claim.name)).metadata.labels
        assert found[MARKET] == "on-demand"
        assert aws_labels.CAPACITY_RESERVATION_ID not in found
        await upkeep.look()
        assert world.provider._reservations.left(name) == 1

    story(tell, **TERMS)


def test_a_reservation_that_the_class_does_not_select_any_more_is_drift():
    async def tell(world: World):
        name = await reserved(world)
        claim = await world.claim(**{MARKET: ["reserved"], TYPE: ["m5.xlarge"]})
        claim = await written(world, claim, await world.provider.create(claim))
        assert await world.provider.drift_reason(claim) == ""
        del world.ec2.account.reservations[name]
        await world.provider.reconcile_node_class("default")
        assert await world.provider.drift_reason(claim) == "CapacityReservationDrift"

    story(tell, **TERMS)


def _without_reservation(seen):
    return replace(seen, capacity_reservation_id="", capacity_reservation_specification=None)


def upkeep_of(world: World) -> ReservationUpkeep:
    provider = world.provider
    return ReservationUpkeep(world.ec2, world.kube, world.clock, "sandbox", provider._recorder, provider._reservations)


async def clock_to(world: World, moment) -> None:
    await asyncio.sleep((moment - world.clock.now()).total_seconds())


async def gone(world: World, claim: NodeClaim) -> bool:
    try:
        return (await world.kube.get(NodeClaim, claim.name)).metadata.deletion_timestamp is not None
    except NotFound:
        return True


# --- placement groups, and the rest of a template --------------------------------------------------------------------------


def test_a_partition_group_gives_labels_and_goes_where_it_is_told():
    async def tell(world: World):
        group = world.ec2.account.add_placement_group("spread-out", "partition", 3)
        await world.provider.reconcile_node_class("default")
        listed = (await types(world))["m5.xlarge"]
        assert listed.requirements[aws_labels.PLACEMENT_GROUP_ID].values == {group}
        assert listed.requirements[aws_labels.PLACEMENT_GROUP_PARTITION].values == {"1", "2", "3"}
        wish = {TYPE: ["m5.xlarge"], aws_labels.PLACEMENT_GROUP_PARTITION: ["2"]}
        claim = await world.claim("told", **wish)
        bought = await world.provider.create(claim)
        assert world.ec2.running()[-1].placement.partition_number == 2
        assert bought.labels[aws_labels.PLACEMENT_GROUP_ID] == group
        assert bought.labels[aws_labels.PLACEMENT_GROUP_PARTITION] == "2"
        free = await world.provider.create(await world.claim("free", **{TYPE: ["m5.xlarge"]}))
        chosen = str(world.ec2.running()[-1].placement.partition_number)
        assert free.labels[aws_labels.PLACEMENT_GROUP_PARTITION] == chosen, "what EC2 chose is read back"
        claim = await written(world, claim, bought)
        assert await world.provider.drift_reason(claim) == ""
        world.patch_class({"placementGroupSelector": None})
        await world.provider.reconcile_node_class("default")
        assert await world.provider.drift_reason(claim) in ("NodeClassDrift", "PlacementGroupDrift")

    story(tell, ready=False, placementGroupSelector={"name": "spread-out"})


def test_a_full_spread_group_puts_the_zone_out_for_that_group_only():
    async def tell(world: World):
        group = world.ec2.account.add_placement_group("far", "spread")
        await world.provider.reconcile_node_class("default")
        wish = {TYPE: ["m5.xlarge", "m5.2xlarge"], ZONE: ["us-west-2a"]}
        for i in range(7):
            await world.provider.create(await world.claim(f"c{i}", **wish))
        with pytest.raises(InsufficientCapacity, match="spread placement group"):
            await world.provider.create(await world.claim("c7", **wish))
        marks = world.provider._unavailable
        assert marks.because("on-demand", "m5.2xlarge", "us-west-2a", group)
        assert not marks.because("on-demand", "m5.2xlarge", "us-west-2a")
        offered = {o.zone: o.available for o in (await types(world))["m5.2xlarge"].offerings if o.capacity_type == "on-demand"}
        assert offered == {"us-west-2a": False, "us-west-2b": True, "us-west-2c": True}

    story(tell, ready=False, placementGroupSelector={"name": "far"})


def test_the_template_says_everything_that_the_class_says():
    async def tell(world: World):
        await world.provider.create(await world.claim(**{TYPE: ["m8i.xlarge"]}, **{aws_labels.INSTANCE_TENANCY: ["dedicated"]}))
        data = template(world)
        assert data.placement.tenancy == "dedicated"
        (nic,) = data.network_interfaces
        tracking = nic.connection_tracking_specification
        assert (tracking.tcp_established_timeout, tracking.udp_stream_timeout, tracking.udp_timeout) == (600, 60, 30)
        assert (nic.ipv4_prefix_count, nic.associate_public_ip_address) == (2, True)
        assert data.monitoring.enabled
        assert data.cpu_options.nested_virtualization == "enabled"
        (disk,) = data.block_device_mappings
        assert (disk.ebs.volume_size, disk.ebs.throughput, disk.ebs.iops) == (101, 250, 4000)
        options = data.metadata_options
        assert (options.http_put_response_hop_limit, options.http_tokens) == (3, "optional")
        request = [r for r, _ in world.ec2.machines.fleets.values()][-1]
        assert request.context == "ctx-1"
        assert world.ec2.running()[-1].placement.tenancy == "dedicated"

    story(
        tell,
        connectionTracking={"tcpEstablishedTimeout": 600, "udpStreamTimeout": 60, "udpTimeout": 30},
        cpuOptions={"nestedVirtualization": "enabled"},
        ipPrefixCount=2,
        associatePublicIPAddress=True,
        detailedMonitoring=True,
        context="ctx-1",
        metadataOptions={"httpPutResponseHopLimit": 3, "httpTokens": "optional"},
        blockDeviceMappings=[
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "108G", "throughput": 250, "iops": 4000, "volumeType": "gp3"}}
        ],
    )


def test_efa_is_attached_where_the_pod_asks_for_it():
    async def tell(world: World):
        claim = await world.claim(cpu="100", efa="32", **{TYPE: ["p5.48xlarge"]})
        bought = await world.provider.create(claim)
        kinds = [i.interface_type for i in template(world).network_interfaces]
        assert kinds == ["efa"] * 32
        assert [i.device_index for i in template(world).network_interfaces][:3] == [0, 1, 1]
        assert bought.capacity[aws_labels.EFA] == "32"
        plain = await world.provider.create(await world.claim("plain", cpu="100", **{TYPE: ["p5.48xlarge"]}))
        assert aws_labels.EFA not in plain.capacity

    story(tell)


@pytest.mark.parametrize(
    ("spec", "out", "still"),
    [
        ({"connectionTracking": {"udpTimeout": 30}}, "m4.xlarge", "m5.xlarge"),
        ({"cpuOptions": {"nestedVirtualization": "enabled"}}, "m5.xlarge", "m8i.xlarge"),
        ({"amiSelectorTerms": [{"alias": "windows2022@latest"}]}, "m6g.xlarge", "m5.xlarge"),
    ],
)
def test_types_that_the_class_cannot_use_are_listed_and_out(spec, out, still):
    async def tell(world: World):
        listed = await types(world)
        assert not any(o.available for o in listed[out].offerings)
        assert all(o.unavailable_because for o in listed[out].offerings)
        assert any(o.available for o in listed[still].offerings)

    story(tell, **spec)
