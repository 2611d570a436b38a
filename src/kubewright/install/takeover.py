"""What would change in a cluster that Karpenter runs, if kubewright ran it from now on: a judgement of what was read."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from kubewright.api import aws_labels, labels, validation
from kubewright.api import hash as hashes
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Condition, Object, find_condition
from kubewright.catalogue.types import InstanceType
from kubewright.disruption.commands import Command
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.reasons import Reason
from kubewright.errors import ConfigError
from kubewright.lifecycle import claims, drift, nodes, pools
from kubewright.operator import options
from kubewright.solver.problem import Plan, Pool, Snapshot

MOST_NAMED = 5


class Weight(enum.StrEnum):
    STOP = "stop"
    """In the way: take-over must not begin before it is mended."""
    CHANGE = "change"
    """Nodes would be replaced, or something would be decided otherwise than now."""
    BEFORE = "before"
    """To be done at the hand-over; nothing wrong."""
    NOTE = "note"
    """Good to know; nothing changes."""


class Finding(msgspec.Struct, frozen=True):
    weight: Weight
    about: str
    """The object, as kind/name, or what else it is about."""
    what: str
    mend: str = ""


class Karpenter(msgspec.Struct, frozen=True):
    """One Deployment of Karpenter, as it stands in the cluster."""

    key: str
    replicas: int
    version: str = ""
    environment: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """What was read."""

    snapshot: Snapshot
    karpenters: tuple[Karpenter, ...] = ()
    lease_holder: str = ""
    auto_mode_nodes: tuple[str, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    """All, also those of NodeClasses that are not the provider's."""
    node_claims: tuple[NodeClaim, ...] = ()
    node_classes: tuple[Object, ...] = ()
    managed: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of the provider's NodeClasses."""
    cloud_drift: Mapping[str, str] = {}
    """NodeClaim → why the cloud says that it has drifted."""
    plan: Plan = Plan()
    """For the pods that wait now."""
    decisions: Decisions = Decisions()
    cluster_ca_bundle: str = ""


class Report(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...]
    node_pools: int
    node_claims: int
    drifting: int
    """Nodes that would drift, and do not now."""
    waiting_pods: int
    bought_usd_per_hour: float
    removed_usd_per_hour: float
    """Of the commands of a first look, their replacements subtracted."""

    @property
    def changes(self) -> bool:
        """Whether anything stands in the way or would change."""
        return any(one.weight in (Weight.STOP, Weight.CHANGE) for one in self.findings)


def judge(found: Found) -> Report:
    """Everything worth saying, the weightiest first; within a weight by object."""
    now = found.snapshot.now
    findings = [
        *_company(found),
        *_settings(found.karpenters),
        *_pools(found),
        *_classes(found),
        *_under_way(found),
        *_work(found),
    ]
    offered = {p.node_pool.name: p for p in found.snapshot.pools}
    drifting = [(c, why) for c, why in _drift(found, offered, now) if why and not claims.is_set(c, claims.DRIFTED)]
    cured = [c for c, why in _drift(found, offered, now) if not why and claims.is_set(c, claims.DRIFTED)]
    for claim, why in drifting:
        mend = 'see what differs before the hand-over; NodePool budgets hold the replacement back: budgets: [{nodes: "0"}]'
        findings.append(Finding(Weight.CHANGE, f"NodeClaim/{claim.name}", f"would drift ({why}) and be replaced", mend))
    told = "is drifted for Karpenter, and would not be any more"
    findings.extend(Finding(Weight.CHANGE, f"NodeClaim/{claim.name}", told) for claim in cured)
    order = list(Weight)
    findings.sort(key=lambda one: (order.index(one.weight), one.about, one.what))
    return Report(
        findings=tuple(findings),
        node_pools=len([p for p in found.node_pools if _is_managed(found, p)]),
        node_claims=len(_ours(found)),
        drifting=len(drifting),
        waiting_pods=sum(len(c.pods) for c in found.plan.claims),
        bought_usd_per_hour=round(found.plan.usd_per_hour, 6),
        removed_usd_per_hour=round(sum(c.savings_usd_per_hour for c in found.decisions.commands), 6),
    )


