"""What a scrape shows of the cluster, and that every metric of the table is written somewhere or excused aloud."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubewright.api import labels
from kubewright.api.core import Container, Node, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from kubewright.api.meta import Condition, ObjectMeta, OwnerReference
from kubewright.metrics import TABLE, Kind, Registry
from kubewright.operator import series
from kubewright.solver.problem import StateNode

SOURCE = Path(series.__file__).parents[1]
DIFFERENCES = SOURCE.parents[1] / "docs" / "differences.md"
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def written_names() -> set[str]:
    """Metric names that stand in the source as text, parts in braces standing for anything."""
    found: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        if file.name != "table.py" or file.parent.name != "metrics":
            found |= set(re.findall(r'f?"([A-Za-z0-9_{}]+)"', file.read_text(encoding="utf-8")))
    return found


def spoken(text: str) -> str:
    """What is left of a text with open parts once they, and prefixes that say nothing, are gone."""
    return re.sub("{[A-Za-z_]+}", "", text).removeprefix("karpenter_").removeprefix("operator_")


def is_written(name: str, texts: set[str]) -> bool:
    shorts = {name, name.removeprefix("karpenter_")}
    if shorts & texts:
        return True
    open_ones = (text for text in texts if "{" in text and len(spoken(text)) >= 6)
    patterns = (re.sub(r"\\{[A-Za-z_]+\\}", "[a-z0-9_]+", re.escape(text)) for text in open_ones)
    return any(re.fullmatch(pattern, short) for pattern in patterns for short in shorts)


def test_every_metric_is_written_somewhere_or_excused_in_the_table_of_differences():
    texts = written_names()
    told = DIFFERENCES.read_text(encoding="utf-8")
    excused = set(re.findall(r"`([a-z_*]+)`", told))
    missing = [
        m.name
        for m in TABLE
        if not is_written(m.name, texts)
        and not any(re.fullmatch(one.replace("*", "[a-z_]*"), m.name.removeprefix("karpenter_")) for one in excused)
    ]
    assert missing == []


def pod(name: str, *, cpu: str = "1", limit: str = "", daemon: bool = False, on: str = "n", ready: bool = True) -> Pod:
    owner = OwnerReference(
        api_version="apps/v1", kind="DaemonSet" if daemon else "ReplicaSet", name="o", uid="o", controller=True
    )
    amounts = ResourceRequirements(requests={"cpu": cpu}, limits={"cpu": limit} if limit else {})
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="d", uid=name, owner_references=(owner,), creation_timestamp=NOW - timedelta(seconds=30)
        ),
        spec=PodSpec(node_name=on, containers=(Container(resources=amounts),)),
        status=PodStatus(
            phase="Running" if on else "Pending", conditions=(Condition(type="Ready", status="True"),) if ready else ()
        ),
    )


NODE = Node(
    metadata=ObjectMeta(
        name="n",
        creation_timestamp=NOW - timedelta(hours=1),
        labels={labels.NODEPOOL: "general", labels.ZONE: "z", "karpenter.k8s.aws/instance-cpu": "4"},
    ),
    status=NodeStatus(capacity={"cpu": "4"}, allocatable={"cpu": "3900m"}),
)


def test_a_node_shows_what_it_has_and_what_is_asked_of_it():
    nodes = series.Nodes(["karpenter.k8s.aws/instance-cpu"])
    assert nodes.names == ("instance_cpu",)
    nodes.update([StateNode(NODE, None, (pod("a", limit="2"), pod("b", cpu="500m", daemon=True)))])
    values = {kind: {s[0][0]: s[1] for s in nodes.amounts(kind)} for kind in series.KINDS}
    assert values["allocatable"]["cpu"] == 3.9
    assert values["system_overhead"]["cpu"] == pytest.approx(0.1)
    assert (values["total_pod_requests"]["cpu"], values["total_pod_limits"]["cpu"]) == (1, 2)
    assert (values["total_daemon_requests"]["cpu"], values["total_daemon_limits"].get("cpu")) == (0.5, None)
    assert nodes.utilization() == {"cpu": pytest.approx(100 * 1.5 / 3.9)}
    registry = Registry()
    registry.widen(nodes.names)
    registry.derive("karpenter_nodes_allocatable", lambda: nodes.amounts("allocatable"))
    registry.derive("karpenter_nodes_current_lifetime_seconds", lambda: nodes.lifetimes(NOW))
    shown = registry.expose().decode()
    assert 'karpenter_nodes_allocatable{resource_type="cpu",node_name="n",phase="",managed="true",nodepool="general"' in shown
    assert 'windows_build="",instance_cpu="4"} 3.9' in shown
    assert 'instance_cpu="4"} 3600.0' in shown
    nodes.update([])
    assert "nodes_allocatable{" not in registry.expose().decode()


def test_a_node_that_did_not_change_is_not_added_up_again():
    nodes = series.Nodes()
    known = StateNode(NODE, None, (pod("a"),))
    nodes.update([known])
    before = nodes._known["n"]
    nodes.update([known])
    assert nodes._known["n"] is before
    nodes.update([replace(known, pods=())])
    assert nodes._known["n"] is not before


def test_pods_show_where_they_are_and_how_long_they_wait():
    bound, homeless = pod("a"), pod("b", on="", ready=False)
    states = {s[0][0]: s[0] for s in series.pod_states([bound, homeless], {"n": NODE})}
    assert states["a"] == (
        "a",
        "d",
        "/apis/apps/v1/namespaces/d/replicasets/o",
        "n",
        "true",
        "general",
        "z",
        *("",) * 3,
        "Running",
        "true",
        "true",
    )
    assert states["b"][3:5] == ("", "false")
    seen = {"b": NOW - timedelta(seconds=10)}
    waits = series.waiting_pods([bound, homeless], seen, {}, NOW)
    assert waits["pods_unbound_time_seconds"] == [(("b", "d"), 30)]
    assert waits["pods_provisioning_unstarted_time_seconds"] == [(("b", "d"), 10)]
    assert waits["pods_provisioning_scheduling_undecided_time_seconds"] == [(("b", "d"), 10)]
    assert not series.waiting_pods([homeless], seen, {"b": NOW}, NOW)["pods_provisioning_scheduling_undecided_time_seconds"]


DASHBOARD = SOURCE.parents[1] / "deploy" / "grafana" / "kubewright.json"


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_dashboard_names_only_metrics_and_labels_that_exist_and_are_written():
    table = {m.name: m for m in TABLE}
    texts = written_names()
    assert len(expressions()) > 20
    for expression in expressions():
        names = re.findall(
            r"\b(?:karpenter|kubewright|operator|workqueue|controller_runtime|client_go|leader)_[a-z_]+", expression
        )
        assert names, expression
        metrics = [table[name.removesuffix("_bucket") if name.endswith("_bucket") else name] for name in names]
        known = {label for m in metrics for label in m.labels} | {"le"}
        assert all(is_written(m.name, texts) for m in metrics), expression
        assert all(m.name + "_bucket" in names for m in metrics if m.kind is Kind.HISTOGRAM), expression
        used = [label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")]
        used += re.findall(r"([a-z_]+)=\"", expression)
        assert set(used) <= known | {"quantile"}, expression


def test_panels_do_not_overlap():
    places = [p["gridPos"] for p in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]]
    cells = [(x, y) for g in places for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
