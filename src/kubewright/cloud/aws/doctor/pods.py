"""Nodes that joined, whose pods do not start: what of the network keeps them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.api.core import DaemonSet, Node, Pod
from kubewright.api.meta import find_condition
from kubewright.cloud.aws.doctor.findings import Finding, Verdict, ok, problem
from kubewright.kube.client import KubeClient

LONG = timedelta(minutes=2)
CNI = "aws-node"


async def stuck(kube: KubeClient, now: datetime, found: Sequence[Finding]) -> list[Finding]:
    """`found` are the findings about the network so far: what may be the cause is named."""
    pods = [p for p in (await kube.list(Pod)).items if _is_stuck(p, now)]
    sets = {d.name for d in (await kube.list(DaemonSet, "kube-system")).items}
    result: list[Finding] = []
    if CNI not in sets:
        mend = f"install the VPC CNI (DaemonSet {CNI}), or ignore this if another CNI gives pods their addresses"
        result.append(problem(f"DaemonSet kube-system/{CNI}", "it is not there: pods get no address without a CNI", mend))
    nodes = {n.name: n for n in (await kube.list(Node)).items}
    by_node: dict[str, list[Pod]] = {}
    for p in pods:
        if p.spec.node_name in nodes:
            by_node.setdefault(p.spec.node_name, []).append(p)
    causes = [f for f in found if f.verdict is Verdict.PROBLEM and f.about.startswith(("subnet", "security", "VPC", "role"))]
    for name, waiting in sorted(by_node.items()):
        result.append(_node(name, sorted(waiting, key=lambda p: p.key), causes))
    if not by_node:
        result.append(ok("pods", "none waits for its containers on a node that has joined"))
    return result


def _is_stuck(p: Pod, now: datetime) -> bool:
    began = p.status.start_time or p.metadata.creation_timestamp
    return bool(
        p.status.phase == "Pending"
        and p.spec.node_name
        and p.metadata.deletion_timestamp is None
        and began is not None
        and began + LONG <= now
    )


def _node(name: str, waiting: Sequence[Pod], causes: Sequence[Finding]) -> Finding:
    sandboxes = [find_condition(p.status.conditions, "PodReadyToStartContainers") for p in waiting]
    without = sum(1 for c in sandboxes if c is not None and c.status == "False")
    first = ", ".join(p.key for p in waiting[:3])
    if without:
        text = f"{without} pod(s) have no network yet, among them {first}"
        mend = f"look at the pod of {CNI} on the node: its role, free addresses of the subnet, and security groups"
    else:
        text = f"{len(waiting)} pod(s) wait for their images, among them {first}"
        mend = "look whether the node reaches the registry and S3: routes, endpoints, their policies, and the node's role"
    if causes:
        mend += "; found above: " + "; ".join(f"{c.about}: {c.text}" for c in causes[:3])
    return problem(f"node {name}", text, mend)
