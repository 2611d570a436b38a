"""What `kubewright takeover check` says, from what was read."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from kubewright.api import aws_labels, labels
from kubewright.api import hash as hashes
from kubewright.api.aws import EC2NodeClass
from kubewright.api.core import Node, NodeSpec
from kubewright.api.karpenter import (
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    TemplateMetadata,
)
from kubewright.api.meta import Condition, ObjectMeta
from kubewright.install.takeover import Found, Karpenter, Weight, judge
from kubewright.lifecycle import claims
from kubewright.solver.problem import Snapshot, StateNode

NOW = datetime(2026, 11, 29, tzinfo=UTC)
REFERENCE = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
MANAGED = frozenset({("karpenter.k8s.aws", "EC2NodeClass")})


def pool(*, written: str = "", version: str = "v3", team: str = "a") -> NodePool:
    template = NodeClaimTemplate(metadata=TemplateMetadata(labels={"team": team}))
    template = replace(template, spec=replace(template.spec, node_class_ref=REFERENCE))
    made = NodePool(metadata=ObjectMeta(name="general"), spec=NodePoolSpec(template=template))
    hashed = {labels.NODEPOOL_HASH: written or hashes.node_pool_hash(made), labels.NODEPOOL_HASH_VERSION: version}
    return replace(made, metadata=replace(made.metadata, annotations=hashed))


def claim(of: NodePool, *, drifted: bool = False, registered: bool = True, **changes: object) -> NodeClaim:
    metadata = ObjectMeta(
        name="general-1",
        uid="u",
        creation_timestamp=NOW - timedelta(days=1),
        labels={labels.NODEPOOL: "general", "team": "a"},
        annotations=dict(of.metadata.annotations),
        **changes,
    )
    made = NodeClaim(metadata=metadata, spec=NodeClaimSpec(node_class_ref=REFERENCE), status=NodeClaimStatus(provider_id="p"))
    made = claims.with_condition(made, claims.LAUNCHED, "True", now=NOW)
    if registered:
        made = claims.with_condition(made, claims.REGISTERED, "True", now=NOW)
    return claims.with_condition(made, claims.DRIFTED, "True", "NodePoolDrifted", now=NOW) if drifted else made


def found(of: NodePool, *claimed: NodeClaim, **more: object) -> Found:
    known = more.pop("snapshot", Snapshot(NOW))
    return Found(snapshot=known, node_pools=(of,), node_claims=claimed, managed=MANAGED, **more)


def told(report: object, weight: Weight) -> list[str]:
    return [f"{one.about}: {one.what}" for one in report.findings if one.weight is weight]


def test_a_cluster_of_the_same_hashes_does_not_change():
    report = judge(found(pool(), claim(pool())))
    assert (report.changes, report.drifting, report.node_pools, report.node_claims) == (False, 0, 1, 1)
    assert report.findings == ()


def test_a_pool_edited_while_nobody_looked_is_told_before_its_nodes_drift():
    report = judge(found(pool(written=hashes.node_pool_hash(pool()), team="b"), claim(pool())))
    assert report.drifting == 1
    assert any("NodeClaim/general-1: would drift (NodePoolDrifted)" in line for line in told(report, Weight.CHANGE))


def test_hashes_of_another_version_are_written_anew_and_nothing_drifts():
    other = pool(written="12345", version="v4")
    report = judge(found(other, claim(other)))
    assert not report.changes
    assert "NodePool/general: has hashes of version v4" in told(report, Weight.NOTE)[0]


def test_drift_that_the_cloud_sees_counts_and_drift_that_is_there_already_does_not():
    assert judge(found(pool(), claim(pool()), cloud_drift={"general-1": "AMIDrift"})).drifting == 1
    edited = pool(written=hashes.node_pool_hash(pool(team="b")), team="b")
    assert not judge(found(edited, claim(pool(), drifted=True))).changes
    cured = judge(found(pool(), claim(pool(), drifted=True)))
    assert "is drifted for Karpenter" in told(cured, Weight.CHANGE)[0]


def test_a_nodeclass_whose_hash_would_change_is_told():
    made = EC2NodeClass(metadata=ObjectMeta(name="default"))
    ready = (Condition(type="Ready", status="True"),)

    def with_hash(value: str) -> EC2NodeClass:
        written = {aws_labels.EC2_NODE_CLASS_HASH: value, aws_labels.EC2_NODE_CLASS_HASH_VERSION: "v5"}
        status = replace(made.status, conditions=ready)
        return replace(made, metadata=replace(made.metadata, annotations=written), status=status)

    assert not judge(found(pool(), node_classes=(with_hash(hashes.ec2_node_class_hash(made)),))).changes
    report = judge(found(pool(), node_classes=(with_hash("1"),)))
    assert "EC2NodeClass/default: its hash would change" in told(report, Weight.CHANGE)[0]


@pytest.mark.parametrize(
    ("environment", "weight", "words"),
    [
        ({"BATCH_IDLE_DURATION": "2s", "CLUSTER_NAME": "c"}, Weight.BEFORE, "runs with BATCH_IDLE_DURATION=2s, CLUSTER_NAME=c"),
        ({"BATCH_IDLE_DURATION": "1s"}, None, ""),
        ({"INTERRUPTION_QUEUE": "q"}, Weight.BEFORE, "INTERRUPTION_QUEUE=q"),
        ({"MEMORY_LIMIT": "100"}, Weight.NOTE, "MEMORY_LIMIT is not heeded"),
        ({"METRICS_PORT": "http"}, Weight.STOP, "METRICS_PORT: 'http' is not a whole number"),
        ({"FEATURE_GATES": "Unheard=true"}, Weight.CHANGE, "there is no feature gate 'Unheard'"),
    ],
)
def test_karpenters_settings_are_carried_over_or_missed_aloud(environment, weight, words):
    report = judge(found(pool(), karpenters=(Karpenter("kube-system/karpenter", 0, "1.14.1", environment),)))
    for each in Weight:
        lines = [line for line in told(report, each) if "scaled down" not in line]
        assert bool(lines) == (each is weight), lines
        assert words in "".join(lines) or each is not weight


def test_what_is_under_way_or_somebody_elses_is_noted():
    tainted = Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(provider_id="p", taints=(labels.DISRUPTED_TAINT,)))
    report = judge(
        found(
            pool(),
            claim(pool(), registered=False),
            snapshot=Snapshot(NOW, nodes=(StateNode(tainted, claim(pool())),)),
            karpenters=(Karpenter("kube-system/karpenter", 2, "1.14.1"),),
            lease_holder="karpenter-0",
            auto_mode_nodes=("auto-1",),
        )
    )
    notes = "\n".join(told(report, Weight.NOTE))
    for words in ("Node/n: is being disrupted", "NodeClaim/general-1: is on its way", "is held by karpenter-0"):
        assert words in notes
    assert "Karpenter 1.14.1 is scaled up (2)" in told(report, Weight.BEFORE)[0]
    assert "EKS Auto Mode" in told(report, Weight.STOP)[0]
    assert report.findings[0].weight is Weight.STOP
    foreign = replace(pool(), spec=NodePoolSpec())
    assert "would be left alone" in told(judge(found(foreign)), Weight.NOTE)[0]
    assert msgspec.json.encode(report)
