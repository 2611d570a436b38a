"""Who is tried when, what is written about it, and which of several nodes is taken."""

import pytest

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.scheduler.pods import facts
from tests.unit.sim.builders import HOSTNAME, ZONE, Item, names, node, nodes_of, play, pod, pods, ready, workload
from tests.unit.sim.scheduler.passes import a_pass
from tests.unit.sim.scheduler.test_filters import WEB, apart, near, spread, wanting


def test_priority_goes_first_then_age() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        vip = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "vip"}, "value": 1000}
        store.create(vip)
        store.create(pod("b-young", cpu="2"))
        store.create(pod("c-vip", cpu="2", priorityClassName="vip"))
        await loop.at(3)
        store.create(pod("a-younger", cpu="2"))
        await loop.at(5)
        store.create(node("n1", cpu="4"))
        await loop.until(lambda: len(ready(store)) == 2, within_s=20)
        assert names(ready(store)) == ["b-young", "c-vip"]

    play(story)


def test_a_gated_pod_waits_until_its_gates_are_gone() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1"))
        store.create(pod(schedulingGates=[{"name": "example.com/quota"}]))
        await loop.at(5)
        [condition] = store.get("v1", "Pod", "default", "p")["status"]["conditions"]
        assert condition["reason"] == "SchedulingGated"
        store.patch("v1", "Pod", "default", "p", {"spec": {"schedulingGates": None}})
        await loop.until(lambda: len(ready(store)) == 1, within_s=10)

    play(story)


def test_another_schedulers_pods_are_left_alone() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1"))
        store.create(pod(schedulerName="mine"))
        await loop.at(30)
        found = store.get("v1", "Pod", "default", "p")
        assert "nodeName" not in found["spec"]
        assert not found["status"].get("conditions")

    play(story)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.create(node("n2", cpu="8")),
        lambda store: store.delete("v1", "Pod", "default", "big"),
        lambda store: store.patch("v1", "Node", "", "n1", {"status": {"allocatable": {"cpu": "8"}}}, "status"),
    ],
    ids=["a node came", "a pod went", "a node grew"],
)
def test_a_pod_that_failed_is_tried_again_when_that_may_help(change: object) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1", cpu="4"))
        store.create(pod("big", cpu="3"))
        store.create(pod("p", cpu="2"))
        await loop.at(100)
        assert names(ready(store)) == ["big"]
        change(store)  # type: ignore[operator]
        await loop.until(lambda: "p" in names(ready(store)), within_s=15)

    play(story)


def test_a_pod_that_wants_company_is_tried_again_when_the_company_comes() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1"))
        store.create(pod("guest", **near()))
        await loop.at(100)
        assert ready(store) == []
        store.create(pod("host", labels=WEB))
        await loop.until(lambda: names(ready(store)) == ["guest", "host"], within_s=10)

    play(story)


def test_unschedulable_pods_are_told_once_a_change_not_once_a_try() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        writes: list[str] = []
        store.on_written(lambda _verb, kind, key: writes.append(key) if kind.kind == "Pod" else None)
        store.create(pod("p", cpu="64"))
        for number in range(20):
            store.create(node(f"n{number}"))
            await loop.at(number + 1)
        await loop.at(60)
        assert len(writes) <= 1 + 4
        text = store.get("v1", "Pod", "default", "p")["status"]["conditions"][0]["message"]
        assert text == "0/20 nodes are available: 20 Insufficient cpu."
        events = [e for e in store.list("v1", "Event")[0] if e["reason"] == "FailedScheduling"]
        assert events[-1]["message"] == text
        assert events[-1]["type"] == "Warning"

    play(story)


def test_spread_lets_every_zone_fill_evenly() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "c")):
            store.create(node(name, zone=zone, cpu="16"))
        await loop.at(1)
        store.create(workload("Deployment", replicas=9, pods=spread()))
        await loop.until(lambda: len(ready(store)) == 9, within_s=20)
        assert [nodes_of(pods(store)).count(n) for n in ("n1", "n2", "n3")] == [3, 3, 3]

    play(story)


def best(asked: Item, nodes: list[Item], standing: list[Item] = ()) -> str:  # type: ignore[assignment]
    verdict = a_pass(nodes, standing).judge(facts(asked))
    assert verdict.node is not None
    return verdict.node.name


def preferring(weight: int, term: Item) -> Item:
    terms = [{"weight": weight, "preference": term}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("name", "asked", "nodes", "standing", "wanted"),
    [
        ("a tie goes by name", pod(), [node("n2"), node("n1")], [], "n1"),
        ("the emptier", pod(), [node("n1"), node("n2")], [pod("s", nodeName="n1", cpu="1")], "n2"),
        ("the preferred", pod(**preferring(1, wanting(ZONE, "In", "b"))), [node("n1"), node("n2", zone="b")], [], "n2"),
        (
            "not the one with a soft taint",
            pod(),
            [node("n1", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), node("n2")],
            [],
            "n2",
        ),
        (
            "the zone with fewer, where a soft spread asks",
            pod(labels=WEB, **spread(whenUnsatisfiable="ScheduleAnyway")),
            [node("n1", zone="a"), node("n2", zone="b")],
            [pod("s", labels=WEB, nodeName="n1"), pod("t", nodeName="n2", cpu="1")],
            "n2",
        ),
        (
            "near those it would like",
            pod(
                affinity={
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 100, "podAffinityTerm": {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": WEB}}}
                        ]
                    }
                }
            ),
            [node("n1"), node("n2")],
            [pod("s", labels=WEB, nodeName="n2")],
            "n2",
        ),
        (
            "near those who need its like near",
            pod(labels=WEB),
            [node("n1"), node("n2")],
            [pod("s", nodeName="n2", **near(HOSTNAME))],
            "n2",
        ),
    ],
)
def test_the_best_node(name: str, asked: Item, nodes: list[Item], standing: list[Item], wanted: str) -> None:
    assert best(asked, nodes, standing) == wanted, name


def test_hostname_anti_affinity_takes_a_node_each() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        for number in range(4):
            store.create(node(f"n{number}"))
        await loop.at(1)
        store.create(workload("Deployment", replicas=5, pods=apart(HOSTNAME)))
        await loop.at(20)
        assert nodes_of(pods(store)) == ["", "n0", "n1", "n2", "n3"]

    play(story)


def test_a_pod_that_wants_to_be_alone_counts_from_the_moment_it_is_placed() -> None:
    judge = a_pass([node("n1"), node("n2")])
    first, loner, second = (facts(p) for p in (pod("a", labels=WEB), pod("b", cpu="1m", **apart(HOSTNAME)), pod("c", labels=WEB)))
    taken = []
    for one in (first, loner, second):
        verdict = judge.judge(one)
        assert verdict.node is not None
        judge.placed(one, verdict.node)
        taken.append(verdict.node.name)
    assert taken == ["n1", "n2", "n1"]


def test_among_many_nodes_enough_are_asked_and_the_next_pod_begins_behind_them() -> None:
    judge = a_pass([node(f"n{i:03}") for i in range(300)])
    asked = facts(pod())
    kind = judge._kind(asked)
    first, _ = judge._feasible(kind, asked)
    second, _ = judge._feasible(kind, asked)
    assert (len(first), len(second)) == (144, 144)
    assert not {n.name for n in first} & {n.name for n in second}
