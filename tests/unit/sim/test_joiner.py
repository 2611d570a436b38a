"""From a running instance to a Ready node, and back."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kubewright.api.core import Taint
from kubewright.clock import Clock
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.joiner import Joiner, JoinerSettings, Machine
from tests.unit.sim.builders import Item, names, nodes_of, pod, pods, ready

UNREGISTERED = Taint(key="karpenter.sh/unregistered", effect="NoExecute")


def machine(number: int = 1, **more: Any) -> Machine:
    room = {"cpu": "2", "memory": "7Gi", "pods": "29", "ephemeral-storage": "20Gi"}
    fields = {
        "provider_id": f"aws:///us-west-2a/i-{number:04}",
        "node_name": f"ip-10-0-0-{number}.us-west-2.compute.internal",
        "instance_type": "m5.large",
        "zone": "us-west-2a",
        "region": "us-west-2",
        "address": f"10.0.0.{number}",
        "capacity": room,
        "allocatable": {**room, "cpu": "1930m"},
        "labels": {"karpenter.sh/nodepool": "default"},
        "taints": (UNREGISTERED,),
        "volume_limit": 26,
    }
    return Machine(**(fields | more))


def play(
    story: Callable[[Store, PretendCluster, Joiner], Coroutine[Any, Any, None]],
    settings: JoinerSettings | None = None,
    never_joins: Callable[[Machine], bool] = lambda _: False,
) -> None:
    async def main() -> None:
        clock = Clock(loop.EPOCH)
        store = Store(clock)
        async with PretendCluster(store) as cluster:
            joiner = Joiner(DirectClient(store), clock, settings, never_joins=never_joins, died=cluster.kill_node)
            task = asyncio.create_task(joiner.run())
            await story(store, cluster, joiner)
            task.cancel()

    loop.run(main(), limit_s=10_000)


def nodes(store: Store) -> list[Item]:
    return store.list("v1", "Node")[0]


def test_a_running_machine_joins_with_everything_a_kubelet_and_a_cloud_say_of_it() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine())
        await loop.at(19)
        assert nodes(store) == []
        await loop.at(26)
        [node] = nodes(store)
        assert node["metadata"]["name"] == "ip-10-0-0-1.us-west-2.compute.internal"
        assert node["spec"]["providerID"] == "aws:///us-west-2a/i-0001"
        labels = node["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert {k: v for k, v in labels.items() if not k.startswith(("beta.", "failure-domain.beta", "kubernetes.io/h"))} == {
            "karpenter.sh/nodepool": "default",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-west-2a",
            "topology.kubernetes.io/region": "us-west-2",
            "topology.ebs.csi.aws.com/zone": "us-west-2a",
        }
        taints = {(t["key"], t["effect"]) for t in node["spec"]["taints"]}
        assert {("karpenter.sh/unregistered", "NoExecute"), ("node.kubernetes.io/not-ready", "NoSchedule")} <= taints
        assert node["status"]["allocatable"]["cpu"] == "1930m"
        assert {a["type"] for a in node["status"]["addresses"]} == {"InternalIP", "InternalDNS", "Hostname"}
        [csi] = store.list("storage.k8s.io/v1", "CSINode")[0]
        assert csi["spec"]["drivers"] == [{"name": "ebs.csi.aws.com", "nodeID": "i-0001", "allocatable": {"count": 26}}]
        await loop.at(40)
        [node] = nodes(store)
        assert [t["key"] for t in node["spec"]["taints"]] == ["karpenter.sh/unregistered"]
        assert node["status"]["conditions"][0]["status"] == "True"

    play(story)


def test_a_machine_that_is_terminated_takes_its_node_and_pods_along() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine(1, taints=()))
        joiner.running(machine(2, taints=()))
        store.create(pod())
        await loop.until(lambda: len(ready(store)) == 1, within_s=60)
        [home] = nodes_of(pods(store))
        joiner.terminated("aws:///us-west-2a/i-0001" if "-1." in home else "aws:///us-west-2a/i-0002")
        await loop.until(lambda: len(nodes(store)) == 1, within_s=15)
        assert len(store.list("storage.k8s.io/v1", "CSINode")[0]) == 1
        await loop.until(lambda: not pods(store), within_s=60)

    play(story)


def test_a_node_with_a_finalizer_waits_for_whoever_put_it_there() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine())
        await loop.until(lambda: bool(nodes(store)), within_s=30)
        [name] = names(nodes(store))
        store.patch("v1", "Node", "", name, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        joiner.terminated(machine().provider_id)
        await loop.at(60)
        assert "deletionTimestamp" in nodes(store)[0]["metadata"]
        store.patch("v1", "Node", "", name, {"metadata": {"finalizers": None}})
        assert nodes(store) == []

    play(story)


def test_a_machine_that_dies_before_it_joined_never_joins() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine())
        await loop.at(5)
        joiner.terminated(machine().provider_id)
        joiner.terminated("aws:///us-west-2a/i-unknown")
        await loop.at(100)
        assert nodes(store) == []

    play(story)


def test_a_machine_picked_by_the_fault_switch_never_joins() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine(1))
        joiner.running(machine(2))
        await loop.at(1000)
        assert names(nodes(store)) == [machine(2).node_name]

    play(story, never_joins=lambda m: m.address == "10.0.0.1")


def test_a_server_that_is_away_is_asked_again() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        from kubewright.errors import ServerUnavailable

        def away(verb: str, kind: Any, _key: str) -> None:
            if kind.kind == "Node" and verb == "create" and asyncio.get_running_loop().time() < 90:
                raise ServerUnavailable(503, "ServiceUnavailable", "away")

        store.on_write(away)
        joiner.running(machine())
        await loop.at(89)
        assert nodes(store) == []
        await loop.at(95)
        assert len(nodes(store)) == 1

    play(story)


@pytest.mark.parametrize("seed", [0, 1])
def test_delays_come_from_the_seed_and_the_machine_alone(seed: int) -> None:
    async def both() -> list[float]:
        clock = Clock(loop.EPOCH)
        client = DirectClient(Store(clock))
        one, two = Joiner(client, clock, seed=seed), Joiner(client, clock, seed=seed)
        two.running(machine(9))
        return [one._jitter(machine(1)), two._jitter(machine(1)), one._jitter(machine(2))]

    first, again, other = loop.run(both())
    assert first == again != other


def test_kwok_finds_what_it_looks_for() -> None:
    async def story(store: Store, _: PretendCluster, joiner: Joiner) -> None:
        joiner.running(machine())
        await loop.at(60)
        [node] = nodes(store)
        assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
        assert node["metadata"]["labels"]["type"] == "kwok"

    play(story, JoinerSettings(annotations={"kwok.x-k8s.io/node": "fake"}, labels={"type": "kwok"}))
