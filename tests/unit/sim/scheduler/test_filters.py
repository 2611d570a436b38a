"""Each filter's rules, a row each. Source: kube-scheduler's own tests of these plugins, in our words."""

import pytest

from kubewright.sim.scheduler.pods import facts
from tests.unit.sim.builders import HOSTNAME, ZONE, Item, container, node, pod
from tests.unit.sim.scheduler.passes import message, where

LABELLED = [
    node("n1", zone="a", labels={"disk": "ssd", "size": "8"}),
    node("n2", zone="b", labels={"disk": "hdd", "size": "16"}),
    node("n3", zone="c"),
]


def required(*terms: Item) -> Item:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def wanting(key: str, operator: str, *values: str) -> Item:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({}, ["n1", "n2", "n3"]),
        ({"nodeName": "n2"}, ["n2"]),
        ({"nodeSelector": {"disk": "ssd"}}, ["n1"]),
        ({"nodeSelector": {"disk": "ssd", ZONE: "b"}}, []),
        ({"affinity": required(wanting("disk", "In", "ssd", "nvme"))}, ["n1"]),
        ({"affinity": required(wanting("disk", "NotIn", "ssd"))}, ["n2", "n3"]),
        ({"affinity": required(wanting("disk", "Exists"))}, ["n1", "n2"]),
        ({"affinity": required(wanting("disk", "DoesNotExist"))}, ["n3"]),
        ({"affinity": required(wanting("size", "Gt", "8"))}, ["n2"]),
        ({"affinity": required(wanting("size", "Lt", "16"))}, ["n1"]),
        ({"affinity": required(wanting("disk", "Gt", "1"))}, []),
        ({"affinity": required(wanting("disk", "In", "ssd"), wanting(ZONE, "In", "c"))}, ["n1", "n3"]),
        ({"affinity": required({})}, []),
        ({"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]})}, ["n3"]),
        (
            {"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}]})},
            ["n1", "n2"],
        ),
        ({"affinity": required(wanting("disk", "Exists")), "nodeSelector": {ZONE: "b"}}, ["n2"]),
    ],
)
def test_node_affinity(spec: Item, nodes: list[str]) -> None:
    assert where(pod(**spec), LABELLED) == nodes


@pytest.mark.parametrize(
    ("taint", "toleration", "may"),
    [
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, None, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, None, False),
        ({"key": "k", "value": "v", "effect": "PreferNoSchedule"}, None, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "value": "w", "effect": "NoSchedule"}, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"operator": "Exists"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "k", "effect": "NoSchedule"}, {"key": "k", "operator": "Equal"}, True),
        ({"key": "k", "value": "5", "effect": "NoSchedule"}, {"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_taints(taint: Item, toleration: Item | None, may: bool) -> None:
    asked = pod(tolerations=[toleration] if toleration else [])
    assert bool(where(asked, [node("n1", taints=[taint])])) == may


@pytest.mark.parametrize(
    ("toleration", "may"),
    [(None, False), ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True), ({"operator": "Exists"}, True)],
)
def test_a_cordoned_node_takes_only_who_tolerates_that(toleration: Item | None, may: bool) -> None:
    asked = pod(tolerations=[toleration] if toleration else [])
    assert bool(where(asked, [node("n1", unschedulable=True)])) == may


def asking(*containers: Item, init: tuple[Item, ...] = (), **spec: Item) -> Item:
    return {**pod(), "spec": {"containers": list(containers), "initContainers": list(init), **spec}}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("asked", "cpu"),
    [
        (asking(container("1"), container("500m")), 1500),
        (asking(container("0.0001")), 1),  # rounds up to a thousandth
        (asking(container("1"), init=(container("3"),)), 3000),
        (asking(container("1"), init=(container("500m", **SIDECAR),)), 1500),
        (asking(container("1"), init=(container("500m", **SIDECAR), container("2"))), 2500),
        (asking(container("1"), init=(container("2"), container("500m", **SIDECAR))), 2000),
        (asking(container("1"), overhead={"cpu": "250m"}), 1250),
        (asking(container("1"), init=(container("3"),), overhead={"cpu": "250m"}), 3250),
        (asking(container("1"), resources={"requests": {"cpu": "2"}}), 2000),
        (asking(container("1"), resources={"requests": {"cpu": "2"}}, overhead={"cpu": "1"}), 3000),
    ],
)
def test_what_a_pod_needs_is_its_busiest_moment(asked: Item, cpu: int) -> None:
    assert facts(asked).requests["cpu"] == cpu


