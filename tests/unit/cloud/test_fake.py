"""The fake EC2 refuses what the real one refuses, and is the same for the same seed."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from kubewright.clock import Clock
from kubewright.cloud.aws import api
from kubewright.cloud.aws.errors import AwsError
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.loop import run

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
AMI_PARAMETER = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"


def story(tell, faults: Faults | None = None, seed: int = 0):
    async def main():
        ec2 = FakeEc2(Clock(datetime(2026, 11, 29, tzinfo=UTC)), seed, faults)
        try:
            return await tell(ec2)
        finally:
            ec2.stop()

    return run(main(), limit_s=7 * 24 * 3600)


async def fleet(
    ec2: FakeEc2, *types: str, market: str = "on-demand", count: int = 1, token: str = "", **change
) -> api.CreateFleet:
    image = (await ec2.get_parameter(api.GetParameter(name=AMI_PARAMETER))).parameter.value
    if "t" not in ec2.account.templates:
        data = api.LaunchTemplateData(image_id=image)
        await ec2.create_launch_template(api.CreateLaunchTemplate(launch_template_name="t", launch_template_data=data))
    overrides = tuple(
        replace(api.Override(instance_type=t, subnet_id=s, image_id=image), **change)
        for t in types
        for s in sorted(ec2.account.subnets)
    )
    config = api.TemplateConfig(
        launch_template_specification=api.TemplateSpecification(launch_template_name="t", version="$Latest"), overrides=overrides
    )
    target = api.TargetCapacity(total_target_capacity=count, default_target_capacity_type=market)
    return api.CreateFleet(
        type="instant", launch_template_configs=(config,), target_capacity_specification=target, client_token=token
    )


def bought(answer: api.FleetAnswer) -> tuple[str, ...]:
    return tuple(i for each in answer.instances for i in each.instance_ids)


@pytest.mark.parametrize(
    ("types", "change", "code"),
    [
        (("zz9.huge",), {}, "InvalidParameterValue"),
        (("m5.large",), {"subnet_id": "subnet-1"}, "InvalidSubnetID.NotFound"),
        (("m5.large",), {"image_id": "ami-1"}, "InvalidAMIID.NotFound"),
        (("m5.large",), {"availability_zone": "us-west-2d"}, "InvalidParameterCombination"),
    ],
)
def test_a_fleet_of_unknown_things_gets_the_real_error_and_no_machine(types, change, code):
    async def tell(ec2: FakeEc2):
        answer = await ec2.create_fleet(await fleet(ec2, *types, **change))
        assert not answer.instances
        assert {e.error_code for e in answer.errors} == {code}

    story(tell)


def test_a_type_that_no_zone_sells_is_unsupported():
    async def tell(ec2: FakeEc2):
        name = next(n for n in sorted(ec2.market.vcpus) if n not in ec2.market.offered.sold)
        answer = await ec2.create_fleet(await fleet(ec2, name))
        assert {e.error_code for e in answer.errors} == {"Unsupported"}

    story(tell)


def test_unknown_names_in_calls_are_refused():
    async def tell(ec2: FakeEc2):
        request = await fleet(ec2, "m5.large")
        ec2.account.templates.clear()
        refused = [
            (ec2.create_fleet(request), "InvalidLaunchTemplateName.NotFoundException"),
            (ec2.describe_instances(api.DescribeInstances(instance_ids=("i-1",))), "InvalidInstanceID.NotFound"),
            (ec2.terminate_instances(api.TerminateInstances(instance_ids=("i-1",))), "InvalidInstanceID.NotFound"),
            (ec2.create_tags(api.CreateTags(resources=("i-1",), tags=())), "InvalidInstanceID.NotFound"),
            (ec2.describe_subnets(api.DescribeSubnets(filters=(api.Filter(name="x", values=("y",)),))), "InvalidParameterValue"),
            (ec2.get_parameter(api.GetParameter(name="/x")), "ParameterNotFound"),
            (ec2.describe_cluster(api.DescribeCluster(name="x")), "ResourceNotFoundException"),
            (ec2.get_queue_url(api.GetQueueUrl(queue_name="x")), "AWS.SimpleQueueService.NonExistentQueue"),
            (ec2.get_instance_profile(api.GetInstanceProfile(instance_profile_name="x")), "NoSuchEntity"),
            (ec2.describe_instance_types(api.DescribeInstanceTypes(instance_types=("zz9.huge",))), "InvalidInstanceType"),
            (
                ec2.delete_launch_template(api.DeleteLaunchTemplate(launch_template_name="x")),
                "InvalidLaunchTemplateName.NotFoundException",
            ),
        ]
        for call, code in refused:
            with pytest.raises(AwsError) as found:
                await call
            assert found.value.code == code

    story(tell)


def test_the_cheapest_is_bought_and_a_dry_pool_is_named_before_the_next():
    async def tell(ec2: FakeEc2):
        ec2.exhaust("m5.large", "us-west-2a")
        answer = await ec2.create_fleet(await fleet(ec2, "m5.xlarge", "m5.large", count=3))
        assert {i.instance_type for i in answer.instances} == {"m5.large"}
        assert all(i.launch_template_and_overrides.overrides for i in answer.instances)
        ec2.exhaust()
        nothing = await ec2.create_fleet(await fleet(ec2, "m5.xlarge", "m5.large"))
        assert not nothing.instances
        assert {e.error_code for e in nothing.errors} == {"InsufficientInstanceCapacity"}
        assert len(nothing.errors) == 6

    story(tell)


def test_pools_run_out_and_fill_again_when_machines_end():
    async def tell(ec2: FakeEc2):
        first = await ec2.create_fleet(await fleet(ec2, "m5.large", count=7))
        ids = bought(first)
        assert len(ids) == 6
        await asyncio.sleep(60)
        await ec2.terminate_instances(api.TerminateInstances(instance_ids=ids))
        await asyncio.sleep(60)
        assert len(bought(await ec2.create_fleet(await fleet(ec2, "m5.large", count=7)))) == 6

    story(tell, Faults(pool_size=2))


def test_a_client_token_buys_once_and_refuses_another_request():
    async def tell(ec2: FakeEc2):
        request = await fleet(ec2, "m5.large", token="a")
        assert await ec2.create_fleet(request) == await ec2.create_fleet(request)
        assert len(ec2.running()) == 1
        with pytest.raises(AwsError) as found:
            await ec2.create_fleet(await fleet(ec2, "m5.xlarge", token="a"))
        assert found.value.code == "IdempotentParameterMismatch"

    story(tell)


def test_quota_and_addresses_run_out():
    async def tell(ec2: FakeEc2):
        answer = await ec2.create_fleet(await fleet(ec2, "m5.large", count=5))
        assert len(bought(answer)) == 2
        assert {e.error_code for e in answer.errors} == {"VcpuLimitExceeded"}
        ec2.faults = Faults(vcpu_quota=0)
        for subnet in sorted(ec2.account.subnets):
            ec2.account.take_address(subnet, ec2.account.subnets[subnet].available_ip_address_count)
        full = await ec2.create_fleet(await fleet(ec2, "m5.large"))
        assert {e.error_code for e in full.errors} == {"InsufficientFreeAddressesInSubnet"}

    story(tell, Faults(vcpu_quota=4))


def test_a_life_from_pending_to_terminated_and_its_bill():
    async def tell(ec2: FakeEc2):
        seen = []
        ec2.on_running(lambda m: seen.append(("running", m.provider_id)))
        ec2.on_terminated(lambda p: seen.append(("terminated", p)))
        answer = await ec2.create_fleet(await fleet(ec2, "m5.large"))
        (name,) = answer.instances[0].instance_ids
        states = []
        for wait in (1, 60, 3540):
            await asyncio.sleep(wait)
            states.append(ec2.machines.all[name].seen.state.name)
        await ec2.terminate_instances(api.TerminateInstances(instance_ids=(name,)))
        states.append(ec2.machines.all[name].seen.state.name)
        await asyncio.sleep(30)
        states.append(ec2.machines.all[name].seen.state.name)
        assert states == ["pending", "running", "running", "shutting-down", "terminated"]
        assert [s for s, _ in seen] == ["running", "terminated"]
        (bill,) = ec2.costs()
        assert bill.usd == pytest.approx(0.096 * bill.hours)
        assert 0.98 < bill.hours < 1.0
        assert ec2.usd_per_hour() == 0

    story(tell)


def test_an_interruption_is_told_two_minutes_ahead():
    async def tell(ec2: FakeEc2):
        answer = await ec2.create_fleet(await fleet(ec2, "m5.large", market="spot"))
        (name,) = answer.instances[0].instance_ids
        await asyncio.sleep(60)
        ec2.interrupt(name)
        ec2.interrupt(name)
        got = await ec2.receive_message(
            api.ReceiveMessage(queue_url=ec2.queue.url, max_number_of_messages=10, visibility_timeout=20)
        )
        (message,) = got.messages
        assert "EC2 Spot Instance Interruption Warning" in message.body
        again = await ec2.receive_message(api.ReceiveMessage(queue_url=ec2.queue.url, max_number_of_messages=10))
        assert not again.messages, "hidden for 20 s"
        late = await ec2.receive_message(
            api.ReceiveMessage(queue_url=ec2.queue.url, max_number_of_messages=10, visibility_timeout=20, wait_time_seconds=20)
        )
        assert late.messages[0].body == message.body
        await ec2.delete_message(api.DeleteMessage(queue_url=ec2.queue.url, receipt_handle=late.messages[0].receipt_handle))
        assert len(ec2.queue) == 0
        assert len(ec2.running()) == 1
        await asyncio.sleep(121)
        assert not ec2.running()

    story(tell)


def test_spot_machines_are_taken_back_at_the_rate_asked_for():
    async def tell(ec2: FakeEc2):
        await ec2.create_fleet(await fleet(ec2, "m5.large", "m5.xlarge", market="spot", count=40))
        await asyncio.sleep(3600)
        return sum(m.noticed for m in ec2.machines.all.values())

    taken = story(tell, Faults(interruptions_per_hour=0.5))
    assert 4 <= taken <= 20


def test_new_machines_show_late_and_pages_are_pages():
    async def tell(ec2: FakeEc2):
        answer = await ec2.create_fleet(await fleet(ec2, "m5.large", count=5))
        name = bought(answer)[0]
        with pytest.raises(AwsError, match="does not exist"):
            await ec2.describe_instances(api.DescribeInstances(instance_ids=(name,)))
        await asyncio.sleep(11)
        first = await ec2.describe_instances(api.DescribeInstances(max_results=3))
        second = await ec2.describe_instances(api.DescribeInstances(max_results=3, next_token=first.next_token))
        assert (len(first.instances), len(second.instances), second.next_token) == (3, 2, "")

    story(tell, Faults(describe_lag_s=10))


def test_too_many_calls_are_refused_until_the_bucket_fills():
    async def tell(ec2: FakeEc2):
        codes = []
        for _ in range(5):
            try:
                await ec2.describe_subnets(api.DescribeSubnets())
                codes.append("")
            except AwsError as error:
                codes.append(error.code)
        await asyncio.sleep(2)
        await ec2.describe_subnets(api.DescribeSubnets())
        return codes

    assert story(tell, Faults(calls_per_s=1, calls_burst=3, call_s=0)) == [
        "",
        "",
        "",
        "RequestLimitExceeded",
        "RequestLimitExceeded",
    ]


def test_scripted_faults_come_before_or_after_the_effect_and_hooks_hear_both():
    async def tell(ec2: FakeEc2):
        heard = []
        request = await fleet(ec2, "m5.large")
        ec2.on_write = lambda operation, when: heard.append((operation, when))
        ec2.fail_next("CreateFleet", "InternalError", status=500)
        ec2.fail_next("CreateFleet", "RequestTimeout", after=True, status=0)
        for bought in (0, 1):
            with pytest.raises(AwsError):
                await ec2.create_fleet(request)
            assert len(ec2.running()) == bought
        assert heard == [("CreateFleet", "before"), ("CreateFleet", "after")]

    story(tell)


def test_spot_prices_move_by_the_hour_within_bounds_and_by_the_seed():
    async def tell(ec2: FakeEc2):
        start = datetime(2026, 11, 29, tzinfo=UTC)
        days = [ec2.market.spot(start + timedelta(hours=h)) for h in range(0, 48, 6)]
        assert len({d["m5.large", "us-west-2a"] for d in days}) > 1
        for day in days:
            assert all(0.1 * ec2.market.on_demand[t] - 1e-4 <= p <= ec2.market.on_demand[t] for (t, _), p in day.items())
        return days[0]

    assert story(tell, seed=1) == story(tell, seed=1)
    assert story(tell, seed=1) != story(tell, seed=2)


def test_a_bill_for_spot_follows_the_price():
    async def tell(ec2: FakeEc2):
        start = datetime(2026, 11, 29, 0, 30, tzinfo=UTC)
        pool = ("m5.large", "us-west-2a", "spot")
        whole = ec2.market.cost(pool, start, start + timedelta(hours=3))
        parts = sum(
            ec2.market.cost(pool, start + timedelta(minutes=m), start + timedelta(minutes=m + 15)) for m in range(0, 180, 15)
        )
        assert whole == pytest.approx(parts)

    story(tell)
