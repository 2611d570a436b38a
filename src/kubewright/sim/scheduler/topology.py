"""The filters that ask where other pods stand: topology spread, and affinity between pods.

What a kind of pod needs counted is counted once a pass, over groups of pods that look alike, and kept up as pods are placed.

Source: k8s.io/kubernetes v1.36 pkg/scheduler/framework/plugins/{podtopologyspread,interpodaffinity}.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubewright.api import selectors
from kubewright.api.meta import Labels
from kubewright.sim.scheduler import filters
from kubewright.sim.scheduler.filters import Reasons
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts, Spread, Term

SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = SPREAD + " (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

Domain = tuple[str, str]
"""(topology key, value)."""

NamespaceLabels = Mapping[str, Labels]


class SpreadCount:
    """How many pods that a hard constraint counts stand in each eligible domain."""

    def __init__(self, pod: PodFacts, spread: Spread, nodes: Iterable[NodeState]) -> None:
        self._pod = pod
        self._spread = spread
        self._keys = [s.topology_key for s in pod.hard_spread]
        self.matches_itself = selectors.matches(spread.selector, pod.labels)
        self.counts: dict[str, int] = {}
        for node in nodes:
            if self._eligible(node):
                value = node.labels[spread.topology_key]
                self.counts[value] = self.counts.get(value, 0) + count_on(node, spread, pod.namespace)

    def refuses(self, node: NodeState) -> Reasons:
        """Why not, if count + itself - global minimum > maxSkew."""
        value = node.labels.get(self._spread.topology_key)
        if value is None:
            return (SPREAD_LABEL,)
        enough = len(self.counts) >= self._spread.min_domains
        least = min(self.counts.values()) if enough and self.counts else 0
        skew = self.counts.get(value, 0) + (1 if self.matches_itself else 0) - least
        return (SPREAD,) if skew > self._spread.max_skew else ()

    def placed(self, pod: PodFacts, node: NodeState) -> None:
        if pod.namespace == self._pod.namespace and self._eligible(node) and selectors.matches(self._spread.selector, pod.labels):
            self.counts[node.labels[self._spread.topology_key]] += 1

    def _eligible(self, node: NodeState) -> bool:
        if any(key not in node.labels for key in self._keys):
            return False
        return included(self._spread, self._pod, node)


def included(spread: Spread, pod: PodFacts, node: NodeState) -> bool:
    """Whether the constraint's policies let the node count."""
    if spread.honour_affinity and not filters.matches_affinity(pod, node):
        return False
    return not spread.honour_taints or filters.tolerates(pod, node)


def count_on(node: NodeState, spread: Spread, namespace: str) -> int:
    return sum(
        group.staying
        for group in node.alike.values()
        if group.example.namespace == namespace and selectors.matches(spread.selector, group.example.labels)
    )


class SoftCount:
    """The same for a soft constraint, which only moves scores: by domain, and by node."""

    def __init__(self, pod: PodFacts, spread: Spread, needed: Sequence[str], nodes: Iterable[NodeState]) -> None:
        self.spread = spread
        self._pod = pod
        self._needed = needed
        self._by_value: dict[str, int] = {}
        self._by_node: dict[str, int] = {}
        for node in nodes:
            self._add(node, count_on(node, spread, pod.namespace))

    def in_domain(self, value: str) -> int:
        return self._by_value.get(value, 0)

    def on_node(self, node: NodeState) -> int:
        return self._by_node[node.name]

    def placed(self, pod: PodFacts, node: NodeState) -> None:
        if pod.namespace == self._pod.namespace and selectors.matches(self.spread.selector, pod.labels):
            self._add(node, 1)

    def _add(self, node: NodeState, count: int) -> None:
        self._by_node[node.name] = self._by_node.get(node.name, 0) + count
        if all(key in node.labels for key in self._needed) and included(self.spread, self._pod, node):
            value = node.labels.get(self.spread.topology_key, "")
            self._by_value[value] = self._by_value.get(value, 0) + count


class AffinityCount:
    """Where pods stand that this kind of pod wants near or not near, and pods that do not want it near."""

    def __init__(self, pod: PodFacts, nodes: Iterable[NodeState], namespaces: NamespaceLabels) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._near: dict[Domain, int] = {}
        self._apart: dict[Domain, int] = {}
        self._unwanted: set[Domain] = set()
        for node in nodes:
            for group in node.alike.values():
                self._take(group.example, node, group.count)

    def refuses(self, node: NodeState) -> Reasons:
        if not self._near_enough(node):
            return (AFFINITY,)
        for term in self._pod.anti_affinity:
            if self._apart.get((term.topology_key, node.labels.get(term.topology_key, "")), 0):
                return (ANTI_AFFINITY,)
        if any((key, value) in self._unwanted for key, value in node.labels.items()):
            return (EXISTING_ANTI_AFFINITY,)
        return ()

    def placed(self, pod: PodFacts, node: NodeState) -> None:
        self._take(pod, node, 1)

    def _near_enough(self, node: NodeState) -> bool:
        terms = self._pod.affinity
        if any(term.topology_key not in node.labels for term in terms):
            return False
        if all(self._near.get((t.topology_key, node.labels[t.topology_key]), 0) for t in terms):
            return True
        # The first of a group that wants its own kind near may stand anywhere.
        return not self._near and self._picks_all(terms, self._pod)

    def _take(self, other: PodFacts, node: NodeState, count: int) -> None:
        pod = self._pod
        if pod.affinity and self._picks_all(pod.affinity, other):
            for term in pod.affinity:
                _count(self._near, term, node, count)
        for term in pod.anti_affinity:
            if self._picks(term, other):
                _count(self._apart, term, node, count)
        for term in other.anti_affinity:
            if term.topology_key in node.labels and self._picks(term, pod):
                self._unwanted.add((term.topology_key, node.labels[term.topology_key]))

    def _picks_all(self, terms: Iterable[Term], other: PodFacts) -> bool:
        return all(self._picks(term, other) for term in terms)

    def _picks(self, term: Term, other: PodFacts) -> bool:
        return term.picks(other.namespace, other.labels, self._namespaces.get(other.namespace, {}))


def _count(counts: dict[Domain, int], term: Term, node: NodeState, count: int) -> None:
    value = node.labels.get(term.topology_key)
    if value is not None:
        counts[term.topology_key, value] = counts.get((term.topology_key, value), 0) + count
