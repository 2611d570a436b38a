"""How many nodes of a NodePool may be disrupted now, and for what reason.

Source: spec/disruption 2. What cannot be read allows nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from kubewright.api import cron, duration
from kubewright.api.karpenter import Budget, NodePool
from kubewright.disruption.reasons import Reason
from kubewright.disruption.stays import Because, Stay
from kubewright.lifecycle import claims, nodes, state
from kubewright.solver.problem import StateNode

UNLIMITED = 2**31 - 1


class Usage(msgspec.Struct, frozen=True):
    """Of one NodePool: initialized machines that count, and those of them that are down or going."""

    total: int = 0
    disrupting: int = 0


def is_active(budget: Budget, now: datetime) -> bool:
    """Whether the budget applies now: always, or within `duration` after a hit of its schedule (UTC), the end excluded.

    Raises:
        ValueError: schedule or duration cannot be read, or one stands without the other.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise ValueError(f"budget {budget.nodes}: schedule and duration must be set together")
    hit = cron.parse(budget.schedule).next_after(now - duration.parse(budget.duration))
    return hit is not None and hit <= now


def value_of(budget: Budget, total: int) -> int:
    """How many of `total` nodes the budget allows, percentages rounded up.

    Raises:
        ValueError: `nodes` is neither a number nor a percentage.
    """
    text = budget.nodes.removesuffix("%")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"budget nodes {budget.nodes!r}: write a number such as 5, or a percentage such as 10%")
    return -(-int(text) * total // 100) if budget.nodes.endswith("%") else int(text)


def allowed(pool: NodePool, reason: Reason, total: int, now: datetime) -> int:
    """The least that any active budget for `reason` allows of `total` nodes; UNLIMITED when there is none.

    Raises:
        ValueError: some budget of the pool cannot be read, be it for another reason.
    """
    found = UNLIMITED
    for budget in pool.spec.disruption.budgets:
        limit = value_of(budget, total) if is_active(budget, now) else UNLIMITED
        if budget.reasons is None or reason.value in budget.reasons:
            found = min(found, limit)
    return found


def next_opening(pool: NodePool, reason: Reason, total: int, now: datetime) -> datetime | None:
    """When the budgets will next allow more than they do now, by the ends and hits of their schedules; None if nothing tells.

    Looks at the next two changes of every schedule.
    """
    moments: set[datetime] = set()
    try:
        present = allowed(pool, reason, total, now)
        for budget in pool.spec.disruption.budgets:
            if budget.schedule is None or budget.duration is None:
                continue
            schedule, length = cron.parse(budget.schedule), duration.parse(budget.duration)
            after = now - length
            for _ in range(2):
                hit = schedule.next_after(after)
                if hit is not None:
                    moments.update(m for m in (hit, hit + length) if m > now)
                    after = hit
        return next((m for m in sorted(moments) if allowed(pool, reason, total, m) > present), None)
    except ValueError:
        return None


def usage(known: Iterable[StateNode], queued: Collection[str] = ()) -> dict[str, Usage]:
    """Per NodePool name: what counts and what is being disrupted, by whomever.

    A machine that has been told to end leaves both numbers; one that is not Ready, or marked, or whose providerID is in `queued`
    because a command has it in hand, is being disrupted.
    """
    found: dict[str, list[int]] = {}
    for one in known:
        if one.claim is None or one.node is None or not state.is_initialized(one):
            continue
        if claims.is_set(one.claim, claims.INSTANCE_TERMINATING):
            continue
        counts = found.setdefault(claims.pool_of(one.claim), [0, 0])
        counts[0] += 1
        counts[1] += not nodes.is_ready(one.node) or one.marked_for_deletion or state.provider_id(one) in queued
    return {name: Usage(*counts) for name, counts in found.items()}


class Budgets(msgspec.Struct, frozen=True):
    """What may still be disrupted for one reason, per NodePool; an unknown pool has nothing left."""

    reason: Reason
    allowed: Mapping[str, int] = {}
    """Before what is already going is taken off."""
    left: Mapping[str, int] = {}
    used: Mapping[str, Usage] = {}
    problems: Mapping[str, str] = {}
    """Pools whose budgets cannot be read, and why."""
    now: datetime | None = None

    def stay(self, pool: NodePool) -> Stay:
        """Why one more node of the pool may not go: how much its budgets allow, how much is going, and when they next open."""
        most, used = self.allowed.get(pool.name, 0), self.used.get(pool.name, Usage())
        facts = {"nodepool": pool.name, "reason": self.reason.value, "allowed": str(most), "disrupting": str(used.disrupting)}
        problem = self.problems.get(pool.name, "")
        if problem:
            return Stay(Because.BUDGET, f"NodePool {pool.name} has a budget that cannot be read: {problem}", facts, "")
        text = f'Budgets of NodePool {pool.name} allow {most} of {used.total} node(s) to go for "{self.reason.value}"'
        text += f", {used.disrupting} are down or going" if used.disrupting else ""
        opens = None if self.now is None else next_opening(pool, self.reason, used.total, self.now)
        if opens is not None:
            facts["opens"] = opens.isoformat()
            text += f"; they next open at {opens.isoformat()}"
        return Stay(Because.BUDGET, text, facts, "")


def remaining(pools: Iterable[NodePool], used: Mapping[str, Usage], reason: Reason, now: datetime) -> Budgets:
    """What each pool's budgets leave for `reason` now."""
    limits: dict[str, int] = {}
    left: dict[str, int] = {}
    problems: dict[str, str] = {}
    for pool in sorted(pools, key=lambda p: p.name):
        now_used = used.get(pool.name, Usage())
        try:
            limits[pool.name] = allowed(pool, reason, now_used.total, now)
        except ValueError as error:
            limits[pool.name] = 0
            problems[pool.name] = str(error)
        left[pool.name] = max(limits[pool.name] - now_used.disrupting, 0)
    return Budgets(reason, limits, left, dict(used), problems, now)
