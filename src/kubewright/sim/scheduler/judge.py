"""One scheduling pass: which node takes a pod now, or every node's reason why not.

A pass remembers what it worked out for pods that look alike. Room only shrinks while it lasts, so a kind of pod that found no
node for reasons that other pods cannot lift is not tried again.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kubewright.sim.objects import Key
from kubewright.sim.scheduler import filters, scores
from kubewright.sim.scheduler.filters import Reasons
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts, Spread
from kubewright.sim.scheduler.storage import Storage
from kubewright.sim.scheduler.topology import AffinityCount, NamespaceLabels, SoftCount, SpreadCount

_ENOUGH_NODES = 100
"""A pod is judged by the best of this many nodes at least. Source: kube-scheduler minFeasibleNodesToFind."""

DefaultSpreads = Callable[[PodFacts], Sequence[Spread]]


class Verdict(msgspec.Struct, frozen=True):
    """`node` takes the pod, or `message` says why none does."""

    node: NodeState | None
    message: str = ""


class _Kind:
    """What is known in this pass about pods of one look."""

    def __init__(self, pod: PodFacts) -> None:
        self.pod = pod
        self.candidates: list[NodeState] = []
        self.refused: list[Reasons] = []
        self.spreads: list[SpreadCount] = []
        self.affinity: AffinityCount | None = None
        self.soft: Sequence[SoftCount] | None = None
        self.next = 0
        self.no: tuple[int, str] | None = None
        """(placements at that time, message) of the last failure."""


class Pass:
    """Judges pods one by one; tell it `placed` before the next.

    Cost: O(nodes) for a kind of pod's first, O(candidates) for each further one.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeState],
        namespaces: NamespaceLabels,
        storage: Storage,
        claim_users: Mapping[Key, int],
        default_spreads: DefaultSpreads,
    ) -> None:
        self._by_name = nodes
        self._nodes = [nodes[name] for name in sorted(nodes)]
        self._namespaces = namespaces
        self._storage = storage
        self._claim_users = claim_users
        self._default_spreads = default_spreads
        self._kinds: dict[bytes, _Kind] = {}
        self.placements = 0

    def judge(self, pod: PodFacts) -> Verdict:
        kind = self._kind(pod)
        if kind.no is not None and (not depends_on_others(pod) or kind.no[0] == self.placements):
            return Verdict(None, kind.no[1])
        if reason := self._everywhere(pod):
            return self._no(kind, filters.sentence(len(self._nodes), (), reason))
        feasible, refused = self._feasible(kind, pod)
        if not feasible:
            return self._no(kind, filters.sentence(len(self._nodes), refused))
        return Verdict(scores.best(pod, feasible, self._nodes, self._soft(kind, pod), self._namespaces))

    def _soft(self, kind: _Kind, pod: PodFacts) -> Sequence[SoftCount]:
        if kind.soft is None:
            soft = pod.soft_spread or (() if pod.hard_spread else self._default_spreads(pod))
            needed = scores.labels_needed(soft)
            kind.soft = [SoftCount(pod, spread, needed, self._nodes) for spread in soft]
        return kind.soft

    def placed(self, pod: PodFacts, node: NodeState) -> None:
        """Count `pod` as standing on `node` from now on."""
        node.add(pod)
        self.placements += 1
        for kind in self._kinds.values():
            for spread in kind.spreads:
                spread.placed(pod, node)
            for soft in kind.soft or ():
                soft.placed(pod, node)
            if kind.affinity is not None:
                kind.affinity.placed(pod, node)
            elif pod.anti_affinity:
                kind.affinity = AffinityCount(kind.pod, self._nodes, self._namespaces)

    def _no(self, kind: _Kind, message: str) -> Verdict:
        kind.no = (self.placements, message)
        return Verdict(None, message)

    def _everywhere(self, pod: PodFacts) -> str:
        if pod.spec.resource_claims:
            return "pod has resourceClaims, which the pretend scheduler does not allocate"
        return self._storage.refuses_everywhere(pod, self._claim_users) if pod.claims else ""

    def _kind(self, pod: PodFacts) -> _Kind:
        kind = self._kinds.get(pod.look)
        if kind is not None:
            return kind
        kind = self._kinds[pod.look] = _Kind(pod)
        only = filters.pinned(pod)
        nodes = self._nodes if only is None else [self._by_name[name] for name in sorted(only & self._by_name.keys())]
        kind.refused = [(filters.NODE_AFFINITY_PREFILTER,)] * (len(self._nodes) - len(nodes))
        for node in nodes:
            if reasons := filters.unmoving(pod, node):
                kind.refused.append(reasons)
            else:
                kind.candidates.append(node)
        kind.spreads = [SpreadCount(pod, spread, self._nodes) for spread in pod.hard_spread]
        if pod.affinity or pod.anti_affinity or any(node.wishing for node in self._nodes):
            kind.affinity = AffinityCount(pod, self._nodes, self._namespaces)
        return kind

    def _feasible(self, kind: _Kind, pod: PodFacts) -> tuple[list[NodeState], list[Reasons]]:
        """The candidates that take the pod, and the reasons of those that do not.

        Like kube-scheduler, it stops at enough of them and begins behind them the next time.
        """
        enough = _enough(len(self._nodes))
        feasible: list[NodeState] = []
        refused = list(kind.refused)
        count = len(kind.candidates)
        for step in range(count):
            node = kind.candidates[(kind.next + step) % count]
            if reasons := self._refuses(kind, pod, node):
                refused.append(reasons)
                continue
            feasible.append(node)
            if len(feasible) == enough:
                kind.next = (kind.next + step + 1) % count
                break
        return feasible, refused

    def _refuses(self, kind: _Kind, pod: PodFacts, node: NodeState) -> Reasons:
        if reasons := filters.moving(pod, node):
            return reasons
        if pod.claims and (reasons := self._storage.refuses(pod, node)):
            return reasons
        for spread in kind.spreads:
            if reasons := spread.refuses(node):
                return reasons
        return kind.affinity.refuses(node) if kind.affinity is not None else ()


def depends_on_others(pod: PodFacts) -> bool:
    """Whether another pod's placement can turn this pod's no into a yes."""
    return bool(pod.affinity or pod.hard_spread or pod.claims)


def _enough(nodes: int) -> int:
    """Source: k8s.io/kubernetes pkg/scheduler/schedule_one.go numFeasibleNodesToFind."""
    if nodes < _ENOUGH_NODES:
        return nodes
    percent = max(5, 50 - nodes // 125)
    return max(_ENOUGH_NODES, nodes * percent // 100)
