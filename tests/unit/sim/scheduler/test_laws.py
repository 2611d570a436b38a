"""No placement breaks a rule, and no pod is refused that some node could take, as a second opinion sees it."""

from hypothesis import given, settings

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.scheduler.pods import facts
from tests.unit.sim.builders import Item, play, pods
from tests.unit.sim.scheduler import recheck
from tests.unit.sim.scheduler.passes import a_pass
from tests.unit.sim.scheduler.strategies import asked_pods, nodes


@settings(max_examples=400, deadline=None)
@given(nodes(), asked_pods())
def test_a_pass_breaks_no_rule_and_refuses_no_pod_that_could_stand(there: list[Item], asked: list[Item]) -> None:
    judge = a_pass(there)
    standing: list[Item] = []
    for obj in asked:
        verdict = judge.judge(facts(obj))
        possible = [n["metadata"]["name"] for n in there if not recheck.broken(obj, n, there, standing)]
        if verdict.node is None:
            assert possible == []
            assert verdict.message.startswith(f"0/{len(there)} nodes are available: ")
        else:
            assert verdict.node.name in possible
            judge.placed(facts(obj), verdict.node)
            standing.append({**obj, "spec": {**obj["spec"], "nodeName": verdict.node.name}})


@settings(max_examples=60, deadline=None)
@given(nodes(), asked_pods())
def test_a_cluster_never_overfills_a_node_nor_leaves_a_pod_that_could_stand(there: list[Item], asked: list[Item]) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        for obj in there:
            store.create(obj)
        await loop.at(1)
        for obj in asked:
            store.create(obj)
        await loop.at(60)
        bound = [p for p in pods(store) if p["spec"].get("nodeName")]
        now, _version = store.list("v1", "Node")
        for one in now:
            empty = {"metadata": {}, "spec": {"containers": []}}
            assert recheck.fits(empty, {**one, "status": {"allocatable": {**one["status"]["allocatable"], "pods": "99"}}}, bound)
            assert len(recheck.on(one, bound)) <= int(one["status"]["allocatable"]["pods"])
        for obj in bound:
            home = recheck.home(obj, now)
            others = [p for p in bound if p is not obj]
            assert recheck.wants(obj, home)
            assert recheck.tolerates(obj, home)
            assert recheck.keeps_apart(obj, home, now, others)
            assert recheck.ports_free(obj, home, others)
        for obj in pods(store):
            if not obj["spec"].get("nodeName"):
                assert all(recheck.broken(obj, one, now, bound) for one in now)

    play(story)
