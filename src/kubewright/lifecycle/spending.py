"""Caps on what is bought: so many dollars an hour for everything that runs, and so many machines in any hour.

Both are off unless somebody sets them. They hold for machines bought for pods that wait; what disruption buys replaces what it
ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from kubewright.settings import PurchaseSettings
from kubewright.solver.problem import PlannedClaim

WINDOW = timedelta(hours=1)
BUCKET_S = 60
LATELY = "kubewright.sh/purchases-lately"
"""On a NodePool, while there is a cap on purchases: minutes since the epoch with the machines bought in each, as JSON."""


class Admitted(msgspec.Struct, frozen=True):
    claims: tuple[PlannedClaim, ...] = ()
    """To be bought, in the plan's order."""
    refused: tuple[tuple[PlannedClaim, str], ...] = ()
    """Not now, and why."""


def admit(planned: Sequence[PlannedClaim], usd_per_hour: float, lately: int, caps: PurchaseSettings) -> Admitted:
    """As many of the plan's machines as the caps leave room for; the plan's order decides, and a smaller one may follow.

    `usd_per_hour` is what runs or is on its way, `lately` how many machines were bought in the last hour.
    """
    kept: list[PlannedClaim] = []
    refused: list[tuple[PlannedClaim, str]] = []
    for one in planned:
        if caps.per_hour and lately + len(kept) >= caps.per_hour:
            refused.append((one, f"{caps.per_hour} machines were bought within an hour, as many as --purchases-per-hour allows"))
        elif caps.spend_cap_usd_per_hour and usd_per_hour + one.usd_per_hour > caps.spend_cap_usd_per_hour:
            cap = f"the cap of ${caps.spend_cap_usd_per_hour:.2f}/h (--spend-cap)"
            refused.append((one, f"it would cost ${one.usd_per_hour:.4f}/h beside ${usd_per_hour:.4f}/h that runs: over {cap}"))
        else:
            kept.append(one)
            usd_per_hour += one.usd_per_hour
    return Admitted(tuple(kept), tuple(refused))


def lately(text: str, now: datetime) -> dict[int, int]:
    """Minute → machines, of the last hour; empty for an annotation that cannot be read."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[int, int]]) if text else []
    except msgspec.DecodeError:
        return {}
    return recent(dict(found), now)


def recent(counts: Mapping[int, int], now: datetime) -> dict[int, int]:
    """Those of the last hour."""
    oldest = minute(now - WINDOW)
    return {at: count for at, count in counts.items() if at > oldest}


def noted(before: dict[int, int], count: int, now: datetime) -> str:
    """The annotation after `count` more."""
    at = minute(now)
    found = {**before, at: before.get(at, 0) + count}
    return msgspec.json.encode(sorted(found.items())).decode()


def total(parts: Iterable[dict[int, int]]) -> int:
    return sum(sum(part.values()) for part in parts)


def minute(moment: datetime) -> int:
    return int(moment.timestamp()) // BUCKET_S
