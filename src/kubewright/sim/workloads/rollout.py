"""How many replicas each ReplicaSet of a Deployment should have: pure arithmetic.

Source: k8s.io/kubernetes v1.36 pkg/controller/deployment (rolling.go, sync.go, util/deployment_util.go).
"""

from collections.abc import Sequence

import msgspec

from kubewright.sim.objects import scaled


class Shares(msgspec.Struct, frozen=True):
    """One ReplicaSet in a rollout."""

    name: str
    replicas: int
    available: int
    last_maximum: int
    """What the Deployment's replicas and surge were when this was last scaled; 0 when not known."""


class Limits(msgspec.Struct, frozen=True):
    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        return self.replicas - self.unavailable


def limits(replicas: int, max_surge: int | str, max_unavailable: int | str) -> Limits:
    """Percentages of surge round up and of unavailable down; both zero would stand still, so one may be unavailable."""
    surge = scaled(max_surge, replicas, up=True)
    unavailable = scaled(max_unavailable, replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Limits(replicas, surge, min(unavailable, replicas))


def new_replicas(limit: Limits, new: Shares, old: Sequence[Shares]) -> int:
    """What the new ReplicaSet may grow to now."""
    if new.replicas > limit.replicas:
        return limit.replicas
    room = limit.most - new.replicas - sum(o.replicas for o in old)
    return new.replicas + max(0, min(room, limit.replicas - new.replicas))


def old_replicas(limit: Limits, new: Shares, old: Sequence[Shares]) -> dict[str, int]:
    """Old ReplicaSets (oldest first) → what they shrink to now: unhealthy pods go first, then as many as availability allows."""
    total = new.replicas + sum(o.replicas for o in old)
    budget = total - limit.least_available - (new.replicas - new.available)
    wanted = {o.name: o.replicas for o in old}
    if budget <= 0:
        return wanted
    cleaned = 0
    for one in old:
        unhealthy = min(budget - cleaned, one.replicas - one.available)
        if unhealthy > 0:
            wanted[one.name] -= unhealthy
            cleaned += unhealthy
    spare = new.available + sum(o.available for o in old) - limit.least_available
    for one in old:
        down = min(wanted[one.name], max(0, spare))
        wanted[one.name] -= down
        spare -= down
    return wanted


def proportional(limit: Limits, shares: Sequence[Shares]) -> dict[str, int]:
    """Every ReplicaSet → its part of a Deployment that is scaled in the middle of a rollout. `shares`: newest first."""
    active = [s for s in shares if s.replicas > 0]
    current = sum(s.replicas for s in active)
    to_add = (limit.most if limit.replicas > 0 else 0) - current
    # The larger, and among equals the newer when growing and the older when shrinking, come first.
    by_age = active if to_add >= 0 else active[::-1]
    order = sorted(by_age, key=lambda s: -s.replicas)
    wanted = {s.name: s.replicas for s in shares}
    added = 0
    for one in order:
        if to_add == 0:
            break
        if limit.replicas == 0:
            part = -one.replicas
        else:
            exact = one.replicas * limit.most / (one.last_maximum or limit.most)
            part = int(exact + 0.5) - one.replicas
        left = to_add - added
        part = min(part, left) if to_add > 0 else max(part, left)
        wanted[one.name] += part
        added += part
    if order and to_add != added:
        wanted[order[0].name] = max(0, wanted[order[0].name] + to_add - added)
    return wanted
