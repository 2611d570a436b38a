"""Status conditions as values: setting one also restamps and recomputes the root.

Source: spec/scheduling 10.5 (NodePool, NodeClaim), spec/aws 1.3 (EC2NodeClass).
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from kubewright.api.meta import Condition, ObjectMeta, find_condition

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"
READY = "Ready"


class ConditionSet(msgspec.Struct, frozen=True):
    """Which conditions a kind's root stands for."""

    dependents: tuple[str, ...]
    root: str = READY


NODE_CLAIM = ConditionSet(("Launched", "Registered", "Initialized"))
NODE_POOL = ConditionSet(("ValidationSucceeded", "NodeClassReady"))
NODE_OVERLAY = ConditionSet(("ValidationSucceeded",))


def initialize(conditions: Sequence[Condition], kinds: ConditionSet, meta: ObjectMeta, now: datetime) -> tuple[Condition, ...]:
    """`conditions` with every missing root and dependent added as Unknown.

    The dependents date from the object's creation, so that a wait is counted from there.
    """
    result = list(conditions)
    for kind in (*kinds.dependents, kinds.root):
        if find_condition(tuple(result), kind) is None:
            result.append(
                Condition(
                    type=kind,
                    status=UNKNOWN,
                    reason="AwaitingReconciliation",
                    message="object is awaiting reconciliation",
                    last_transition_time=_seconds(meta.creation_timestamp or now),
                    observed_generation=meta.generation,
                )
            )
    return _ordered(result, kinds)


def set_condition(
    conditions: Sequence[Condition],
    kind: str,
    status: str,
    reason: str = "",
    message: str = "",
    *,
    kinds: ConditionSet,
    meta: ObjectMeta,
    now: datetime,
) -> tuple[Condition, ...]:
    """`conditions` after `kind` was set: initialised, stamped with the object's generation, root recomputed, in stored order.

    Equal conditions come back equal, so comparing with the stored tuple tells whether anything must be written.
    """
    current = list(initialize(conditions, kinds, meta, now))
    current = _put(current, kind, status, reason or (kind if status == TRUE else ""), message, meta=meta, now=now)
    if meta.deletion_timestamp is not None:
        current = [structs.replace(c, observed_generation=meta.generation) for c in current]
    if kind in kinds.dependents:
        current = _recompute_root(current, kinds, meta, now)
    return _ordered(current, kinds)


def set_plain(
    conditions: Sequence[Condition],
    kind: str,
    status: str,
    reason: str,
    message: str = "",
    *,
    meta: ObjectMeta,
    now: datetime,
) -> tuple[Condition, ...]:
    """`conditions` after `kind` was set, on an object that has no root condition."""
    return tuple(_put(list(conditions), kind, status, reason, message, meta=meta, now=now))


def clear_condition(conditions: Sequence[Condition], kind: str, *, kinds: ConditionSet) -> tuple[Condition, ...]:
    """`conditions` without `kind`, sorted by type as the reference leaves them; unchanged if it was not there.

    Raises:
        ValueError: `kind` is the root or one of its dependents, which cannot be cleared.
    """
    if kind == kinds.root or kind in kinds.dependents:
        raise ValueError(f"condition {kind} belongs to the root {kinds.root} and cannot be cleared")
    if find_condition(tuple(conditions), kind) is None:
        return tuple(conditions)
    return tuple(sorted((c for c in conditions if c.type != kind), key=lambda c: c.type))


def _recompute_root(conditions: list[Condition], kinds: ConditionSet, meta: ObjectMeta, now: datetime) -> list[Condition]:
    dependents = [c for c in conditions if c.type in kinds.dependents]
    unhealthy = [c for c in dependents if c.status != TRUE or c.observed_generation != meta.generation]
    if not unhealthy:
        return _put(conditions, kinds.root, TRUE, kinds.root, "", meta=meta, now=now)
    unhealthy.sort(key=_transition, reverse=True)
    failed = any(c.status == FALSE and c.observed_generation == meta.generation for c in unhealthy)
    status, reason = (FALSE, "UnhealthyDependents") if failed else (UNKNOWN, "ReconcilingDependents")
    message = ", ".join(f"{c.type}={c.status}" for c in unhealthy)
    return _put(conditions, kinds.root, status, reason, message, meta=meta, now=now)


def _put(
    conditions: list[Condition], kind: str, status: str, reason: str, message: str, *, meta: ObjectMeta, now: datetime
) -> list[Condition]:
    old = find_condition(tuple(conditions), kind)
    moved = old is None or old.status != status or old.last_transition_time is None
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=_seconds(now) if moved or old is None else old.last_transition_time,
        observed_generation=meta.generation,
    )
    return [*conditions, new] if old is None else [new if c.type == kind else c for c in conditions]


def _ordered(conditions: Sequence[Condition], kinds: ConditionSet) -> tuple[Condition, ...]:
    return tuple(sorted(conditions, key=lambda c: (c.type == kinds.root, _transition(c))))


def _transition(condition: Condition) -> float:
    return condition.last_transition_time.timestamp() if condition.last_transition_time else 0.0


def _seconds(moment: datetime) -> datetime:
    # the wire has whole seconds; a finer moment would compare unequal after a round trip
    return moment.replace(microsecond=0)
