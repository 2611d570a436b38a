"""What a sandbox run came to: read from the objects and the bill, in the shape that `-o json` prints."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from kubewright.api import labels
from kubewright.explain.cost import Cost
from kubewright.sim.apiserver.store import Store
from kubewright.sim.ec2 import FakeEc2
from kubewright.sim.narrator import workload

Item = Mapping[str, Any]

_TELLING = ("FailedScheduling", "Nominated")
"""Events in which kubewright says what becomes of a pod."""


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node that is there at the end."""

    name: str
    """Of its NodeClaim, where it has one."""
    node: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    pods: Mapping[str, int]
    """Workload → pods on it."""
    usd_per_hour: float


class MachineRow(msgspec.Struct, frozen=True, rename="camel"):
    """A machine that was paid for."""

    name: str
    """Of the NodeClaim it was bought for."""
    instance_id: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    running: bool
    """It still is, and costs."""
    hours: float
    usd: float
    pods: Mapping[str, int]
    """Workload → pods that ran there at any time."""


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    """A pod without a node."""

    pod: str
    why: str
    """In kubewright's words, "" where it has not said anything."""
    scheduler: str
    """In kube-scheduler's words."""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What a run came to; money in USD."""

    elapsed_seconds: float
    """Of cluster time."""
    quiet: bool
    """Nothing more was going to happen; False: the time was up, or somebody ended it."""
    usd_per_hour: float
    """Of everything that runs at the end."""
    usd: float
    """Of the whole run."""
    planned: Cost
    """Of all passes together: what they bought, what any plan needed, and what first fit would have bought."""
    nodes: Sequence[NodeRow]
    machines: Sequence[MachineRow]
    pending: Sequence[Waiting]
    failed_steps: Sequence[str]
    """Steps of the scenario that could not be carried out, and why."""
    warnings: Sequence[str]
    """What in the cluster keeps kubewright from doing its job, and the mend."""


def report(
    store: Store,
    ec2: FakeEc2,
    elapsed: timedelta,
    ran: Mapping[str, Mapping[str, int]],
    refused: Mapping[str, str],
    failed: Sequence[str],
    planned: Cost,
    *,
    quiet: bool,
) -> Report:
    """`ran` is NodeClaim → workload → pods, `refused` pod → why no place was found; `failed` are the steps that went wrong."""
    machines = tuple(
        MachineRow(
            b.node_claim,
            b.instance_id,
            b.node_pool,
            b.instance_type,
            b.zone,
            b.capacity_type,
            b.end is None,
            round(b.hours, 6),
            round(b.usd, 6),
            dict(sorted(ran.get(b.node_claim, {}).items())),
        )
        for b in ec2.costs()
    )
    return Report(
        elapsed.total_seconds(),
        quiet,
        round(ec2.usd_per_hour(), 6),
        round(sum(b.usd for b in ec2.costs()), 6),
        planned,
        tuple(sorted(_nodes(store, ec2), key=lambda r: (r.node_pool, r.name))),
        machines,
        tuple(sorted(_waiting(store, refused), key=lambda w: w.pod)),
        tuple(failed),
        tuple(_warnings(store)),
    )


def _nodes(store: Store, ec2: FakeEc2) -> Iterator[NodeRow]:
    claims = {c.get("status", {}).get("providerID"): c for c in store.list("karpenter.sh/v1", "NodeClaim")[0]}
    prices = {b.instance_id: b.usd_per_hour for b in ec2.costs()}
    pods = store.list("v1", "Pod")[0]
    for node in store.list("v1", "Node")[0]:
        name, known = node["metadata"]["name"], node["metadata"].get("labels", {})
        provider = node["spec"].get("providerID") or "none"
        claim = claims.get(provider)
        here = Counter(workload(p) for p in pods if p["spec"].get("nodeName") == name and not is_over(p))
        yield NodeRow(
            claim["metadata"]["name"] if claim else name,
            name,
            known.get(labels.NODEPOOL, ""),
            known.get(labels.INSTANCE_TYPE, ""),
            known.get(labels.ZONE, ""),
            known.get(labels.CAPACITY_TYPE, ""),
            dict(sorted(here.items())),
            round(prices.get(provider.rpartition("/")[2], 0.0), 6),
        )


def _waiting(store: Store, refused: Mapping[str, str]) -> Iterator[Waiting]:
    said: dict[str, tuple[str, str]] = {}
    for event in store.list("v1", "Event")[0]:
        about = event.get("involvedObject", {})
        if about.get("kind") == "Pod" and event.get("reason") in _TELLING and not _by_scheduler(event):
            uid, when = about.get("uid", ""), event.get("lastTimestamp") or event.get("eventTime") or ""
            said[uid] = max(said.get(uid, ("", "")), (when, event.get("message", "").removeprefix("Failed to schedule pod, ")))
    for pod in store.list("v1", "Pod")[0]:
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") or is_over(pod) or meta.get("deletionTimestamp"):
            continue
        condition: Item = next((c for c in pod.get("status", {}).get("conditions", ()) if c["type"] == "PodScheduled"), {})
        gates = ", ".join(g["name"] for g in pod["spec"].get("schedulingGates", ()))
        key = f"{meta['namespace']}/{meta['name']}"
        why = f"nothing is bought for it before its scheduling gates are gone ({gates})" if gates else refused.get(key, "")
        yield Waiting(
            key,
            why or said.get(meta.get("uid", ""), ("", ""))[1],
            condition.get("message", "") or "not looked at yet",
        )


def _by_scheduler(event: Item) -> bool:
    return "default-scheduler" in (event.get("source", {}).get("component"), event.get("reportingComponent"))


def _warnings(store: Store) -> Iterator[str]:
    pools = store.list("karpenter.sh/v1", "NodePool")[0]
    classes = {c["metadata"]["name"]: c for c in store.list("karpenter.k8s.aws/v1", "EC2NodeClass")[0]}
    if not pools:
        yield "there is no NodePool, so nothing can be bought; add one (kubewright's bundled example has two)"
    for pool in pools:
        ref = pool["spec"]["template"]["spec"]["nodeClassRef"]
        subject = f'NodePool "{pool["metadata"]["name"]}"'
        if ref["name"] not in classes:
            there = ", ".join(sorted(classes)) or "there is none at all"
            yield (
                f"{subject}: spec.template.spec.nodeClassRef.name: found {ref['name']!r}, but there is no EC2NodeClass of that "
                f"name; add one or write the name of one that is there ({there})"
            )
        elif _ready(classes[ref["name"]]):
            yield from _not_ready(pool, subject)
    for name, node_class in sorted(classes.items()):
        yield from _not_ready(node_class, f'EC2NodeClass "{name}"')


def _ready(obj: Item) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in obj.get("status", {}).get("conditions", ()))


def _not_ready(obj: Item, subject: str) -> Iterator[str]:
    if _ready(obj):
        return
    told = [c for c in obj.get("status", {}).get("conditions", ()) if c["status"] != "True" and c["type"] != "Ready"]
    why = "; ".join(f"{c['type']}: {c.get('message') or c.get('reason', '')}" for c in told)
    yield f"{subject} is not ready: {why or 'nobody has looked at it yet'}"


def is_over(pod: Item) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