def test_a_resize_counts_at_its_larger_end_unless_it_is_infeasible() -> None:
    asked = asking(container("2"))
    asked["status"] = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "3"}}]}
    assert facts(asked).requests["cpu"] == 3000
    asked["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] = "1"
    assert facts(asked).requests["cpu"] == 2000
    asked["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert facts(asked).requests["cpu"] == 1000


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (pod(cpu="5"), "0/1 nodes are available: 1 Insufficient cpu."),
        (asking(container("5", "17Gi")), "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
        (
            asking({"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}),
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        ),
    ],
)
def test_every_shortage_is_named(asked: Item, text: str) -> None:
    assert message(asked, [node("n1")]) == text


def test_pods_count_even_if_they_ask_for_nothing() -> None:
    standing = [pod(f"s{i}", cpu="0", nodeName="n1") for i in range(2)]
    text = "0/1 nodes are available: 1 Too many pods."
    assert message(pod("p", cpu="0"), [node("n1", pods="2")], standing) == text


def test_an_overfull_resource_does_not_matter_to_who_does_not_ask_for_it() -> None:
    standing = [pod("s", cpu="9", nodeName="n1")]
    asked = asking({"name": "c", "resources": {"requests": {"memory": "1Gi"}}})
    assert where(asked, [node("n1")], standing) == ["n1"]


def ported(name: str, number: int, *, address: str = "", protocol: str = "TCP", **spec: Item) -> Item:
    port = {"containerPort": number, "hostPort": number, "hostIP": address, "protocol": protocol}
    return {**pod(name), "spec": {"containers": [container(ports=[port])], **spec}}


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        (ported("p", 80), False),
        (ported("p", 81), True),
        (ported("p", 80, protocol="UDP"), True),
        (ported("p", 80, address="127.0.0.1"), False),
        (ported("p", 80, address="0.0.0.0"), False),
    ],
)
def test_host_ports_against_one_on_all_addresses(asked: Item, may: bool) -> None:
    assert bool(where(asked, [node("n1")], [ported("s", 80, nodeName="n1")])) == may


def test_the_same_port_on_two_addresses_is_no_conflict() -> None:
    standing = [ported("s", 80, address="10.0.0.1", nodeName="n1")]
    assert where(ported("p", 80, address="10.0.0.2"), [node("n1")], standing) == ["n1"]
    assert where(ported("p", 80, address="10.0.0.1"), [node("n1")], standing) == []


def test_the_sentence_counts_each_nodes_first_filter_and_sorts_as_text() -> None:
    tainted = [node(f"t{i}", taints=[{"key": "k", "effect": "NoSchedule"}]) for i in range(11)]
    nodes = [*tainted, node("small", cpu="1"), node("cordoned", unschedulable=True), node("other", zone="z")]
    asked = pod(cpu="2", nodeSelector={ZONE: "a"})
    assert message(asked, nodes) == (
        "0/14 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) were unschedulable, 11 node(s) had untolerated taint(s)."
    )


def test_a_daemons_pod_is_only_asked_about_its_node() -> None:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    asked = pod(cpu="9", affinity=required(pin))
    assert message(asked, [node("n1"), node("n2"), node("n3")]) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_without_nodes_it_says_so() -> None:
    assert message(pod(), []) == "no nodes available to schedule pods"


# topology spread

THREE_ZONES = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="c")]
WEB = {"app": "web"}


def spread(key: str = ZONE, skew: int = 1, **more: Item) -> Item:
    rule = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": WEB}}
    return {"topologySpreadConstraints": [{**rule, **more}]}


def web(name: str, on: str, **spec: Item) -> Item:
    return pod(name, labels=WEB, nodeName=on, **spec)


def going(name: str, on: str) -> Item:
    leaving = web(name, on)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return leaving


