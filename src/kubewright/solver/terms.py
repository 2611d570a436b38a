"""Topology terms as pods write them, brought into one form: spread, affinity and anti-affinity.

Source: spec/scheduling 6.1, 6.3, 6.5, 6.9, 6.10.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api.core import (
    Namespace,
    Pod,
    PodAffinityTerm,
    PodSpec,
    ReplicaSet,
    Service,
    StatefulSet,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from kubewright.api.meta import Labels, LabelSelector, SelectorRequirement
from kubewright.api.selectors import matches
from kubewright.scheduling.requirements import Requirements, add_all, compatible, of_labels, of_term
from kubewright.scheduling.taints import TOLERATES_PREFERENCES, untolerated


class Shape(enum.StrEnum):
    SPREAD = "topology spread"
    AFFINITY = "pod affinity"
    ANTI_AFFINITY = "pod anti-affinity"


class NodeFilter(msgspec.Struct, frozen=True):
    """Which nodes a spread looks at."""

    alternatives: tuple[Requirements, ...] = ()
    """Any one must hold of the node's labels; none means every node. Empty under nodeAffinityPolicy Ignore."""
    tolerations: tuple[Toleration, ...] | None = None
    """The node's taints must be tolerated; None under nodeTaintsPolicy Ignore."""

    def passes(self, labels: Requirements, taints: Sequence[Taint]) -> bool:
        if self.tolerations is not None and untolerated(taints, self.tolerations):
            return False
        return not self.alternatives or any(compatible(labels, a) is None for a in self.alternatives)


class Term(msgspec.Struct, frozen=True):
    """One topology rule: pods that `selector` picks in `namespaces`, counted per value of `key`."""

    shape: Shape
    key: str
    namespaces: tuple[str, ...] | None
    """Sorted; None means all."""
    selector: LabelSelector | None
    max_skew: int = 0
    min_domains: int = 0
    filter: NodeFilter = NodeFilter()
    domain_tolerations: tuple[Toleration, ...] | None = None
    """Domains that only stand behind untolerated taints do not exist; None when taints do not matter."""
    together_with: tuple[tuple[tuple[str, ...] | None, LabelSelector | None], ...] = ()
    """(namespaces, selector) of the pod's other required affinity terms: kube-scheduler counts a pod for one of them only if
    all pick it."""

    def selects(self, namespace: str, labels: Labels) -> bool:
        """Whether a pod is one of those counted; a selector that the API server would refuse picks nothing."""
        return _picks(self.namespaces, self.selector, namespace, labels) and all(
            _picks(namespaces, selector, namespace, labels) for namespaces, selector in self.together_with
        )


