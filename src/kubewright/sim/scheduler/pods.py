"""A pod as the scheduler weighs it: everything that the filters ask, worked out once."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubewright.api import quantity, selectors
from kubewright.api.core import (
    Container,
    ContainerStatus,
    NodeSelector,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
)
from kubewright.api.meta import Labels, LabelSelector, SelectorRequirement

Amounts = dict[str, int]
"""Resource → amount: cpu in thousandths, everything else in whole units, both rounded up as kube-scheduler does."""

_UNNAMED_CPU_MILLI = 100
_UNNAMED_MEMORY_BYTES = 200 * 1024 * 1024
"""What a container that asks for nothing weighs in scores. Source: k8s.io/kubernetes pkg/scheduler/util/pod_resources.go."""

POD_LEVEL = ("cpu", "memory")
"""Resources that `spec.resources` may set for the pod as a whole, beside hugepages-*."""


class Term(msgspec.Struct, frozen=True):
    """A pod affinity or anti-affinity term, with its selector and namespaces complete."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    weight: int = 0
    """Of a preferred term."""

    def picks(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        inside = namespace in self.namespaces or selectors.matches(self.namespace_selector, namespace_labels)
        return inside and selectors.matches(self.selector, labels)


class Spread(msgspec.Struct, frozen=True):
    """A topology spread constraint with its selector complete."""

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honour_affinity: bool = True
    honour_taints: bool = False
    default: bool = False
    """The cluster's own soft constraint, for pods that have none: it does not ask for all its labels on a node."""


class PodFacts(msgspec.Struct, frozen=True):
    key: tuple[str, str]
    uid: str
    created: datetime
    labels: Mapping[str, str]
    spec: PodSpec
    priority: int
    requests: Amounts
    """Never less than what the pod's containers need at once; `pods` is not in it."""
    scored: Amounts
    """cpu and memory as scores count them."""
    required: NodeSelector | None
    preferred: tuple[PreferredSchedulingTerm, ...]
    tolerations: tuple[Toleration, ...]
    ports: tuple[tuple[str, str, int], ...]
    """(address, protocol, port) wanted on the host."""
    hard_spread: tuple[Spread, ...]
    soft_spread: tuple[Spread, ...]
    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    preferred_terms: tuple[Term, ...]
    """Preferred affinity; anti-affinity with a negative weight."""
    claims: tuple[tuple[str, bool], ...]
    """(PersistentVolumeClaim's name, is it of an ephemeral volume)."""
    terminating: bool
    look: bytes
    """Equal for two pods exactly when no rule can tell them apart."""

    @property
    def namespace(self) -> str:
        return self.key[0]


def facts(obj: Mapping[str, Any]) -> PodFacts:
    """Read a Pod as the wire has it."""
    pod = msgspec.convert(obj, Pod)
    spec, labels, namespace = pod.spec, pod.metadata.labels, pod.metadata.namespace
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    with_pods = affinity.pod_affinity if affinity else None
    against_pods = affinity.pod_anti_affinity if affinity else None
    hard, soft = _spreads(spec.topology_spread_constraints, labels)
    preferred = [
        msgspec.structs.replace(_term(w.pod_affinity_term, namespace, labels), weight=w.weight * sign)
        for side, sign in ((with_pods, 1), (against_pods, -1))
        for w in (side.preferred if side else ())
    ]
    return PodFacts(
        key=(namespace, pod.metadata.name),
        uid=pod.metadata.uid,
        created=pod.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC),
        labels=labels,
        spec=spec,
        priority=spec.priority or 0,
        requests=requests(pod),
        scored=_scored(spec),
        required=node_affinity.required if node_affinity else None,
        preferred=node_affinity.preferred if node_affinity else (),
        tolerations=spec.tolerations,
        ports=_ports(spec),
        hard_spread=hard,
        soft_spread=soft,
        affinity=tuple(_term(t, namespace, labels) for t in (with_pods.required if with_pods else ())),
        anti_affinity=tuple(_term(t, namespace, labels) for t in (against_pods.required if against_pods else ())),
        preferred_terms=tuple(preferred),
        claims=tuple(_claims(pod)),
        terminating=pod.metadata.deletion_timestamp is not None,
        look=msgspec.json.encode((namespace, labels, msgspec.structs.replace(spec, node_name="")), order="sorted"),
    )


