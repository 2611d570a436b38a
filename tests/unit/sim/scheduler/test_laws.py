"""No placement breaks a rule, and no pod is refused that some node could take, as a second opinion sees it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from kubewright.sim.scheduler.pods import facts
from tests.unit.sim.builders import HOSTNAME, ZONE, Item, container, node, play, pods
from tests.unit.sim.scheduler import recheck
from tests.unit.sim.scheduler.passes import a_pass

TAINTS = [
    {"key": "gpu", "effect": "NoSchedule"},
    {"key": "team", "value": "x", "effect": "NoExecute"},
    {"key": "old", "effect": "PreferNoSchedule"},
]
TOLERATIONS = [
    {"key": "gpu", "operator": "Exists"},
    {"key": "team", "value": "x", "effect": "NoExecute"},
    {"key": "team", "value": "y"},
    {"operator": "Exists"},
]
APPS = [{"app": "a"}, {"app": "b"}, {}]
KEYS = [ZONE, HOSTNAME, "rack"]
EXPRESSIONS = [
    {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    {"key": ZONE, "operator": "NotIn", "values": ["a"]},
    {"key": "rack", "operator": "Exists", "values": []},
    {"key": "rack", "operator": "DoesNotExist", "values": []},
]


def some(options: list[Any], most: int = 2, least: int = 0) -> st.SearchStrategy[list[Any]]:
    """Some of the options, each at most once, in their order."""
    indexes = st.sets(st.integers(0, len(options) - 1), min_size=least, max_size=most)
    return indexes.map(lambda chosen: [options[i] for i in sorted(chosen)])


@st.composite
def nodes(draw: st.DrawFn) -> list[Item]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        extra = {"rack": draw(st.sampled_from(["r1", "r2"]))} if draw(st.booleans()) else {}
        found.append(
            node(
                f"n{number}",
                zone=draw(st.sampled_from(["a", "b", "c"])),
                cpu=draw(st.sampled_from(["1", "2", "3500m"])),
                memory="4Gi",
                pods=draw(st.sampled_from(["2", "9"])),
                labels=extra,
                taints=draw(some(TAINTS, 1)),
            )
        )
    return found


def term(labels: Item, key: str) -> Item:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


@st.composite
def asked_pods(draw: st.DrawFn) -> list[Item]:
    """A few templates, and a few pods of each, so that pods that look alike are common."""
    templates = [draw(a_template()) for _ in range(draw(st.integers(1, 3)))]
    found = []
    for number in range(draw(st.integers(1, 10))):
        made = draw(st.sampled_from(templates))
        found.append({**made, "metadata": {**made["metadata"], "name": f"p{number}", "uid": f"uid-{number}"}})
    return found


@st.composite
def a_template(draw: st.DrawFn) -> Item:
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 5)) == 0 else []
    spec: Item = {
        "containers": [
            container(draw(st.sampled_from(["100m", "900m", "2"])), draw(st.sampled_from(["1Gi", "2Gi"])), ports=ports)
        ],
        "tolerations": draw(some(TOLERATIONS)),
    }
    affinity: Item = {}
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    if draw(st.integers(0, 2)) == 0:
        chosen = [{"matchExpressions": draw(some(EXPRESSIONS, least=1))} for _ in range(draw(st.integers(1, 2)))]
        affinity["nodeAffinity"] = {field: {"nodeSelectorTerms": chosen}}
    for side in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 2)) == 0:
            affinity[side] = {field: [term(draw(st.sampled_from(APPS[:2])), draw(st.sampled_from(KEYS)))]}
    if affinity:
        spec["affinity"] = affinity
    if draw(st.booleans()):
        rules = []
        for key in draw(some(KEYS)):
            rule = {**term(draw(st.sampled_from(APPS[:2])), key), "maxSkew": draw(st.integers(1, 2))}
            rule["whenUnsatisfiable"] = draw(st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]))
            if rule["whenUnsatisfiable"] == "DoNotSchedule" and draw(st.booleans()):
                rule["minDomains"] = draw(st.integers(1, 3))
            if draw(st.booleans()):
                rule["nodeTaintsPolicy"] = "Honor"
            rules.append(rule)
        spec["topologySpreadConstraints"] = rules
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "labels": draw(st.sampled_from(APPS))},
        "spec": spec,
    }


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
