"""Which of the nodes that would do is best: kube-scheduler's default plugins and weights, without image locality.

Each score goes from 0 to 100 before its weight. Ties are broken by name, where kube-scheduler draws lots.

Source: k8s.io/kubernetes v1.36 pkg/scheduler/apis/config/v1/default_plugins.go and the plugins it lists.
"""

import math
from collections.abc import Sequence

from kubewright.sim.objects import LABEL_HOSTNAME
from kubewright.sim.scheduler import filters
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import Amounts, PodFacts, Spread, Term
from kubewright.sim.scheduler.topology import Domain, NamespaceLabels, SoftCount

TAINT_WEIGHT = 3
AFFINITY_WEIGHT = 2
SPREAD_WEIGHT = 2
POD_AFFINITY_WEIGHT = 2
ROOM_WEIGHT = 1
BALANCE_WEIGHT = 1
_TOP = 100


def best(
    pod: PodFacts,
    feasible: Sequence[NodeState],
    every: Sequence[NodeState],
    spreads: Sequence[SoftCount],
    namespaces: NamespaceLabels,
) -> NodeState:
    """The node to take among `feasible`; `every` node counts towards pod affinity. `spreads`: the soft constraints' counts."""
    if len(feasible) == 1:
        return feasible[0]
    scored = zip(feasible, totals(pod, feasible, every, spreads, namespaces), strict=True)
    return min(scored, key=lambda pair: (-pair[1], pair[0].name))[0]


def totals(
    pod: PodFacts,
    feasible: Sequence[NodeState],
    every: Sequence[NodeState],
    spreads: Sequence[SoftCount],
    namespaces: NamespaceLabels,
) -> list[int]:
    """The weighted scores of `feasible`, in its order; arguments as for `best`."""
    found = [_room(pod, node) * ROOM_WEIGHT + _balance(pod, node) * BALANCE_WEIGHT for node in feasible]
    _add(found, TAINT_WEIGHT, _normalised([_soft_taints(pod, n) for n in feasible], reverse=True))
    if pod.preferred:
        _add(found, AFFINITY_WEIGHT, _normalised([_preferred(pod, n) for n in feasible]))
    if spreads:
        _add(found, SPREAD_WEIGHT, _spread(feasible, spreads))
    wanted = _pod_affinity(pod, every, namespaces)
    if wanted:
        _add(found, POD_AFFINITY_WEIGHT, _stretched([sum(wanted.get(d, 0) for d in n.labels.items()) for n in feasible]))
    return found


def _add(found: list[int], weight: int, scores: Sequence[int]) -> None:
    for index, score in enumerate(scores):
        found[index] += weight * score


def _normalised(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    most = max(scores)
    if most == 0:
        return [_TOP if reverse else 0 for _ in scores]
    shares = [_TOP * score // most for score in scores]
    return [_TOP - share for share in shares] if reverse else shares


def _stretched(scores: Sequence[int]) -> list[int]:
    low, high = min(scores), max(scores)
    return [_TOP * (score - low) // (high - low) if high > low else 0 for score in scores]


def _room(pod: PodFacts, node: NodeState) -> int:
    """The free share of cpu and memory afterwards."""
    shares = []
    for name in ("cpu", "memory"):
        room = node.allocatable.get(name, 0)
        if room:
            used = node.scored[name] + pod.scored[name]
            shares.append((room - used) * _TOP // room if used <= room else 0)
    return sum(shares) // len(shares) if shares else 0


def _balance(pod: PodFacts, node: NodeState) -> int:
    """How much more alike the pod makes the used shares of cpu and memory: around 75 for no change, from 50 to 100."""
    if not any(pod.requests.get(name) for name in ("cpu", "memory")):
        return 0
    after = _evenness(node, pod.requests)
    return _TOP // 2 + (_TOP // 2 + after - _evenness(node, {})) // 2


def _evenness(node: NodeState, more: Amounts) -> int:
    """100 less the standard deviation of the used shares, in hundredths."""
    shares = [
        min(1.0, (node.used.get(name, 0) + more.get(name, 0)) / node.allocatable[name])
        for name in ("cpu", "memory")
        if node.allocatable.get(name)
    ]
    return int((1 - abs(shares[0] - shares[1]) / 2) * _TOP) if len(shares) == 2 else _TOP


def _soft_taints(pod: PodFacts, node: NodeState) -> int:
    return sum(t.effect == "PreferNoSchedule" and not filters.tolerated(t, pod.tolerations) for t in node.taints)


def _preferred(pod: PodFacts, node: NodeState) -> int:
    return sum(p.weight for p in pod.preferred if p.weight and filters.term_selects(p.preference, node))


def labels_needed(spreads: Sequence[Spread]) -> list[str]:
    """The labels without which a node counts for no soft constraint; the cluster's own ask for none."""
    return [] if all(s.default for s in spreads) else [s.topology_key for s in spreads]


def _spread(feasible: Sequence[NodeState], counts: Sequence[SoftCount]) -> list[int]:
    needed = labels_needed([c.spread for c in counts])
    known = [all(key in node.labels for key in needed) for node in feasible]
    here = [node for node, ok in zip(feasible, known, strict=True) if ok]
    raw = [0.0 for _ in feasible]
    for count in counts:
        key, skew = count.spread.topology_key, count.spread.max_skew
        per_node = key == LABEL_HOSTNAME
        domains = len(here) if per_node else len({node.labels.get(key, "") for node in here})
        weight = math.log(domains + 2)
        for index, node in enumerate(feasible):
            if known[index] and key in node.labels:
                matching = count.on_node(node) if per_node else count.in_domain(node.labels[key])
                raw[index] += matching * weight + skew - 1
    # Go rounds halves away from zero
    scores = [math.floor(score + 0.5) for score in raw]
    counted = [score for score, ok in zip(scores, known, strict=True) if ok]
    if not counted:
        return [0 for _ in feasible]
    low, high = min(counted), max(counted)
    return [
        0 if not ok else _TOP if high == 0 else _TOP * (high + low - score) // high
        for score, ok in zip(scores, known, strict=True)
    ]


def _pod_affinity(pod: PodFacts, every: Sequence[NodeState], namespaces: NamespaceLabels) -> dict[Domain, int]:
    """Domain → what the preferences of this pod, and those of others about it, add up to."""
    wanted: dict[Domain, int] = {}

    def note(term: Term, about: PodFacts, node: NodeState, amount: int) -> None:
        value = node.labels.get(term.topology_key)
        if value is not None and term.picks(about.namespace, about.labels, namespaces.get(about.namespace, {})):
            wanted[term.topology_key, value] = wanted.get((term.topology_key, value), 0) + amount

    for node in every:
        if not pod.preferred_terms and not node.wishing:
            continue
        for group in node.alike.values():
            for term in pod.preferred_terms:
                note(term, group.example, node, term.weight * group.count)
            for term in group.example.preferred_terms:
                note(term, pod, node, term.weight * group.count)
            for term in group.example.affinity:
                note(term, pod, node, group.count)  # a required term of theirs counts 1: hardPodAffinityWeight
    return wanted
