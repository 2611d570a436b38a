"""What moving pods costs, in average pods: the measure that savings are weighed against.

Source: spec/disruption 1.5. Differs on purpose: a node that is new, or whose pods have just come, costs more.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.disruption.consolidatable import quiet_since
from kubewright.lifecycle import claims
from kubewright.settings import DisruptionSettings

BALANCED = "Balanced"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PER_DELETION_COST, _PER_PRIORITY = 2.0**27, 2.0**25
_LEAST, _MOST = -10.0, 10.0


def of_pod(pod: Pod) -> float:
    """Between -10 and 10, 1 for a pod that says nothing. A deletion cost that is not a number counts as none."""
    cost = 1.0
    written = pod.metadata.annotations.get(DELETION_COST)
    if written is not None:
        try:
            value = float(written)
        except ValueError:
            value = 0.0
        cost += value / _PER_DELETION_COST if math.isfinite(value) else 0.0
    cost += (pod.spec.priority or 0) / _PER_PRIORITY
    return min(max(cost, _LEAST), _MOST)


def of_pods(moving: Iterable[Pod]) -> float:
    """Of emptying one node of these pods: 1 for the node, and what each pod costs. Pods that want to go cost nothing."""
    return 1.0 + sum(max(0.0, of_pod(pod)) for pod in moving)


def restlessness(claim: NodeClaim, pool: NodePool, knobs: DisruptionSettings, now: datetime) -> float:
    """By what the cost of moving is multiplied: much just after the node came or its pods last did, 1 once it has settled.

    What could be gained now can still be gained when it has shown to last; a fleet in motion is not chased. `Balanced`, which
    weighs more strictly anyway, at most doubles it.
    """
    moments = [m for m in (quiet_since(claim), claims.since(claim, claims.INITIALIZED)) if m is not None]
    if knobs.settled_after <= timedelta() or not moments:
        return 1.0
    new = max(0.0, 1.0 - (now - max(moments)) / knobs.settled_after)
    most = knobs.unrest if pool.spec.disruption.consolidation_policy != BALANCED else min(knobs.unrest, 1.0)
    return 1.0 + most * new


def remaining_life(claim: NodeClaim, expire_after: timedelta | None, now: datetime) -> float:
    """The share of its life that a machine has left, between 0 and 1; 1 if it does not expire."""
    created = claim.metadata.creation_timestamp
    if expire_after is None or expire_after <= timedelta() or created is None:
        return 1.0
    return min(max((expire_after - (now - created)) / expire_after, 0.0), 1.0)