@pytest.mark.parametrize(
    ("name", "asked", "nodes", "standing", "where_to"),
    [
        ("the emptiest domains only", pod(labels=WEB, **spread()), THREE_ZONES, [web("s", "n1")], ["n2", "n3"]),
        ("a wider skew", pod(labels=WEB, **spread(skew=2)), THREE_ZONES, [web("s", "n1")], ["n1", "n2", "n3"]),
        ("who does not match itself adds nothing", pod(**spread()), THREE_ZONES, [web("s", "n1")], ["n1", "n2", "n3"]),
        (
            "who does not match itself still minds the others",
            pod(**spread()),
            THREE_ZONES,
            [web("s", "n1"), web("t", "n1")],
            ["n2", "n3"],
        ),
        ("pods that are going do not count", pod(labels=WEB, **spread()), THREE_ZONES, [going("s", "n1")], ["n1", "n2", "n3"]),
        (
            "pods of other namespaces do not count",
            pod(labels=WEB, **spread()),
            THREE_ZONES,
            [pod("s", namespace="other", labels=WEB, nodeName="n1")],
            ["n1", "n2", "n3"],
        ),
        ("a node without the label is out", pod(labels=WEB, **spread("rack")), THREE_ZONES, [], []),
        (
            "nodes that the pod's own affinity rules out make no domain",
            pod(labels=WEB, nodeSelector={"pool": "x"}, **spread()),
            [*(node(n, zone=z, labels={"pool": "x"}) for n, z in (("n1", "a"), ("n2", "b"))), node("n3", zone="c")],
            [web("s", "n1"), web("t", "n2")],
            ["n1", "n2"],
        ),
        (
            "unless the policy says to ignore it",
            pod(labels=WEB, nodeSelector={"pool": "x"}, **spread(nodeAffinityPolicy="Ignore")),
            [*(node(n, zone=z, labels={"pool": "x"}) for n, z in (("n1", "a"), ("n2", "b"))), node("n3", zone="c")],
            [web("s", "n1"), web("t", "n2")],
            [],
        ),
        (
            "tainted nodes make a domain",
            pod(labels=WEB, **spread()),
            [*THREE_ZONES[:2], node("n3", zone="c", taints=[{"key": "k", "effect": "NoSchedule"}])],
            [web("s", "n1"), web("t", "n2")],
            [],
        ),
        (
            "unless the policy says to honour taints",
            pod(labels=WEB, **spread(nodeTaintsPolicy="Honor")),
            [*THREE_ZONES[:2], node("n3", zone="c", taints=[{"key": "k", "effect": "NoSchedule"}])],
            [web("s", "n1"), web("t", "n2")],
            ["n1", "n2"],
        ),
        (
            "with too few domains the minimum is zero",
            pod(labels=WEB, **spread(minDomains=4)),
            THREE_ZONES,
            [web("s", "n1"), web("t", "n2"), web("u", "n3")],
            [],
        ),
        (
            "with enough domains it is not",
            pod(labels=WEB, **spread(minDomains=3)),
            THREE_ZONES,
            [web("s", "n1"), web("t", "n2"), web("u", "n3")],
            ["n1", "n2", "n3"],
        ),
        (
            "matchLabelKeys counts only the same revision",
            pod(labels={**WEB, "rev": "2"}, **spread(matchLabelKeys=["rev"])),
            THREE_ZONES,
            [pod("s", labels={**WEB, "rev": "1"}, nodeName="n1"), pod("t", labels={**WEB, "rev": "2"}, nodeName="n2")],
            ["n1", "n3"],
        ),
        (
            "by hostname inside one zone",
            pod(labels=WEB, **spread(HOSTNAME)),
            [node("n1"), node("n2"), node("n3")],
            [web("s", "n1"), web("t", "n2")],
            ["n3"],
        ),
        (
            "two constraints, and a node lacking one label counts for neither",
            pod(
                labels=WEB,
                topologySpreadConstraints=[
                    *spread()["topologySpreadConstraints"],
                    *spread("rack")["topologySpreadConstraints"],
                ],
            ),
            [node("n1", zone="a", labels={"rack": "r1"}), node("n2", zone="b", labels={"rack": "r2"}), node("n3", zone="c")],
            [web("s", "n1"), web("t", "n2")],
            ["n1", "n2"],
        ),
        (
            "no selector counts nothing",
            pod(labels=WEB, **spread(labelSelector=None)),
            THREE_ZONES,
            [web("s", "n1"), web("t", "n1")],
            ["n1", "n2", "n3"],
        ),
    ],
)
def test_topology_spread(name: str, asked: Item, nodes: list[Item], standing: list[Item], where_to: list[str]) -> None:
    assert where(asked, nodes, standing) == where_to, name


# affinity between pods


def near(key: str = ZONE, *, labels: Item | None = None, side: str = "podAffinity", **more: Item) -> Item:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels or WEB}, **more}
    return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def apart(key: str = ZONE, **more: Item) -> Item:
    return near(key, side="podAntiAffinity", **more)


ROOMY = [node("n1", zone="a"), node("n1b", zone="a"), node("n2", zone="b")]


