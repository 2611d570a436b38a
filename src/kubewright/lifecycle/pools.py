"""What a NodePool's status says: valid, its NodeClass ready, how much it holds, whether its nodes come to life.

Source: spec/scheduling 10.2, spec/disruption 6.5, 6.6.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from kubewright.api import conditions, labels, quantity
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Condition, Object, find_condition
from kubewright.api.quantity import Resources

T = TypeVar("T", bound=Object)

VALIDATION_SUCCEEDED = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
REGISTRATION_HEALTHY = "NodeRegistrationHealthy"
HEALTH_SIZE = 4
BINARY = frozenset({"memory", "ephemeral-storage"})
BASE_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "nodes")


class NodeClassState(msgspec.Struct, frozen=True):
    """What a NodePool needs to know of its NodeClass; None in its place means that there is none."""

    terminating: bool = False
    ready: Condition | None = None
    generation: int = 0


def with_condition(pool: NodePool, kind: str, status: str, reason: str = "", message: str = "", *, now: datetime) -> NodePool:
    """The pool with one condition set and Ready worked out anew."""
    found = conditions.set_condition(
        pool.status.conditions, kind, status, reason, message, kinds=conditions.NODE_POOL, meta=pool.metadata, now=now
    )
    return with_status(pool, conditions=found)


def with_status(pool: NodePool, **changes: object) -> NodePool:
    return msgspec.structs.replace(pool, status=msgspec.structs.replace(pool.status, **changes))


def validated(pool: NodePool, problems: Sequence[str], now: datetime) -> NodePool:
    """The pool with what runtime validation found."""
    if problems:
        text = "; ".join(problems)
        return with_condition(pool, VALIDATION_SUCCEEDED, "False", "NodePoolValidationFailed", text, now=now)
    return with_condition(pool, VALIDATION_SUCCEEDED, "True", now=now)


def class_seen(pool: NodePool, node_class: NodeClassState | None, now: datetime) -> NodePool:
    """The pool with what its NodeClass says about itself."""
    if node_class is None:
        verdict = ("False", "NodeClassNotFound", "NodeClass not found on cluster")
    elif node_class.terminating:
        verdict = ("False", "NodeClassTerminating", "NodeClass is Terminating")
    elif node_class.ready is None or node_class.ready.status == "Unknown":
        verdict = ("False", "NodeClassReadinessUnknown", "Node Class Readiness Unknown")
    elif node_class.ready.status == "False":
        verdict = ("False", node_class.ready.reason, node_class.ready.message)
    else:
        verdict = ("True", "", "")
    return with_condition(pool, NODE_CLASS_READY, *verdict, now=now)


def is_ready(pool: NodePool) -> bool:
    """Whether the pool may be bought for: Ready is True (for the generation it has now) and it is not going."""
    found = find_condition(pool.status.conditions, conditions.READY)
    return pool.metadata.deletion_timestamp is None and found is not None and found.status == "True"


def counted(pool: NodePool, capacities: Iterable[Resources]) -> NodePool:
    """The pool with the sum of its nodes' capacities (each with `nodes: 1`) as its usage."""
    total = dict.fromkeys(BASE_RESOURCES, 0)
    for capacity in capacities:
        for name, amount in capacity.items():
            total[name] = total.get(name, 0) + amount
    # A sum that equals what is written already keeps its text: "4Gi" is not rewritten as "4294967296".
    written = {
        name: pool.status.resources[name]
        if name in pool.status.resources and quantity.parse(pool.status.resources[name]) == amount
        else quantity.show(amount, binary=name in BINARY)
        for name, amount in sorted(total.items())
    }
    return with_status(pool, resources=written, nodes=total["nodes"] // quantity.ONE)


def hashed(pool: NodePool, value: str, version: str) -> NodePool:
    """The pool with its hash written down."""
    changed = {**pool.metadata.annotations, labels.NODEPOOL_HASH: value, labels.NODEPOOL_HASH_VERSION: version}
    return msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, annotations=changed))


