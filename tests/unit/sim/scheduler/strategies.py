"""Random nodes and pods with every rule that the scheduler knows but volumes, small enough that they often meet."""

from typing import Any

from hypothesis import strategies as st

from tests.unit.sim.builders import HOSTNAME, ZONE, Item, container, node

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
