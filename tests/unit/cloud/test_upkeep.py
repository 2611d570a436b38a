"""What happens to machines that run: shifts of zones, failed status checks, orphans, what nodes tell of themselves."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels, quantity
from kubewright.api.aws import EC2NodeClass
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, collection, instances, status, tags
from kubewright.cloud.aws.observed import Observed
from kubewright.cloud.aws.settings import read
from kubewright.cloud.aws.shift import ZonalShift, active
from kubewright.cloud.aws.status import InstanceStatuses
from kubewright.errors import CloudError, ConfigError, NotFound
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from kubewright.sim.ec2 import Faults
from kubewright.sim.ec2.boot import machine as booted
from tests.unit.cloud.test_provider import orphans_of
from tests.unit.cloud.world import World, story

ZONE, TYPE, MARKET = labels.ZONE, labels.INSTANCE_TYPE, labels.CAPACITY_TYPE


async def launched(world: World, name: str = "general-1", **values) -> NodeClaim:
    claim = await world.claim(name, **values)
    bought = await world.provider.create(claim)
    await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"labels": dict(bought.labels)}}))
    body = {"status": {"providerID": bought.provider_id, "imageID": bought.image_id}}
    return await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")


async def is_gone(world: World, claim: NodeClaim) -> bool:
    try:
        return (await world.kube.get(NodeClaim, claim.name)).metadata.deletion_timestamp is not None
    except NotFound:
        return True


# --- zonal shift ----------------------------------------------------------------------------------------------------------


def shifts(world: World, evacuate: int = 0) -> ZonalShift:
    provider = world.provider
    arn = world.ec2.account.cluster.arn
    return ZonalShift(world.ec2, world.kube, world.clock, arn, provider._unavailable, provider._recorder, evacuate)


async def zones_for_sale(world: World) -> set[str]:
    types = await world.provider.instance_types(await world.pool())
    return {o.zone for t in types if t.name == "m5.xlarge" for o in t.offerings if o.available}


def test_a_shifted_zone_is_out_for_every_capacity_type_and_says_why_and_comes_back():
    async def tell(world: World):
        world.ec2.account.shift_away("us-west-2b", world.clock.now() + timedelta(hours=1))
        await shifts(world).poll()
        assert await zones_for_sale(world) == {"us-west-2a", "us-west-2c"}
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        said = {o.unavailable_because for o in types["m5.xlarge"].offerings if o.zone == "us-west-2b"}
        assert len(said) == 1
        (text,) = said
        assert text.startswith("ARC zonal shift away from the zone until 2026-11-29 01:00 UTC")
        assert "topology spread still counts it" in text
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.xlarge"]}))
        assert bought.labels[ZONE] != "us-west-2b"
        world.ec2.account.shifts.clear()  # cancelled before its end
        await shifts(world).poll()
        assert await zones_for_sale(world) == {"us-west-2a", "us-west-2b", "us-west-2c"}

    story(tell)


def test_a_command_that_looks_once_knows_the_shift_and_moves_nothing():
    async def tell(world: World):
        world.ec2.account.shift_away("us-west-2b", world.clock.now() + timedelta(hours=1))
        claim = await launched(world, **{ZONE: ["us-west-2b"]})
        for on, zones in ((False, {"us-west-2a", "us-west-2b", "us-west-2c"}), (True, {"us-west-2a", "us-west-2c"})):
            world.provider = world.restarted(zonal_shift=on, evacuate_shifted=5)
            await world.provider.look()
            assert await zones_for_sale(world) == zones
        assert not await is_gone(world, claim)
        world.ec2.break_down("GetManagedResource", code="AccessDenied", status=403)
        with pytest.raises(CloudError, match="AccessDenied"):
            await world.restarted(zonal_shift=True).look()

    story(tell)


def test_of_two_shifts_the_one_that_ended_is_over():
    async def tell(world: World):
        looking = shifts(world)
        world.ec2.account.shift_away("us-west-2a", world.clock.now() + timedelta(hours=1))
        world.ec2.account.shift_away("us-west-2b", world.clock.now() + timedelta(hours=1))
        await looking.poll()
        del world.ec2.account.shifts[0]
        await looking.poll()
        assert await zones_for_sale(world) == {"us-west-2a", "us-west-2c"}

    story(tell)


def test_within_a_minute_it_is_out_and_within_a_minute_it_is_back():
    async def tell(world: World):
        task = asyncio.create_task(shifts(world).run())
        await asyncio.sleep(100)
        world.ec2.account.shift_away("us-west-2b", world.clock.now() + timedelta(minutes=10))
        await asyncio.sleep(60)
        assert "us-west-2b" not in await zones_for_sale(world)
        world.ec2.break_down("GetManagedResource")
        await asyncio.sleep(120)
        assert "us-west-2b" not in await zones_for_sale(world), "while ARC is down its last answer holds"
        world.ec2.mend()
        await asyncio.sleep(9 * 60)
        assert "us-west-2b" in await zones_for_sale(world)
        task.cancel()

    story(tell)


def test_only_shifts_that_are_applied_and_not_over_count():
    now = World.START
    shift = api.ZonalShift(applied_status="APPLIED", away_from="z1", expiry_time=now + timedelta(minutes=1))
    answer = api.ManagedResourceAnswer(
        zonal_shifts=(
            shift,
            replace(shift, away_from="z2", applied_status="NOT_APPLIED"),
            replace(shift, away_from="z3", expiry_time=now),
        ),
        autoshifts=(api.Autoshift(applied_status="APPLIED", away_from="z4"),),
    )
    assert sorted(active(answer, now)) == ["z1", "z4"]


def test_nodes_of_a_shifted_zone_stay_unless_a_budget_moves_them():
    async def tell(world: World):
        claims = [await launched(world, f"c{i}", **{ZONE: ["us-west-2b"]}) for i in range(4)]
        await world.kube.patch(
            NodeClaim, "c0", MergePatch({"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}, "finalizers": ["x/y"]}})
        )
        for c in claims[1:]:
            await world.kube.patch(NodeClaim, c.name, MergePatch({"metadata": {"finalizers": ["x/y"]}}))
        other = await launched(world, "other", **{ZONE: ["us-west-2a"]})
        world.ec2.account.shift_away("us-west-2b", world.clock.now() + timedelta(hours=1))
        await shifts(world).poll()
        assert not any([await is_gone(world, c) for c in claims])
        moving = shifts(world, evacuate=2)
        await moving.poll()
        assert [await is_gone(world, c) for c in claims] == [False, True, True, False]
        await moving.poll()
        assert [await is_gone(world, c) for c in claims] == [False, True, True, False], "no more than two at a time"
        await world.kube.patch(NodeClaim, "c1", MergePatch({"metadata": {"finalizers": None}}))
        await moving.poll()
        assert [await is_gone(world, c) for c in claims] == [False, True, True, True]
        assert not await is_gone(world, other)

    story(tell)


# --- instance statuses ------------------------------------------------------------------------------------------------------


def statuses(world: World) -> InstanceStatuses:
    provider = world.provider
    return InstanceStatuses(world.ec2, world.kube, world.clock, provider._recorder, provider._measures)


@pytest.mark.parametrize("what", ["instance", "system"])
def test_a_machine_that_fails_its_checks_for_two_minutes_goes_at_once(what):
    async def tell(world: World):
        registry = Registry()
        world.provider.measure(registry)
        claim = await launched(world)
        await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"finalizers": ["x/y"]}}))
        await asyncio.sleep(60)
        world.ec2.impair(instances.instance_id(claim.status.provider_id), what)
        looking = statuses(world)
        assert await looking.poll() == []
        await asyncio.sleep(121)
        await looking.poll()
        await looking.poll()
        found = await world.kube.get(NodeClaim, claim.name)
        assert found.metadata.deletion_timestamp is not None
        assert found.metadata.annotations[labels.TERMINATION_TIMESTAMP] == "2026-11-29T00:03:01Z"
        category = f"{what}_status"
        assert registry.value("karpenter_interruption_instance_status_unhealthy_total", category=category) == 1

    story(tell, Faults(call_s=0, launch_s=1, launch_jitter_s=0))


def test_a_scheduled_event_drains_and_a_missing_permission_ends_the_looking():
    async def tell(world: World):
        claim = await launched(world)
        await world.kube.patch(NodeClaim, claim.name, MergePatch({"metadata": {"finalizers": ["x/y"]}}))
        await asyncio.sleep(60)
        world.ec2.plan(instances.instance_id(claim.status.provider_id), "instance-retirement")
        await statuses(world).poll()
        found = await world.kube.get(NodeClaim, claim.name)
        assert found.metadata.deletion_timestamp is not None
        assert labels.TERMINATION_TIMESTAMP not in found.metadata.annotations
        world.ec2.break_down("DescribeInstanceStatus", code="UnauthorizedOperation", status=403)
        await asyncio.wait_for(statuses(world).run(), 5)

    story(tell)


def test_statuses_are_judged_by_what_they_say_not_by_what_was_asked_for():
    now = World.START
    ok = api.InstanceStatus(instance_id="i-1", instance_status=api.StatusSummary(status="ok"))
    young = api.StatusDetail(name="reachability", status="failed", impaired_since=now - timedelta(seconds=119))
    old = replace(young, impaired_since=now - timedelta(seconds=120))
    found = [
        ok,
        replace(ok, instance_id="i-2", system_status=api.StatusSummary(status="impaired", details=(young,))),
        replace(ok, instance_id="i-3", system_status=api.StatusSummary(status="impaired", details=(old,))),
        replace(ok, instance_id="i-4", events=(api.StatusEvent(code="instance-stop", description="[Completed] done"),)),
        replace(ok, instance_id="i-5", events=(api.StatusEvent(code="system-reboot"),)),
        replace(ok, instance_id="i-5", events=(api.StatusEvent(code="instance-reboot"),)),
    ]
    assert [(t.instance_id, t.category, t.text) for t in status.troubles(found, now)] == [
        ("i-3", "system_status", "reachability"),
        ("i-5", "event_status", "system-reboot"),
    ]


# --- orphans ------------------------------------------------------------------------------------------------------------------


def owned(i: int, *, cluster: str = "uid", uids: tuple[str, ...] = (), age_s: int = 60, state: str = "running"):
    found = {tags.CLUSTER_UID: cluster, **tags.of_launch(uids)}
    return api.Ec2Instance(
        instance_id=f"i-{i:03}",
        instance_type="m5.large",
        state=api.InstanceState(name=state),
        launch_time=World.START - timedelta(seconds=age_s),
        placement=api.Placement(availability_zone="a"),
        tags=tags.as_tags(found),
    )


def look(machines, known=(), unwritten=(), nodes=()):
    return collection.orphans(machines, known, unwritten, nodes, "uid", World.START)


def pid(i: int) -> str:
    return f"aws:///a/i-{i:03}"


def test_a_machine_of_a_cluster_of_the_same_name_is_never_touched():
    found = look([owned(1, cluster="other"), owned(2), owned(3, cluster="")])
    assert [i.instance_id for i in found.end] == ["i-002"]
    assert [i.instance_id for i in found.foreign] == ["i-001", "i-003"]


def test_with_no_nodeclaim_at_all_machines_that_have_nodes_are_left():
    found = look([owned(i) for i in range(5)], nodes=[pid(i) for i in range(5)])
    assert not found.end
    assert found.why == "there is no NodeClaim at all, but Nodes of these machines"
    assert [i.instance_id for i in look([owned(1)]).end] == ["i-001"], "a machine that never joined serves nobody"


def test_more_than_a_fifth_of_the_fleet_is_not_ended_at_a_look():
    machines, nodes = [owned(i) for i in range(10)], [pid(i) for i in range(10)]
    found = look(machines, known=[pid(i) for i in range(2, 10)], nodes=nodes)
    assert [i.instance_id for i in found.end] == ["i-000", "i-001"]
    found = look(machines, known=[pid(i) for i in range(3, 10)], nodes=nodes)
    assert not found.end
    assert found.why == "3 of 10 machines have a Node and no NodeClaim"


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["uid", "other", ""]), st.integers(0, 90)), max_size=30),
    st.integers(0, 3),
)
def test_collection_never_ends_what_is_known_young_foreign_or_awaited(facts, waiting):
    uids = tuple(f"u{i}" for i in range(5))
    machines, known, nodes = [], [], []
    for i, (is_known, has_node, cluster, age) in enumerate(facts):
        machines.append(owned(i, cluster=cluster, uids=uids if i % 3 == 0 else (), age_s=age))
        known += [pid(i)] if is_known else []
        nodes += [pid(i)] if has_node else []
    found = look(machines, known, uids[:waiting], nodes)
    ended = {i.instance_id for i in found.end}
    for i, (is_known, _, cluster, age) in enumerate(facts):
        if is_known or cluster != "uid" or age < 30:
            assert f"i-{i:03}" not in ended
    spared = [
        m for m in machines if m.tags and tags.launched_for(api.tags_of(m.tags)) and pid(int(m.instance_id[2:])) not in known
    ]
    assert len([m for m in spared if m.instance_id in ended]) <= max(0, len(spared) - waiting)
    joined = [i for i in ended if pid(int(i[2:])) in nodes]
    assert len(joined) <= max(1, len(machines) // 5)


def test_nothing_is_ended_after_a_look_that_failed_half_way():
    async def tell(world: World):
        await world.provider.create(await world.claim("lost"))
        await world.kube.delete(NodeClaim, "lost")
        await asyncio.sleep(60)
        world.ec2.fail_next("DescribeInstances", "UnauthorizedOperation")
        with pytest.raises(Exception, match="UnauthorizedOperation"):
            await orphans_of(world).collect()
        assert len(world.ec2.running()) == 1
        assert len(await orphans_of(world).collect()) == 1
        assert not world.ec2.running()

    story(tell)


# --- what nodes tell (C80, C82) -------------------------------------------------------------------------------------------------


def test_a_node_that_joined_replaces_the_guess_of_its_type_and_image():
    """C80: four pods fit one machine as soon as one of its kind has told how much memory it really has."""

    async def tell(world: World):
        claim = await launched(world, **{TYPE: ["m5.4xlarge"]})
        before = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        node = booted(next(iter(world.ec2.machines.all.values())), world.ec2._infos, "us-west-2", {})
        node_class = await world.kube.get(EC2NodeClass, "default")
        world.provider._observed.saw(
            "m5.4xlarge", claim.status.image_id, node_class, node.capacity, node.allocatable, world.clock.now()
        )
        after = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        real = quantity.parse(node.allocatable["memory"])
        assert before["m5.4xlarge"].allocatable()["memory"] < real == after["m5.4xlarge"].allocatable()["memory"]
        assert before["m5.2xlarge"] is after["m5.2xlarge"], "other types stay as they were"

    story(tell)


def test_of_several_nodes_the_smallest_counts_and_another_kubelet_is_another_kind():
    found = Observed()
    node_class = EC2NodeClass()
    for memory in ("100Gi", "98Gi", "99Gi"):
        found.saw("a", "ami", node_class, {"memory": memory}, {"memory": "90Gi"}, World.START)
    assert found.of("a", "ami", node_class).memory == quantity.parse("98Gi")
    assert found.of("a", "ami", node_class).kept_memory == quantity.parse("10Gi")
    assert found.of("a", "other", node_class) is None
    version = found.version
    found.saw("a", "ami", node_class, {"memory": "99Gi"}, {"memory": "95Gi"}, World.START)
    assert found.version == version, "nothing new"
    found.saw("b", "ami", node_class, {"memory": "9Gi"}, {"memory": "8Gi"}, World.START + timedelta(days=61))
    assert found.of("a", "ami", node_class) is None, "not seen for two months"


def test_a_registered_node_is_heard_of():
    async def tell(world: World):
        claim = await launched(world, **{TYPE: ["m5.4xlarge"]})
        provider = world.provider
        tasks = [asyncio.create_task(p.run()) for p in provider.background() if p.name in HEARS]
        await asyncio.sleep(5)
        world.store.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n", "labels": {TYPE: "m5.4xlarge", labels.REGISTERED: "true"}},
                "spec": {"providerID": claim.status.provider_id},
            }
        )
        body = {"status": {"capacity": {"memory": "60Gi"}, "allocatable": {"memory": "58Gi"}}}
        await world.kube.patch(Node, "n", MergePatch(body), subresource="status")
        await asyncio.sleep(5)
        shown = {t.name: t for t in await provider.instance_types(await world.pool())}["m5.4xlarge"]
        for task in tasks:
            task.cancel()
        assert shown.capacity["memory"] == quantity.parse("60Gi")
        assert shown.allocatable()["memory"] == quantity.parse("58Gi")

    story(tell)


HEARS = ("nodeclass", "nodeclaim.tagging", "providers.instancetype.capacity")


def test_pods_per_core_caps_density_and_the_family_that_ignores_it_says_so():
    """C82: 64 vCPUs at two pods each are 128 pods, not 737; Bottlerocket is refused, see the tests of NodeClasses."""

    async def tell(world: World):
        shown = {t.name: t for t in await world.provider.instance_types(await world.pool())}["m5.16xlarge"]
        assert shown.capacity["pods"] == 128 * quantity.ONE
        bought = await world.provider.create(await world.claim(**{TYPE: ["m5.16xlarge"]}))
        assert bought.capacity["pods"] == "128"
        node = booted(next(iter(world.ec2.machines.all.values())), world.ec2._infos, "us-west-2", {})
        assert node.capacity["pods"] == "128", "and that is what the kubelet is told"

    story(tell, kubelet={"podsPerCore": 2})


# --- what is offered, as metrics; flags ---------------------------------------------------------------------------------


def test_offerings_are_gauges_and_those_that_are_gone_go():
    async def tell(world: World):
        registry = Registry()
        world.provider.measure(registry)
        world.ec2.account.reserve("m5.xlarge", "us-west-2b", 1, tags={"team": "ml"})
        await world.provider.reconcile_node_class("default")
        world.provider._unavailable.mark("on-demand", "m5.xlarge", "us-west-2a", "test", world.clock.now())
        (part,) = [p for p in world.provider.background() if p.name == "cloudprovider.metrics"]
        task = asyncio.create_task(part.run())
        await asyncio.sleep(61)
        offering = "karpenter_cloudprovider_instance_type_offering"
        out = {"instance_type": "m5.xlarge", "capacity_type": "on-demand", "zone": "us-west-2a"}
        there = {**out, "zone": "us-west-2b"}
        assert registry.value(f"{offering}_available", **out) == 0
        assert registry.value(f"{offering}_available", **there) == 1
        assert registry.value(f"{offering}_price_estimate", **there) == 0.192
        reserved = {**there, "capacity_type": "reserved"}
        assert registry.value(f"{offering}_available", **reserved) == 1
        none = {**reserved, "instance_type": "m5.large"}
        assert (registry.value(f"{offering}_available", **none), registry.value(f"{offering}_price_estimate", **none)) == (0, 0)
        assert registry.value("karpenter_cloudprovider_instance_type_cpu_cores", instance_type="m5.xlarge") == 4
        memory = registry.value("karpenter_cloudprovider_instance_type_memory_bytes", instance_type="m5.xlarge")
        assert 0.9 < memory / (16 * 2**30) < 1
        world.ec2.account.reservations.clear()
        await world.provider.reconcile_node_class("default")
        await asyncio.sleep(300)
        assert registry.value(f"{offering}_available", **reserved) is None
        assert registry.value(f"{offering}_available", **out) == 1
        task.cancel()

    story(tell, capacityReservationSelectorTerms=[{"tags": {"team": "ml"}}])


def test_flags_of_the_provider():
    found = read(
        {
            "enable-zonal-shift": "true",
            "zonal-shift-evacuation": "3",
            "replace-on-rebalance": "true",
            "disable-dry-run": "true",
            "aws-feature-gates": "NodeClassCEL=false",
        },
        "us-west-2",
    )
    assert (found.zonal_shift, found.evacuate_shifted, found.rebalance, found.dry_run) == (True, 3, True, False)
    plain = read({}, "us-west-2")
    assert (plain.zonal_shift, plain.evacuate_shifted, plain.rebalance, plain.dry_run) == (False, 0, False, True)
    with pytest.raises(ConfigError, match="NodeClassCEL"):
        read({"aws-feature-gates": "NodeClassCEL=true"}, "us-west-2")
    with pytest.raises(ConfigError, match="--zonal-shift-evacuation: found 'all', write a whole number"):
        read({"zonal-shift-evacuation": "all"}, "us-west-2")