def _company(found: Found) -> Iterator[Finding]:
    for one in found.karpenters:
        namespace, _, name = one.key.partition("/")
        if one.replicas:
            yield Finding(
                Weight.BEFORE,
                f"Deployment/{one.key}",
                f"Karpenter {one.version or 'of an unknown version'} is scaled up ({one.replicas})",
                f"kubectl -n {namespace} scale deployment/{name} --replicas=0",
            )
        else:
            yield Finding(Weight.NOTE, f"Deployment/{one.key}", f"Karpenter {one.version} is scaled down")
    if found.lease_holder:
        yield Finding(Weight.NOTE, "Lease/karpenter-leader-election", f"is held by {found.lease_holder}")
    if found.auto_mode_nodes:
        yield Finding(
            Weight.STOP,
            f"Node/{found.auto_mode_nodes[0]}",
            f"EKS Auto Mode manages {len(found.auto_mode_nodes)} Node(s)",
            "turn Auto Mode off, or start with --take-over; its NodePools are left alone",
        )


def _settings(karpenters: Sequence[Karpenter]) -> Iterator[Finding]:
    """What Karpenter was told and kubewright must be told too, or would not heed."""
    default = options.Options()
    for one in karpenters:
        about = f"Deployment/{one.key}"
        try:
            asked = options.parse(one.arguments, one.environment)
        except ConfigError as error:
            yield Finding(Weight.STOP, about, f"kubewright does not start with its settings: {error}", "mend the setting")
            continue
        for warning in asked.warnings:
            if "is not heeded" in warning:
                yield Finding(Weight.NOTE, about, warning)
            else:
                yield Finding(Weight.CHANGE, about, warning)
        carried = {
            flag.variable: one.environment[flag.variable]
            for flag in options.FLAGS
            if flag.field and one.environment.get(flag.variable) and _value(asked, flag.field) != _value(default, flag.field)
        }
        carried |= {
            name: value for name in options.PROVIDER_VARIABLES if (value := one.environment.get(name)) and name not in carried
        }
        own = {"METRICS_PORT", "HEALTH_PROBE_PORT", "LEADER_ELECTION_NAMESPACE", "DISABLE_LEADER_ELECTION"}
        shown = [f"{name}={value}" for name, value in sorted(carried.items()) if name not in own and not _is_secret(name)]
        if shown:
            yield Finding(Weight.BEFORE, about, f"runs with {', '.join(shown)}", "give kubewright the same settings")


def _value(asked: options.Options, field: str) -> object:
    value: object = asked
    for name in field.split("."):
        value = getattr(value, name)
    return value


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "CA_BUNDLE"))


def _pools(found: Found) -> Iterator[Finding]:
    for pool in found.node_pools:
        about = f"NodePool/{pool.name}"
        reference = pool.spec.template.spec.node_class_ref
        if not _is_managed(found, pool):
            yield Finding(Weight.NOTE, about, f"is of {reference.group}/{reference.kind} and would be left alone")
            continue
        problems = validation.runtime_problems(pool)
        ready = find_condition(pool.status.conditions, pools.VALIDATION_SUCCEEDED)
        if problems and (ready is None or ready.status == "True"):
            yield Finding(Weight.CHANGE, about, f"would not be valid: {'; '.join(problems)}", "mend the NodePool")
        version = pool.metadata.annotations.get(labels.NODEPOOL_HASH_VERSION)
        if version not in (None, hashes.NODE_POOL_HASH_VERSION):
            text = (
                f"has hashes of version {version}; kubewright writes {hashes.NODE_POOL_HASH_VERSION}, and its nodes do not drift"
            )
            yield Finding(Weight.NOTE, about, text)
    known = {p.name for p in found.node_pools}
    for claim in _ours(found):
        name = claims.pool_of(claim)
        if name not in known:
            text = f"its NodePool {name or '(none)'} is gone: it would run on until it ends or is deleted"
            yield Finding(Weight.NOTE, f"NodeClaim/{claim.name}", text)


