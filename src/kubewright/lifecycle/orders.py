"""A disruption under way, as it is written on the objects themselves, so that whoever runs next can finish it or take it back.

An order stands in an annotation of every NodeClaim that goes; a machine bought for it names the order in one of its own. The
steps: write the order (`ordered`), taint the Nodes, buy the replacements, wait until they are initialized, delete the NodeClaims.
`fate` says, from nothing but the objects, which of these comes next; it may be asked after a crash between any two writes.
"""

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims, nodes, pods

ORDER = "kubewright.sh/disruption-order"
"""On a NodeClaim that goes: the order, as JSON."""
REPLACES = "kubewright.sh/replaces"
"""On a NodeClaim bought for an order: the order's id. It stays, and tells later where the machine came from."""
RETRY = "kubewright.sh/disruption-retry"
"""On a NodeClaim whose order failed: how often, and when it may be tried again, as JSON."""

PER_ORDER = timedelta(milliseconds=80)
LEAST, MOST = timedelta(minutes=10), timedelta(hours=1)
"""How long an order may take to have its replacements ready. Source: spec/disruption 3.11."""
FIRST_RETRY, LAST_RETRY = timedelta(minutes=1), timedelta(hours=1)


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided, and by names what it is about."""

    id: str
    reason: str
    """One of the disruption reasons, for example "Drifted"."""
    begun: datetime
    deadline: datetime
    claims: tuple[str, ...]
    """NodeClaims that go."""
    replacements: tuple[str, ...] = ()
    """NodeClaims that must be initialized before they do."""
    method: str = ""
    """The method's type label."""
    decision: str = "delete"
    graceful: bool = True
    """Whether pods that do not want to move are always respected."""


class Retry(msgspec.Struct, frozen=True):
    failures: int
    until: datetime


class Fate(enum.StrEnum):
    WAIT = "wait"
    """Some replacement is on its way."""
    END = "end"
    """Everything stands ready: the claims may go."""
    UNDO = "undo"
    """It cannot be carried out any more: `undone`, and `spared` replacements go."""
    OVER = "over"
    """None of its claims is left, or all are going."""


class Judged(msgspec.Struct, frozen=True):
    fate: Fate
    why: str = ""
    """For UNDO."""
    missing: tuple[str, ...] = ()
    """For WAIT: replacements that are not initialized, by name."""


def deadline_of(begun: datetime, under_way: int) -> datetime:
    """By when an order must have its replacements ready, with `under_way` nodes in the hands of all orders."""
    return begun + min(max(PER_ORDER * under_way, LEAST), MOST)


def order_of(claim: NodeClaim) -> Order | None:
    """The order a NodeClaim goes by; None without one, and for what is not an order of ours."""
    text = claim.metadata.annotations.get(ORDER)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Order)
    except msgspec.DecodeError:
        return None


def standing(found: Iterable[NodeClaim]) -> tuple[Order, ...]:
    """The orders that are written on NodeClaims which are not going yet, by time and id."""
    orders = {order.id: order for c in found if c.metadata.deletion_timestamp is None and (order := order_of(c)) is not None}
    return tuple(sorted(orders.values(), key=lambda o: (o.begun, o.id)))


def fate(order: Order, by_name: Mapping[str, NodeClaim], now: datetime) -> Judged:
    """What becomes of an order nobody writes any more: it was written and bought for, or cut short in the middle of that."""
    staying = staying_of(order, by_name)
    if not staying:
        return Judged(Fate.OVER)
    if order.replacements and not all(is_ordered(c, order) for c in staying):
        return Judged(Fate.UNDO, "it was not written on all its NodeClaims")
    missing = []
    for name in order.replacements:
        bought = by_name.get(name)
        if bought is None or bought.metadata.deletion_timestamp is not None:
            return Judged(Fate.UNDO, f"replacement {name} is gone")
        if not claims.is_set(bought, claims.INITIALIZED):
            missing.append(name)
    if not missing:
        return Judged(Fate.END)
    if now >= order.deadline:
        return Judged(Fate.UNDO, f"replacement {missing[0]} was not ready in time")
    return Judged(Fate.WAIT, missing=tuple(missing))


def staying_of(order: Order, by_name: Mapping[str, NodeClaim]) -> tuple[NodeClaim, ...]:
    """The order's claims that are not going yet; without replacements to wait for, only those it is written on."""
    found = (by_name[name] for name in order.claims if name in by_name)
    return tuple(c for c in found if c.metadata.deletion_timestamp is None and (bool(order.replacements) or is_ordered(c, order)))


def is_ordered(claim: NodeClaim, order: Order) -> bool:
    written = order_of(claim)
    return written is not None and written.id == order.id


def pinned(order: Order, claim: NodeClaim, on: Iterable[Pod], now: datetime) -> Pod | None:
    """A pod that holds the claim back although all else is ready: one that came, or was pinned, after the decision."""
    if not order.graceful and claim.spec.termination_grace_period is not None:
        return None
    return next((p for p in on if not pods.is_disruptable(p, now)), None)


def ordered(claim: NodeClaim, order: Order, now: datetime) -> NodeClaim:
    """The claim with the order, and with the reason as a condition."""
    written = {**claim.metadata.annotations, ORDER: msgspec.json.encode(order).decode()}
    return claims.with_condition(
        nodes.with_metadata(claim, annotations=written), claims.DISRUPTION_REASON, "True", order.reason, order.reason, now=now
    )


def undone(claim: NodeClaim, *, failed_at: datetime | None = None) -> NodeClaim:
    """The claim without order and reason; after a failure with the time before which nothing is to be tried again."""
    kept = {key: value for key, value in claim.metadata.annotations.items() if key != ORDER}
    if failed_at is not None:
        earlier = retry_of(claim)
        failures = 1 if earlier is None else earlier.failures + 1
        until = failed_at + min(FIRST_RETRY * 2 ** min(failures - 1, 10), LAST_RETRY)
        kept[RETRY] = msgspec.json.encode(Retry(failures, until.replace(microsecond=0))).decode()
    return claims.without_condition(nodes.with_metadata(claim, annotations=kept), claims.DISRUPTION_REASON)


def retry_of(claim: NodeClaim) -> Retry | None:
    """What is remembered of the claim's failed orders."""
    text = claim.metadata.annotations.get(RETRY)
    try:
        return None if text is None else msgspec.json.decode(text, type=Retry)
    except msgspec.DecodeError:
        return None


def is_held(claim: NodeClaim, now: datetime) -> bool:
    """Whether an order for the claim failed so lately that it is left alone for now."""
    earlier = retry_of(claim)
    return earlier is not None and now < earlier.until
