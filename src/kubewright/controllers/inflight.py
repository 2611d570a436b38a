"""NodeClaims that were bought a moment ago and have no machine yet: what they were bought for, and what they may turn out to be.

While every launch is quick, passes simply wait for it. When one drags on, waiting would stop provisioning for everybody (the
reference does, for up to five minutes); here the pods such a claim was bought for are held back, and its capacity counts at its
largest, so that neither pods nor limits are served twice.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubewright.api import quantity
from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims
from kubewright.solver.problem import PlannedClaim, Pool, Problem, StateNode


class InFlight:
    """What this process has bought and not yet seen launched."""

    def __init__(self) -> None:
        self._bought: dict[str, tuple[NodeClaim, PlannedClaim]] = {}

    def note(self, claim: NodeClaim, planned: PlannedClaim) -> None:
        self._bought[claim.name] = (claim, planned)

    def forget(self, name: str) -> None:
        """It has a machine now, or it is gone."""
        self._bought.pop(name, None)

    def knows(self, names: Iterable[str]) -> bool:
        """Whether all of these are ours; of another's (a killed operator's) nobody knows what they were bought for."""
        return all(name in self._bought for name in names)

    def held(self, problem: Problem, names: Sequence[str]) -> Problem:
        """The problem without the pods that these claims were bought for, and with the claims as full nodes."""
        if not names:
            return problem
        spoken_for = {key for name in names for key in self._bought[name][1].pods}
        full = [self._as_node(name, problem.pools) for name in names]
        return msgspec.structs.replace(
            problem,
            pods=tuple(p for p in problem.pods if p.key not in spoken_for),
            nodes=tuple(sorted((*problem.nodes, *full), key=_name)),
        )

    def _as_node(self, name: str, pools: Sequence[Pool]) -> StateNode:
        claim, planned = self._bought[name]
        largest: dict[str, int] = {}
        for pool in pools:
            if pool.node_pool.name == planned.node_pool:
                for kind in pool.instance_types:
                    if kind.name in planned.instance_types:
                        largest = _most(largest, kind.capacity)
        capacity = {key: quantity.show(amount) for key, amount in sorted(largest.items())}
        return StateNode(None, claims.with_status(claim, capacity=capacity))


def _most(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in {**a, **b}}


def _name(node: StateNode) -> str:
    if node.node is not None:
        return node.node.name
    assert node.claim is not None
    return node.claim.name
