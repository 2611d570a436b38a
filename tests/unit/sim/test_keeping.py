"""An account in a file: another process goes on where one was killed."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubewright.clock import Clock
from kubewright.cloud.aws import api
from kubewright.errors import ConfigError
from kubewright.sim import loop
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.ec2.keeping import Keeper

FAULTS = Faults(launch_s=10, launch_jitter_s=0, terminate_s=5)


def story(tell: Callable[[], Awaitable[None]]) -> None:
    loop.run(tell(), limit_s=10_000)


def account(file: Path) -> FakeEc2:
    """What a process sees that starts with this file."""
    ec2 = FakeEc2(Clock(datetime(2026, 11, 29, tzinfo=UTC)), faults=FAULTS)
    keeper = Keeper(ec2, file)
    keeper.check()
    keeper.restore()
    keeper.keep()
    return ec2


async def buy(ec2: FakeEc2, token: str) -> str:
    image = next(iter(ec2.account.images))
    data = api.LaunchTemplateData(image_id=image)
    await ec2.create_launch_template(
        api.CreateLaunchTemplate(launch_template_name="t", launch_template_data=data, client_token="t")
    )
    override = api.Override(instance_type="m5.large", subnet_id=next(iter(ec2.account.subnets)))
    config = api.TemplateConfig(
        launch_template_specification=api.TemplateSpecification(launch_template_name="t", version="$Latest"),
        overrides=(override,),
    )
    target = api.TargetCapacity(total_target_capacity=1, default_target_capacity_type="on-demand")
    request = api.CreateFleet(
        type="instant", launch_template_configs=(config,), target_capacity_specification=target, client_token=token
    )
    answer = await ec2.create_fleet(request)
    return answer.instances[0].instance_ids[0]


def states(ec2: FakeEc2) -> dict[str, str]:
    return {name: machine.seen.state.name for name, machine in ec2.machines.all.items()}


def test_a_machine_bought_by_a_killed_process_still_starts_and_is_told_of(tmp_path: Path) -> None:
    async def tell() -> None:
        file = tmp_path / "ec2.json"
        first = account(file)
        name = await buy(first, "one")
        first.stop()

        second = account(file)
        told: list[str] = []
        second.on_running(lambda machine: told.append(machine.provider_id.rpartition("/")[2]))
        assert states(second) == {name: "pending"}
        await asyncio.sleep(11)
        assert states(second) == {name: "running"}
        assert told == [name]
        # The token is still known, so that a repeated purchase is none; the next machine has another name.
        assert await buy(second, "one") == name
        assert await buy(second, "two") != name
        second.stop()

    story(tell)


def test_whoever_joins_machines_hears_of_those_that_ran_and_of_those_that_ended(tmp_path: Path) -> None:
    async def tell() -> None:
        file = tmp_path / "ec2.json"
        first = account(file)
        runs, going, gone = [await buy(first, token) for token in ("a", "b", "c")]
        await asyncio.sleep(11)
        await first.terminate_instances(api.TerminateInstances(instance_ids=(gone,)))
        await asyncio.sleep(6)
        await first.terminate_instances(api.TerminateInstances(instance_ids=(going,)))
        first.stop()

        second = FakeEc2(Clock(datetime(2026, 11, 29, tzinfo=UTC)), faults=FAULTS)
        running, ended = list[str](), list[str]()
        second.on_running(lambda machine: running.append(machine.provider_id.rpartition("/")[2]))
        second.on_terminated(lambda provider_id: ended.append(provider_id.rpartition("/")[2]))
        Keeper(second, file).restore()
        assert sorted(running) == sorted((runs, going, gone))
        assert ended == [gone]
        await asyncio.sleep(6)
        assert ended == [gone, going]
        assert states(second) == {runs: "running", going: "terminated", gone: "terminated"}
        second.stop()

    story(tell)


@pytest.mark.parametrize("text", ["", "{", '{"machines": 1}'])
def test_another_kind_of_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    async def tell() -> None:
        file = tmp_path / "ec2.json"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"ec2\.json is not such a file .*; remove it, or name another"):
            account(file)

    story(tell)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def tell() -> None:
        with pytest.raises(ConfigError, match=r"no folder .*absent"):
            account(tmp_path / "absent" / "ec2.json")

    story(tell)