def _classes(found: Found) -> Iterator[Finding]:
    for one in found.node_classes:
        ready: tuple[Condition, ...] = getattr(getattr(one, "status", None), "conditions", ())
        state_of = find_condition(ready, "Ready")
        about = f"{one.RESOURCE.kind}/{one.name}"
        if state_of is None or state_of.status != "True":
            why = state_of.message if state_of is not None else "no Ready condition"
            yield Finding(Weight.NOTE, about, f"is not ready ({why}): nothing is bought with it, by either")
        if isinstance(one, EC2NodeClass):
            written = one.metadata.annotations
            version = written.get(aws_labels.EC2_NODE_CLASS_HASH_VERSION)
            if version == hashes.EC2_NODE_CLASS_HASH_VERSION:
                ours = hashes.ec2_node_class_hash(one, found.cluster_ca_bundle)
                if written.get(aws_labels.EC2_NODE_CLASS_HASH) != ours:
                    text = "its hash would change, and every node made from it would drift"
                    yield Finding(Weight.CHANGE, about, text, "it may have been edited while Karpenter was stopped")
            elif version is not None:
                text = (
                    f"has hashes of version {version}; {hashes.EC2_NODE_CLASS_HASH_VERSION} is written, and nothing drifts for it"
                )
                yield Finding(Weight.NOTE, about, text)


def _under_way(found: Found) -> Iterator[Finding]:
    """What Karpenter is in the middle of: kubewright carries on from it, or takes it back."""
    for known in found.snapshot.nodes:
        if known.node is None or known.claim is None or known.claim.metadata.deletion_timestamp is not None:
            continue
        if nodes.has_taint(known.node, labels.DISRUPTED_TAINT):
            text = (
                "is being disrupted by a command that kubewright would not know of: its taint is taken off, and it is judged anew"
            )
            yield Finding(Weight.NOTE, f"Node/{known.node.name}", text)
    for claim in _ours(found):
        if claim.metadata.deletion_timestamp is not None:
            yield Finding(Weight.NOTE, f"NodeClaim/{claim.name}", "is going; kubewright would end it")
        elif not claims.is_set(claim, claims.REGISTERED):
            yield Finding(Weight.NOTE, f"NodeClaim/{claim.name}", "is on its way; kubewright would wait for its Node")


def _work(found: Found) -> Iterator[Finding]:
    if found.plan.claims:
        pods = sum(len(c.pods) for c in found.plan.claims)
        text = (
            f"{pods} pod(s) wait; kubewright would buy {len(found.plan.claims)} machine(s) for ${found.plan.usd_per_hour:.4f}/h"
        )
        yield Finding(Weight.NOTE, "pods", text)
    for command in found.decisions.commands:
        weight = Weight.NOTE if command.reason in (Reason.EMPTY, Reason.DRIFTED) else Weight.CHANGE
        yield Finding(
            weight, _named(command), f"would be disrupted ({command.reason.value}, saves ${command.savings_usd_per_hour:.4f}/h)"
        )


def _named(command: Command) -> str:
    names = [c.name for c in command.candidates]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"Node/{', '.join(names[:MOST_NAMED])}{more}"


def _drift(found: Found, offered: Mapping[str, Pool], now: datetime) -> Iterator[tuple[NodeClaim, str]]:
    """Every claim with why it would drift once pools carry the hashes that kubewright writes; "" if it would not."""
    by_name = {p.name: p for p in found.node_pools}
    for claim in _ours(found):
        pool = by_name.get(claims.pool_of(claim))
        if pool is None or claim.metadata.deletion_timestamp is not None or not claims.is_set(claim, claims.LAUNCHED):
            continue
        value = hashes.node_pool_hash(pool)
        moved = pools.rehashed(pool, claim, value, hashes.NODE_POOL_HASH_VERSION)
        types: tuple[InstanceType, ...] = offered[pool.name].instance_types if pool.name in offered else ()
        written = Pool(pools.hashed(pool, value, hashes.NODE_POOL_HASH_VERSION), types)
        yield claim, drift.reason(moved, written, now) or found.cloud_drift.get(claim.name, "")


def _ours(found: Found) -> list[NodeClaim]:
    return [c for c in found.node_claims if (c.spec.node_class_ref.group, c.spec.node_class_ref.kind) in found.managed]


def _is_managed(found: Found, pool: NodePool) -> bool:
    reference = pool.spec.template.spec.node_class_ref
    return (reference.group, reference.kind) in found.managed
