"""What a machine was bought for, as it is noted on its NodeClaim: nothing else would tell after a restart.

The note is small whatever it is about: names of some pods, how many there were, and what the machine was going to cost.
"""

from collections.abc import Collection

import msgspec

from kubewright.api.karpenter import NodeClaim
from kubewright.solver.problem import PlannedClaim

BOUGHT_FOR = "kubewright.sh/bought-for"
MOST_PODS = 10
MOST_WORKLOADS = 5
MOST_CHARACTERS = 600
"""Of the pods' keys together; the least that is kept is the number of pods."""

_encoder = msgspec.json.Encoder(order="sorted")


class BoughtFor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pods: tuple[str, ...] = ()
    """Keys of the first of them, sorted."""
    count: int = 0
    """Of all."""
    usd_per_hour: float = 0.0
    """Of the cheapest offering, when it was planned."""
    workloads: tuple[str, ...] = ()
    """UIDs of who made the pods, the first of them: pods come and go, and their successors are wanted as they were."""
    why: str = ""
    """What the purchase was made for: "provisioned", or the disruption it replaces a node for."""


def note(planned: PlannedClaim, why: str, workloads: Collection[str] = ()) -> dict[str, str]:
    """The annotation; `workloads` are the UIDs of who made the pods, as far as that is known."""
    kept: list[str] = []
    for key in planned.pods[:MOST_PODS]:
        if sum(map(len, kept)) + len(key) > MOST_CHARACTERS:
            break
        kept.append(key)
    makers = tuple(sorted(workloads)[:MOST_WORKLOADS])
    told = BoughtFor(tuple(kept), len(planned.pods), round(planned.usd_per_hour, 6), makers, why)
    return {BOUGHT_FOR: _encoder.encode(told).decode()}


def of(claim: NodeClaim) -> BoughtFor | None:
    """The note of a NodeClaim; None without one, and for what is no note of ours."""
    text = claim.metadata.annotations.get(BOUGHT_FOR)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=BoughtFor)
    except msgspec.DecodeError:
        return None