def rehashed(pool: NodePool, claim: NodeClaim, value: str, version: str) -> NodeClaim:
    """A claim of the pool, brought to another hash version without drifting for it; unchanged if it has that version.

    A claim that is drifted already keeps its old hash, and so stays drifted.
    """
    known = labels.NODEPOOL_HASH_VERSION
    if version in (pool.metadata.annotations.get(known), claim.metadata.annotations.get(known)):
        return claim
    changed = {**claim.metadata.annotations, labels.NODEPOOL_HASH_VERSION: version}
    if find_condition(claim.status.conditions, "Drifted") is None:
        changed[labels.NODEPOOL_HASH] = value
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=changed))


class Health(msgspec.Struct, frozen=True):
    """How the last four machines of a pool did: True came to life."""

    outcomes: tuple[bool, ...] = ()

    def after(self, *outcomes: bool) -> "Health":
        return Health((*self.outcomes, *outcomes)[-HEALTH_SIZE:])

    @property
    def failed_in_a_row(self) -> int:
        """How many of the last did not come to life, up to `HEALTH_SIZE`."""
        return next((i for i, good in enumerate(reversed(self.outcomes)) if good), len(self.outcomes))

    @property
    def status(self) -> str:
        """The condition's status: "False" from two failures in the last four on; "Unknown" without any outcome."""
        if not self.outcomes:
            return "Unknown"
        return "False" if self.outcomes.count(False) >= 2 else "True"


def remembered(pool: NodePool) -> Health:
    """What a restarted operator may assume from the condition: True was a success, False two failures."""
    found = find_condition(pool.status.conditions, REGISTRATION_HEALTHY)
    if found is None or found.status == "Unknown":
        return Health()
    return Health((True,) if found.status == "True" else (False, False))


def health_is_stale(pool: NodePool, node_class: NodeClassState | None) -> bool:
    """Whether what was learned of the pool's health is about another spec, of it or of its NodeClass."""
    found = find_condition(pool.status.conditions, REGISTRATION_HEALTHY)
    generation = 0 if node_class is None else node_class.generation
    return (
        found is None
        or generation != pool.status.node_class_observed_generation
        or found.observed_generation != pool.metadata.generation
    )


def health_reset(pool: NodePool, node_class: NodeClassState | None, now: datetime) -> NodePool:
    """The pool as one of which nothing is known yet."""
    unknown = with_condition(
        pool, REGISTRATION_HEALTHY, "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation", now=now
    )
    return with_status(unknown, node_class_observed_generation=0 if node_class is None else node_class.generation)


def health_after(pool: NodePool, health: Health, claim: NodeClaim, now: datetime, *, came_to_life: bool) -> NodePool:
    """The pool's condition after one more outcome, which `health` holds already."""
    if came_to_life:
        return with_condition(pool, REGISTRATION_HEALTHY, "True", now=now) if health.status == "True" else pool
    current = find_condition(pool.status.conditions, REGISTRATION_HEALTHY)
    if health.status != "False" or (current is not None and current.status == "False"):
        return pool
    launched = find_condition(claim.status.conditions, "Launched")
    if launched is not None and launched.status != "True":
        return with_condition(pool, REGISTRATION_HEALTHY, "False", launched.reason, launched.message, now=now)
    return with_condition(pool, REGISTRATION_HEALTHY, "False", "RegistrationFailed", "Failed to register node", now=now)


def owns(pool: NodePool, claim: NodeClaim) -> bool:
    """Whether the claim was bought for this very pool, not for an earlier one of its name."""
    return any(o.uid == pool.metadata.uid for o in claim.metadata.owner_references)


def hydrated(obj: T, claim: NodeClaim) -> T:
    """A NodeClaim, or its Node, with the label that names the claim's NodeClass. Source: spec/disruption 6.8."""
    reference = claim.spec.node_class_ref
    label = labels.node_class_label(reference.group, reference.kind)
    if obj.metadata.labels.get(label) == reference.name:
        return obj
    changed = {**obj.metadata.labels, label: reference.name}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=changed))
