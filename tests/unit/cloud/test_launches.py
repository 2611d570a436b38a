"""Many launches together: few calls, nothing twice, nothing lost, and every error class to its own consequence."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, tags
from kubewright.cloud.aws.addresses import Addresses
from kubewright.cloud.aws.batching import Batcher
from kubewright.cloud.aws.calls import Pace
from kubewright.cloud.aws.errors import AwsError
from kubewright.errors import CloudError, InsufficientCapacity, LaunchFailed, Throttled
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from kubewright.sim.ec2 import Faults
from kubewright.sim.loop import run
from tests.unit.cloud.world import World, story

ZONE, TYPE, MARKET = labels.ZONE, labels.INSTANCE_TYPE, labels.CAPACITY_TYPE
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")


async def all_of(world: World, claims: list[NodeClaim]) -> list[object]:
    return await asyncio.gather(*(world.provider.create(c) for c in claims), return_exceptions=True)


# --- batches ------------------------------------------------------------------------------------------------------------


def test_a_thousand_equal_claims_are_a_twentieth_of_the_calls_at_most():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}") for i in range(1000)]
        before = dict(world.ec2.calls)
        bought = await all_of(world, claims)
        assert len({b.provider_id for b in bought}) == len(world.ec2.running()) == 1000
        calls = {name: count - before.get(name, 0) for name, count in world.ec2.calls.items()}
        assert calls["CreateFleet"] <= 50
        assert calls.get("DescribeInstances", 0) <= 50
        assert calls.get("CreateLaunchTemplate", 0) <= 20, "one for each count of pods"
        seen = await asyncio.gather(*(world.provider.get(b.provider_id) for b in bought))
        assert [s.provider_id for s in seen] == [b.provider_id for b in bought]
        assert world.ec2.calls["DescribeInstances"] - before.get("DescribeInstances", 0) <= 50
        await asyncio.gather(*(world.provider.delete(b.provider_id) for b in bought))
        assert not world.ec2.running()
        assert world.ec2.calls["TerminateInstances"] <= 50

    story(tell)


def test_claims_of_different_wishes_do_not_share_a_fleet():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}", **{TYPE: ["m5.xlarge" if i % 2 else "c5.2xlarge"]}) for i in range(10)]
        bought = await all_of(world, claims)
        assert [b.labels[TYPE] for b in bought] == ["c5.2xlarge", "m5.xlarge"] * 5
        assert world.ec2.calls["CreateFleet"] == 3, "with the dry run of validation"

    story(tell)


def test_a_fleet_that_gets_half_of_what_it_asked_for_serves_half_and_tells_the_rest_why():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}", **{TYPE: ["m5.xlarge"]}) for i in range(10)]
        found = await all_of(world, claims)
        assert len([b for b in found if not isinstance(b, Exception)]) == len(world.ec2.running()) == 6
        failed = [b for b in found if isinstance(b, Exception)]
        assert len(failed) == 4
        assert all(isinstance(e, InsufficientCapacity) and "InsufficientInstanceCapacity" in str(e) for e in failed)
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        assert not any(o.available for o in types["m5.xlarge"].offerings if o.capacity_type == "on-demand")

    story(tell, Faults(pool_size=2))


def test_a_batch_closes_when_quiet_when_old_and_when_full():
    sizes: list[tuple[float, int]] = []

    async def main():
        loop = asyncio.get_running_loop()

        async def do(items):
            sizes.append((round(loop.time() - began, 3), len(items)))
            return list(items)

        batches = Batcher("x", do, idle=timedelta(milliseconds=100), longest=timedelta(seconds=1), most=30)
        began = loop.time()

        async def later(at, item):
            await asyncio.sleep(at)
            return await batches.add(item)

        assert await asyncio.gather(*(later(0.05 * i, i) for i in range(25))) == list(range(25))
        await asyncio.gather(*(batches.add(i) for i in range(70)))

    run(main(), limit_s=60)
    assert sizes[0] == (1.0, 20), "restarted by every arrival, but never longer than a second"
    assert [n for _, n in sizes[2:]] == [30, 30, 10]


def test_nothing_is_bought_for_a_process_that_has_ended():
    async def main():
        done = []

        async def do(items):
            await asyncio.sleep(1)
            done.extend(items)
            return list(items)

        batches = Batcher("x", do, idle=timedelta(milliseconds=10), most=30)
        tasks = [asyncio.create_task(batches.add(i)) for i in range(3)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(5)
        return done

    assert run(main(), limit_s=60) == []


def test_an_error_of_a_batch_is_everybodys():
    async def main():
        async def do(items):
            raise AwsError("X", "Y", "z")

        batches = Batcher("x", do, idle=timedelta(milliseconds=10), most=30)
        return await asyncio.gather(*(batches.add(i) for i in range(3)), return_exceptions=True)

    assert [str(e) for e in run(main(), limit_s=60)] == ["X: Y: z"] * 3


# --- never twice, never lost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_batch_whose_answer_is_lost_is_not_bought_again(restart):
    async def tell(world: World):
        claims = [await world.claim(f"c{i}") for i in range(30)]
        for _ in range(5):
            world.ec2.fail_next("CreateFleet", "RequestTimeout", after=True, status=0)
        lost = await all_of(world, claims)
        assert {type(e) for e in lost} == {Throttled}
        assert len(world.ec2.running()) == 30
        if restart:
            world.provider = world.restarted()
        bought = await all_of(world, claims)
        assert len({b.provider_id for b in bought}) == len(world.ec2.running()) == 30

    story(tell, Faults(describe_lag_s=10))


def test_who_was_not_waiting_when_a_lost_answer_came_gets_its_machine_later():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}") for i in range(3)]
        for _ in range(5):
            world.ec2.fail_next("CreateFleet", "RequestTimeout", after=True, status=0)
        await all_of(world, claims)
        first = await world.provider.create(claims[1])
        rest = await all_of(world, [claims[0], claims[2]])
        assert len({first.provider_id, *(b.provider_id for b in rest)}) == len(world.ec2.running()) == 3

    story(tell)


def test_after_a_crash_only_those_without_a_record_take_what_is_left_of_their_fleet():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}") for i in range(5)]
        bought = await all_of(world, claims)
        for claim, machine in list(zip(claims, bought, strict=True))[:3]:
            body = {"status": {"providerID": machine.provider_id}}
            await world.kube.patch(NodeClaim, claim.name, MergePatch(body), subresource="status")
        world.provider = world.restarted()
        again = await all_of(world, claims[3:])
        assert {b.provider_id for b in again} == {b.provider_id for b in bought[3:]}
        assert len(world.ec2.running()) == 5

    story(tell)


def test_a_new_claim_does_not_wait_for_what_an_earlier_process_may_have_bought():
    async def tell(world: World):
        world.provider = world.restarted()
        await world.provider.begin()
        began = asyncio.get_running_loop().time()
        await world.provider.create(await world.claim())
        assert asyncio.get_running_loop().time() - began < 2

    story(tell)


def test_a_machine_that_is_not_shown_yet_is_not_taken_for_gone():
    async def tell(world: World):
        bought = await world.provider.create(await world.claim())
        with pytest.raises(Throttled):
            await world.provider.delete(bought.provider_id)
        await asyncio.sleep(11)
        await world.provider.delete(bought.provider_id)
        assert not world.ec2.running()

    story(tell, Faults(describe_lag_s=10))


def test_launch_tags_fit_and_name_every_claim():
    uids = [f"uid-{i}" for i in range(200)]
    found = tags.of_launch(uids)
    assert len(found) == 11
    assert all(len(v) <= 256 for v in found.values())
    assert tags.launched_for(found) == {tags.short(u) for u in uids}
    assert tags.room_for_launches(50) == 0


def test_many_tags_of_the_user_make_smaller_fleets_and_too_many_are_refused():
    async def tell(world: World):
        bought = await all_of(world, [await world.claim(f"c{i}") for i in range(40)])
        assert len({b.provider_id for b in bought}) == 40
        assert world.ec2.calls["CreateFleet"] == 1 + 3, "19 names in the one tag that is left"

    story(tell, tags={f"team-{i}": "x" for i in range(44)})

    async def refused(world: World):
        with pytest.raises(LaunchFailed, match=r"spec\.tags"):
            await world.provider.create(await world.claim())

    story(refused, tags={f"team-{i}": "x" for i in range(45)})


# --- pace -----------------------------------------------------------------------------------------------------------------


def test_at_ten_times_the_allowed_rate_all_are_launched_and_few_calls_are_refused():
    async def tell(world: World):
        claims = [await world.claim(f"c{i}", cpu=str(1 + i % 40)) for i in range(200)]
        world.ec2.faults = Faults(calls_per_s=2, calls_burst=4)
        refused = []
        real = world.ec2._is_throttled
        world.ec2._is_throttled = lambda operation: real(operation) and (refused.append(operation) or True)
        pending = claims
        for _ in range(20):
            outcomes = await all_of(world, pending)
            pending = [c for c, o in zip(pending, outcomes, strict=True) if isinstance(o, CloudError)]
            if not pending:
                break
        assert not pending
        assert len(world.ec2.running()) == 200
        assert len(refused) < sum(world.ec2.calls.values()) / 2

    story(tell)


def test_a_pace_falls_with_refusals_and_comes_back_with_time():
    pace = Pace()
    now = 0.0
    for _ in range(20):
        assert pace.wait_s(now) == 0
        pace.passed(now)
        now += 0.05
    pace.refused(now)
    assert 10 < pace.per_s <= 14
    waits = [pace.wait_s(now) for _ in range(5)]
    assert waits == sorted(waits)
    assert waits[-1] > 0.3
    for _ in range(50):
        now += 1
        pace.refused(now)
    assert pace.per_s == 0.5
    assert pace.wait_s(now + 61) == 0
    assert pace.per_s is None


# --- addresses (C78) --------------------------------------------------------------------------------------------------------


def test_only_the_subnet_without_addresses_is_marked():
    """C78: the next launch in the zone uses its other subnet; the zone is out only when that is full, too."""

    async def tell(world: World):
        account = world.ec2.account
        (first,) = [s for s in account.subnets.values() if s.availability_zone == "us-west-2a"]
        account.subnets[first.subnet_id] = replace(first, available_ip_address_count=40)
        second = replace(first, subnet_id="subnet-0second", available_ip_address_count=20)
        account.subnets[second.subnet_id] = second
        await world.provider.reconcile_node_class("default")
        account.subnets[first.subnet_id] = replace(first, available_ip_address_count=0)
        wish = {TYPE: ["m5.xlarge"], ZONE: ["us-west-2a"]}
        with pytest.raises(InsufficientCapacity, match="InsufficientFreeAddressesInSubnet"):
            await world.provider.create(await world.claim("a", **wish))
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        assert all(o.available for o in types["m5.xlarge"].offerings), "the zone has another subnet"
        bought = await world.provider.create(await world.claim("b", **wish))
        assert world.ec2.running()[0].subnet_id == second.subnet_id
        assert bought.labels[ZONE] == "us-west-2a"
        account.subnets[second.subnet_id] = replace(second, available_ip_address_count=0)
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(await world.claim("c", **wish))
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        out = {o.zone: o.unavailable_because for o in types["m5.xlarge"].offerings if not o.available}
        assert out == {"us-west-2a": "every subnet of the zone is full"}

    story(tell)


def test_addresses_that_launches_will_take_count_at_once():
    found = Addresses()
    told = [api.Subnet(subnet_id=s, availability_zone="a", available_ip_address_count=n) for s, n in (("s1", 100), ("s2", 90))]
    found.told(told)
    subnets = [_status(s) for s in told]
    assert found.best(subnets) == {"a": "s1"}
    promised = found.promise({"s1": 29})
    assert found.best(subnets) == {"a": "s2"}
    found.take_back(promised)
    assert found.best(subnets) == {"a": "s1"}
    promised = found.promise({"s1": 29})
    found.take_back(promised, used="s1")
    assert found.left("s1") == 71
    found.told(told)
    assert found.left("s1") == 100, "EC2's own count has it"
    found.take_back(promised)
    assert found.left("s1") == 100, "a promise of before is no more"
    found.empty("s1")
    assert found.best(subnets, full=("s2",)) == {"a": "s1"}
    assert found.left("s1") == 0


def _status(s):
    from kubewright.api.aws import Subnet

    return Subnet(id=s.subnet_id, zone=s.availability_zone)


def test_launches_spread_over_the_subnets_of_a_zone():
    async def tell(world: World):
        account = world.ec2.account
        for s in list(account.subnets.values()):
            account.subnets[s.subnet_id] = replace(s, available_ip_address_count=1000)
            account.subnets[s.subnet_id + "x"] = replace(s, subnet_id=s.subnet_id + "x", available_ip_address_count=1000)
        await world.provider.reconcile_node_class("default")
        await all_of(world, [await world.claim(f"c{i}", **{TYPE: ["m5.xlarge"], ZONE: ["us-west-2a"]}) for i in range(20)])
        used = [i.subnet_id for i in world.ec2.running()]
        assert sorted(used.count(s) for s in set(used)) == [10, 10]

    story(tell)


# --- C09, and what each error does --------------------------------------------------------------------------------------------


def test_a_fleet_that_answers_with_nothing_and_no_reason_counts_as_out_of_capacity():
    """C09: the offerings asked for are marked, so that the pod lands elsewhere and nobody asks for ever."""

    async def tell(world: World):
        real = world.ec2.machines.create_fleet
        world.ec2.machines.create_fleet = lambda request: api.FleetAnswer(fleet_id="fleet-0")
        arm = await world.claim("arm", **{TYPE: ["m6g.xlarge"]})
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(arm)
        world.ec2.machines.create_fleet = real
        types = {t.name: t for t in await world.provider.instance_types(await world.pool())}
        out = [o for o in types["m6g.xlarge"].offerings if o.capacity_type == "on-demand"]
        assert not any(o.available for o in out)
        assert {o.unavailable_because.partition(" until")[0] for o in out} == {"EC2 gave neither a machine nor a reason"}
        assert all(o.available for o in types["m5.xlarge"].offerings)
        calls = world.ec2.calls["CreateFleet"]
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(arm)
        assert world.ec2.calls["CreateFleet"] == calls
        await world.provider.create(await world.claim("x86", **{TYPE: ["m5.xlarge"]}))

    story(tell)


@pytest.mark.parametrize(
    ("code", "message", "kind", "reason"),
    [
        ("UnauthorizedOperation", "not allowed", LaunchFailed, "Unauthorized"),
        ("UnauthorizedOperation", "Not authorized for images: [ami-1]", LaunchFailed, "AMIAuthorizationFailure"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "x", LaunchFailed, "SpotSLRCreationFailed"),
        ("InvalidParameter", "they belong to different networks", LaunchFailed, "SecurityGroupSubnetVPCMismatch"),
        ("InvalidAMIID.Malformed", "x", LaunchFailed, "InvalidAMIID"),
        ("InvalidAMIID.NotFound", "x", LaunchFailed, "AMINotFound"),
        ("PendingVerification", "x", LaunchFailed, "AccountPendingVerification"),
        ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", LaunchFailed, "UserDataSizeLimitExceeded"),
        ("InvalidParameterCombination", "The type is not eligible for Free Tier", LaunchFailed, "FreeTierIneligible"),
        ("SomethingNew", "x", LaunchFailed, "LaunchFailed"),
        ("VcpuLimitExceeded", "x", InsufficientCapacity, ""),
        ("MaxFleetCountExceeded", "x", InsufficientCapacity, ""),
    ],
)
def test_an_error_of_the_call_has_its_own_consequence(code, message, kind, reason):
    async def tell(world: World):
        world.ec2.fail_next("CreateFleet", code, message)
        with pytest.raises(kind) as found:
            await world.provider.create(await world.claim())
        assert getattr(found.value, "condition_reason", "") == reason
        await world.provider.create(await world.claim("again"))

    story(tell)


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "ServiceUnavailable"])
def test_errors_that_pass_are_waited_out(code):
    async def tell(world: World):
        for _ in range(3):
            world.ec2.fail_next("CreateFleet", code, status=503)
        await world.provider.create(await world.claim())
        assert len(world.ec2.running()) == 1

    story(tell)


def test_an_account_without_the_spot_role_buys_on_demand_from_then_on():
    async def tell(world: World):
        real = world.ec2.machines._problem
        role = ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no role")
        world.ec2.machines._problem = lambda c, o, market: role if market == "spot" else real(c, o, market)
        both = {MARKET: ["spot", "on-demand"]}
        with pytest.raises(InsufficientCapacity):
            await world.provider.create(await world.claim("a", **both))
        assert (await world.provider.create(await world.claim("b", **both))).labels[MARKET] == "on-demand"

    story(tell)


def test_what_is_counted_is_there_to_read():
    async def tell(world: World):
        registry = Registry()
        world.provider.measure(registry)
        world.ec2.exhaust("m5.xlarge", "us-west-2a")
        await all_of(world, [await world.claim(f"c{i}", **{TYPE: ["m5.xlarge"]}) for i in range(3)])
        with pytest.raises(CloudError):
            await world.provider.create(await world.claim("no", **{TYPE: ["m5.xlarge"], ZONE: ["us-west-2a"]}))
        value = registry.value
        assert value("karpenter_cloudprovider_batcher_batch_size", batcher="create_fleet") == 2
        assert value("karpenter_cloudprovider_batcher_batch_time_seconds", batcher="create_fleet") == 2
        named = {"service": "EC2", "action": "CreateFleet"}
        assert value("aws_sdk_go_request_total", status_code="200", **named) == 2
        assert value("aws_sdk_go_request_attempt_total", status_code="200", **named) == 2
        assert value("aws_sdk_go_request_retry_count", **named) == 2
        out = {"zone": "us-west-2a", "zone_id": "usw2-az2", "capacity_type": "on-demand"}
        failures = "karpenter_cloudprovider_instance_launch_failures_total"
        assert value(failures, reason="InsufficientInstanceCapacity", **out) == 1
        assert value("karpenter_ec2nodeclasses_userdata_bytes", nodeclass="default") > 500

    story(tell)