class Deduction(msgspec.Struct, frozen=True):
    """Where default spread constraints find a pod's selector. Source: spec/scheduling 6.10."""

    constraints: tuple[TopologySpreadConstraint, ...] = ()
    services: tuple[Service, ...] = ()
    replica_sets: Mapping[str, ReplicaSet] = {}
    stateful_sets: Mapping[str, StatefulSet] = {}

    def spreads(self, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints a pod gets that writes none itself."""
        if not self.constraints or pod.spec.topology_spread_constraints:
            return ()
        selector = self._selector(pod)
        if not selector.match_labels and not selector.match_expressions:
            return ()
        return tuple(replace(c, label_selector=selector) for c in self.constraints)

    def _selector(self, pod: Pod) -> LabelSelector:
        labels: dict[str, str] = {}
        for service in self.services:
            chosen = service.spec.selector
            if service.namespace == pod.namespace and chosen is not None and _has_all(pod.metadata.labels, chosen):
                labels.update(chosen)
        expressions: list[SelectorRequirement] = []
        for owner in pod.metadata.owner_references:
            if not owner.controller or owner.kind not in ("ReplicaSet", "StatefulSet"):
                continue
            known: Mapping[str, ReplicaSet | StatefulSet] = (
                self.replica_sets if owner.kind == "ReplicaSet" else self.stateful_sets
            )
            found = known.get(f"{pod.namespace}/{owner.name}")
            if found is None or found.spec.selector is None:
                continue
            chosen = found.spec.selector.match_labels
            expressions += [SelectorRequirement(key=k, operator="In", values=(chosen[k],)) for k in sorted(chosen)]
            expressions += found.spec.selector.match_expressions
        return LabelSelector(match_labels=labels, match_expressions=tuple(expressions))


def spread_terms(
    spec: PodSpec,
    written: PodSpec,
    namespace: str,
    labels: Labels,
    *,
    preferences: bool,
    aliases: Mapping[str, str],
) -> Iterator[Term]:
    """The pod's own spread constraints; those that would rather than must hold only with `preferences`.

    Which nodes count is up to the pod as `written`: kube-scheduler knows nothing of required terms that were given up here.
    """
    if not spec.topology_spread_constraints:
        return
    alternatives = _node_alternatives(written, aliases)
    for c in spec.topology_spread_constraints:
        if c.when_unsatisfiable != "DoNotSchedule" and not preferences:
            continue
        honoured = (c.node_affinity_policy or "Honor") == "Honor"
        # As kube-scheduler: a taint that merely prefers keeps no node out of the count.
        tolerations = (*spec.tolerations, TOLERATES_PREFERENCES) if c.node_taints_policy == "Honor" else None
        yield Term(
            Shape.SPREAD,
            aliases.get(c.topology_key, c.topology_key),
            (namespace,),
            _with_keys(c.label_selector, labels, c.match_label_keys, ()),
            c.max_skew,
            c.min_domains or 0,
            NodeFilter(alternatives if honoured else (), tolerations),
            tolerations,
        )


def affinity_terms(
    spec: PodSpec,
    namespace: str,
    labels: Labels,
    namespaces: Sequence[Namespace],
    *,
    preferences: bool,
    aliases: Mapping[str, str],
) -> Iterator[Term]:
    """The pod's affinity and anti-affinity; preferred terms too (as if required) with `preferences`."""
    affinity = spec.affinity
    if affinity is None:
        return
    for shape, side in ((Shape.AFFINITY, affinity.pod_affinity), (Shape.ANTI_AFFINITY, affinity.pod_anti_affinity)):
        if side is None:
            continue
        required = [affinity_term(shape, term, namespace, labels, namespaces, aliases) for term in side.required]
        for i, one in enumerate(required):
            others = tuple((o.namespaces, o.selector) for o in (*required[:i], *required[i + 1 :]))
            yield replace(one, together_with=others) if shape is Shape.AFFINITY and others else one
        for weighted in side.preferred if preferences else ():
            yield affinity_term(shape, weighted.pod_affinity_term, namespace, labels, namespaces, aliases)


def required_anti_terms(
    spec: PodSpec, namespace: str, labels: Labels, namespaces: Sequence[Namespace], aliases: Mapping[str, str]
) -> Iterator[Term]:
    """The terms by which a pod keeps others away from itself. Source: spec/scheduling 6.8."""
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return
    for term in spec.affinity.pod_anti_affinity.required:
        yield affinity_term(Shape.ANTI_AFFINITY, term, namespace, labels, namespaces, aliases)


def affinity_term(
    shape: Shape,
    term: PodAffinityTerm,
    namespace: str,
    labels: Labels,
    namespaces: Sequence[Namespace],
    aliases: Mapping[str, str],
) -> Term:
    return Term(
        shape,
        aliases.get(term.topology_key, term.topology_key),
        _namespaces(term, namespace, namespaces),
        _with_keys(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys),
    )


def _namespaces(term: PodAffinityTerm, own: str, known: Sequence[Namespace]) -> tuple[str, ...] | None:
    if term.namespace_selector is None:
        return tuple(sorted(set(term.namespaces))) or (own,)
    if not term.namespace_selector.match_labels and not term.namespace_selector.match_expressions:
        return None
    picked = {n.name for n in known if matches(term.namespace_selector, n.metadata.labels)}
    return tuple(sorted(picked.union(term.namespaces)))


def _with_keys(
    selector: LabelSelector | None, labels: Labels, same: Iterable[str], different: Iterable[str]
) -> LabelSelector | None:
    if selector is None:
        return None
    more = [SelectorRequirement(key=k, operator="In", values=(labels[k],)) for k in same if k in labels]
    more += [SelectorRequirement(key=k, operator="NotIn", values=(labels[k],)) for k in different if k in labels]
    new = tuple(m for m in more if m not in selector.match_expressions)
    return replace(selector, match_expressions=(*selector.match_expressions, *new)) if new else selector


def _node_alternatives(spec: PodSpec, aliases: Mapping[str, str]) -> tuple[Requirements, ...]:
    base = of_labels(spec.node_selector, aliases)
    node = spec.affinity.node_affinity if spec.affinity is not None else None
    if node is None or node.required is None or not node.required.node_selector_terms:
        return (base,) if base else ()
    found: list[Requirements] = []
    for term in node.required.node_selector_terms:
        merged = dict(base)
        add_all(merged, of_term(term, aliases))
        found.append(merged)
    return tuple(found)


def _picks(namespaces: tuple[str, ...] | None, selector: LabelSelector | None, namespace: str, labels: Labels) -> bool:
    if namespaces is not None and namespace not in namespaces:
        return False
    try:
        return matches(selector, labels)
    except ValueError:
        return False


def _has_all(labels: Labels, wanted: Labels) -> bool:
    return all(labels.get(k) == v for k, v in wanted.items())