def requests(pod: Pod) -> Amounts:
    """What a node must have free for the pod: its busiest moment, its overhead, and what the pod as a whole was given.

    Source: k8s.io/component-helpers resource.PodRequests; sidecars count from their turn on, a resize counts at its larger end.
    """
    spec = pod.spec
    sizes = {s.name: s for s in pod.status.container_statuses}
    sizes |= {s.name: s for s in pod.status.init_container_statuses}
    stuck = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)
    together: Amounts = {}
    for container in spec.containers:
        _add(together, _container(container, sizes.get(container.name), stuck=stuck))
    sidecars: Amounts = {}
    busiest: Amounts = {}
    for container in spec.init_containers:
        need = dict(_container(container, sizes.get(container.name), stuck=stuck))
        if container.restart_policy == "Always":
            _add(sidecars, need)
            _add(together, need)
            need = dict(sidecars)
        else:
            _add(need, sidecars)
        _raise(busiest, need)
    _raise(together, busiest)
    if spec.resources is not None:
        whole = quantity.parse_map(spec.resources.requests)
        together |= {name: amount for name, amount in whole.items() if name in POD_LEVEL or name.startswith("hugepages-")}
    _add(together, quantity.parse_map(spec.overhead))
    return rounded(together)


def rounded(nano: Mapping[str, int]) -> Amounts:
    """Billionths to the scheduler's units."""
    return {name: -(-amount // (10**6 if name == "cpu" else 10**9)) for name, amount in nano.items()}


def _container(container: Container, status: ContainerStatus | None, *, stuck: bool) -> Amounts:
    asked: Amounts = dict(quantity.parse_map(container.resources.requests))
    if status is None:
        return asked
    given = dict(quantity.parse_map(status.allocated_resources))
    if status.resources is not None:
        _raise(given, quantity.parse_map(status.resources.requests))
    if stuck and given:
        return given
    _raise(asked, given)
    return asked


def _scored(spec: PodSpec) -> Amounts:
    totals = {"cpu": 0, "memory": 0}
    for container in spec.containers:
        asked = rounded(quantity.parse_map(container.resources.requests))
        totals["cpu"] += asked.get("cpu", _UNNAMED_CPU_MILLI)
        totals["memory"] += asked.get("memory", _UNNAMED_MEMORY_BYTES)
    return totals


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, at_least: Mapping[str, int]) -> None:
    for name, amount in at_least.items():
        total[name] = max(total.get(name, 0), amount)


def _ports(spec: PodSpec) -> tuple[tuple[str, str, int], ...]:
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    found: dict[tuple[str, str, int], None] = {}
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found[port.host_ip or "0.0.0.0", port.protocol or "TCP", number] = None  # noqa: S104 - it is a comparison, not a bind
    return tuple(found)


def _spreads(constraints: Iterable[TopologySpreadConstraint], labels: Labels) -> tuple[tuple[Spread, ...], tuple[Spread, ...]]:
    hard: list[Spread] = []
    soft: list[Spread] = []
    for constraint in constraints:
        kept = [key for key in constraint.match_label_keys if key in labels]
        spread = Spread(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            selector=_narrowed(
                constraint.label_selector, [SelectorRequirement(key=k, operator="In", values=(labels[k],)) for k in kept]
            ),
            min_domains=constraint.min_domains or 1,
            honour_affinity=constraint.node_affinity_policy != "Ignore",
            honour_taints=constraint.node_taints_policy == "Honor",
        )
        (soft if constraint.when_unsatisfiable == "ScheduleAnyway" else hard).append(spread)
    return tuple(hard), tuple(soft)


def _term(term: PodAffinityTerm, namespace: str, labels: Labels) -> Term:
    extra = [
        SelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for keys, operator in ((term.match_label_keys, "In"), (term.mismatch_label_keys, "NotIn"))
        for key in keys
        if key in labels
    ]
    own = not term.namespaces and term.namespace_selector is None
    return Term(
        topology_key=term.topology_key,
        selector=_narrowed(term.label_selector, extra),
        namespaces=frozenset((namespace,) if own else term.namespaces),
        namespace_selector=term.namespace_selector,
    )


def _narrowed(selector: LabelSelector | None, extra: list[SelectorRequirement]) -> LabelSelector | None:
    """`selector` and `extra`; what the server has merged already is not said twice. None stays None: it picks nothing."""
    if selector is None:
        return None
    more = tuple(e for e in extra if e not in selector.match_expressions)
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *more)) if more else selector


def _claims(pod: Pod) -> Iterable[tuple[str, bool]]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True
