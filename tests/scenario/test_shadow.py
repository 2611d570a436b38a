"""A shadow beside a running operator: it decides the same from the same, counts everything once, and writes nothing."""

import asyncio
import contextlib

import msgspec
import pytest

from kubewright.api.core import Pod
from kubewright.kube.client import MergePatch
from kubewright.metrics import Registry
from kubewright.operator.shadow import ReadOnly, Shadow, WroteInShadow
from kubewright.settings import Settings
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.faults import Gate
from tests.scenario.world import World, deployment, node_class, play, pool


@contextlib.asynccontextmanager
async def shadowing(world: World):
    settings = Settings(cluster_name="sandbox")
    client = ReadOnly(DirectClient(world.store))
    shadow = Shadow(client, world.cloud.provider(client, Gate(world.process), settings), settings, world.store.clock, Registry())
    task = asyncio.create_task(shadow.run())
    try:
        await world.until(lambda: shadow.score is not None)
        yield shadow
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_it_would_buy_and_remove_what_the_operator_does():
    async def story(world: World):
        world.apply(node_class(), pool())
        await world.sleep(30)
        async with shadowing(world) as shadow:
            world.apply(deployment(replicas=7))
            await world.until_running(7)
            await world.sleep(60)
            ours, theirs = shadow.score.kubewright, shadow.score.cluster
            assert theirs.bought.nodes == len(world.claims()) == 3
            assert (ours.bought.nodes, ours.bought.usd_per_hour) == (3, pytest.approx(theirs.bought.usd_per_hour))
            assert ours.removed.nodes == theirs.removed.nodes == 0
            # Pods that still wait for machines on their way are not bought for again.
            world.scale("web", 10)
            await world.until_running(10)
            await world.sleep(60)
            assert ours.bought.nodes == theirs.bought.nodes == 4

            world.scale("web", 0)
            await world.until_nothing_is_left()
            assert (ours.removed.nodes, theirs.removed.nodes) == (4, 4)
            assert ours.removed.usd_per_hour == pytest.approx(theirs.removed.usd_per_hour)
            shown = msgspec.json.decode(shadow.as_json())
            assert shown["kubewright"]["bought"]["nodes"] == 4
            assert {one["what"] for one in shown["recent"]} == {"buy", "remove"}
            assert shadow.registry.value("kubewright_shadow_nodes", by="kubewright", what="removed") == 4
            assert shadow.registry.value("kubewright_shadow_usd_per_hour", by="cluster", what="bought") > 0
            lines = shadow.as_table().splitlines()
            assert [line.split()[0] for line in lines[2:]] == ["kubewright", "cluster"]
            assert lines[2].endswith("+0.0000")

    play(story)


def test_nothing_can_be_written():
    async def story(world: World):
        world.apply(deployment(replicas=1))
        await world.until(lambda: world.find(("v1", "Pod")))
        client = ReadOnly(DirectClient(world.store))
        pod = (await client.list(Pod)).items[0]
        for write in (
            client.create(pod),
            client.patch(Pod, pod.name, MergePatch({}), pod.namespace),
            client.delete(Pod, pod.name, pod.namespace),
            client.evict(pod.name, pod.namespace),
        ):
            with pytest.raises(WroteInShadow):
                await write
        assert (await client.get(Pod, pod.name, pod.namespace)) == pod

    play(story)