@pytest.mark.parametrize(
    ("name", "asked", "standing", "where_to"),
    [
        ("near a pod in its zone", pod(**near()), [web("s", "n1")], ["n1", "n1b"]),
        ("near a pod on its node", pod(**near(HOSTNAME)), [web("s", "n1")], ["n1"]),
        ("nobody there", pod(**near()), [], []),
        ("the first of its own kind", pod(labels=WEB, **near()), [], ["n1", "n1b", "n2"]),
        ("the second of its own kind", pod(labels=WEB, **near()), [web("s", "n2")], ["n2"]),
        ("the first of its own kind still needs the label", pod(labels=WEB, **near("rack")), [], []),
        ("a pod that is going still attracts", pod(**near()), [going("s", "n1")], ["n1", "n1b"]),
        (
            "of another namespace, not asked",
            pod(**near()),
            [pod("s", namespace="other", labels=WEB, nodeName="n1")],
            [],
        ),
        (
            "of another namespace, asked by name",
            pod(**near(namespaces=["other"])),
            [pod("s", namespace="other", labels=WEB, nodeName="n1")],
            ["n1", "n1b"],
        ),
        (
            "of another namespace, asked by label",
            pod(**near(namespaceSelector={"matchLabels": {"team": "x"}})),
            [pod("s", namespace="other", labels=WEB, nodeName="n1")],
            ["n1", "n1b"],
        ),
        (
            "every namespace",
            pod(**near(namespaceSelector={})),
            [pod("s", namespace="other", labels=WEB, nodeName="n1")],
            ["n1", "n1b"],
        ),
        ("away from a pod's zone", pod(**apart()), [web("s", "n1")], ["n2"]),
        ("away from a pod's node", pod(**apart(HOSTNAME)), [web("s", "n1")], ["n1b", "n2"]),
        ("who was there first wants to be alone", pod(labels=WEB), [pod("s", nodeName="n1", **apart())], ["n2"]),
        ("who was there first does not mean this one", pod(), [pod("s", nodeName="n1", **apart())], ["n1", "n1b", "n2"]),
        (
            "mismatchLabelKeys keeps away from others only",
            pod(labels={**WEB, "tenant": "x"}, **apart(mismatchLabelKeys=["tenant"])),
            [
                pod("s", labels={**WEB, "tenant": "y"}, nodeName="n1"),
                pod("t", labels={**WEB, "tenant": "x"}, nodeName="n2"),
            ],
            ["n2"],
        ),
        (
            "matchLabelKeys goes near its own only",
            pod(labels={**WEB, "rev": "2"}, **near(matchLabelKeys=["rev"])),
            [pod("s", labels={**WEB, "rev": "1"}, nodeName="n1"), pod("t", labels={**WEB, "rev": "2"}, nodeName="n2")],
            ["n2"],
        ),
    ],
)
def test_affinity_between_pods(name: str, asked: Item, standing: list[Item], where_to: list[str]) -> None:
    assert where(asked, ROOMY, standing, {"other": {"team": "x"}}) == where_to, name


def test_two_affinity_terms_must_be_met_by_the_same_pods() -> None:
    terms = [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {k: "x"}}} for k in ("a", "b")]
    asked = pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    split = [pod("s", labels={"a": "x"}, nodeName="n1"), pod("t", labels={"b": "x"}, nodeName="n1")]
    assert where(asked, ROOMY, split) == []
    assert where(asked, ROOMY, [pod("s", labels={"a": "x", "b": "x"}, nodeName="n1")]) == ["n1", "n1b"]


@pytest.mark.parametrize(
    ("asked", "standing", "reason"),
    [
        (pod(labels=WEB, **spread("rack")), [], "node(s) didn't match pod topology spread constraints (missing required label)"),
        (pod(**near()), [], "node(s) didn't match pod affinity rules"),
        (pod(**apart()), [web("s", "n1")], "node(s) didn't match pod anti-affinity rules"),
        (pod(labels=WEB), [pod("s", nodeName="n1", **apart())], "node(s) didn't satisfy existing pods anti-affinity rules"),
        (ported("p", 80), [ported("s", 80, nodeName="n1")], "node(s) didn't have free ports for the requested pod ports"),
        (pod(nodeName="other"), [], "node(s) didn't match the requested node name"),
    ],
)
def test_the_reasons_are_kube_schedulers(asked: Item, standing: list[Item], reason: str) -> None:
    assert message(asked, [node("n1")], standing) == f"0/1 nodes are available: 1 {reason}."


def test_resource_claims_are_refused_aloud() -> None:
    asked = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}])
    assert "pod has resourceClaims, which the pretend scheduler does not allocate" in message(asked, [node("n1")])
