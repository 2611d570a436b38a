"""Small changes to a Problem, as explanations and their fixes make them. Pure; each returns a new Problem.

Instance types keep their identity wherever they are not changed, so that the solver's columns stay shared.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from kubewright.api.core import Container, NodeSelector, Pod, PodSpec, Taint
from kubewright.api.karpenter import NodeClaimTemplateSpec, NodePool, NodeSelectorRequirement
from kubewright.api.quantity import parse
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.solver.problem import Problem, StateNode

PodEdit = Callable[[PodSpec], PodSpec]
PoolEdit = Callable[[NodePool], NodePool]


def pod_of(problem: Problem, key: str) -> Pod:
    """Raises KeyError when the problem does not ask about the pod."""
    for pod in problem.pods:
        if pod.key == key:
            return pod
    raise KeyError(key)


def with_pod(problem: Problem, key: str, change: PodEdit) -> Problem:
    return replace(problem, pods=tuple(replace(p, spec=change(p.spec)) if p.key == key else p for p in problem.pods))


def with_pools(problem: Problem, change: PoolEdit) -> Problem:
    return replace(problem, pools=tuple(replace(p, node_pool=change(p.node_pool)) for p in problem.pools))


def with_template(pool: NodePool, change: Callable[[NodeClaimTemplateSpec], NodeClaimTemplateSpec]) -> NodePool:
    template = pool.spec.template
    return replace(pool, spec=replace(pool.spec, template=replace(template, spec=change(template.spec))))


def only(problem: Problem, key: str) -> Problem:
    """The same cluster, asked about this pod alone."""
    return replace(problem, pods=(pod_of(problem, key),))


def without_request(spec: PodSpec, resource: str) -> PodSpec:
    """The pod asking for nothing of a resource, wherever it asks."""
    level = spec.resources
    if level is not None:
        level = replace(level, requests=_less(level.requests, resource))
    return replace(
        spec,
        containers=tuple(_asking_nothing(c, resource) for c in spec.containers),
        init_containers=tuple(_asking_nothing(c, resource) for c in spec.init_containers),
        overhead=_less(spec.overhead, resource),
        resources=level,
    )


def lower_request(spec: PodSpec, resource: str, by: int) -> PodSpec:
    """The pod asking for less: taken off the pod level if that is written, else off the largest containers first."""
    if spec.resources is not None and resource in spec.resources.requests:
        have = parse(spec.resources.requests[resource])
        requests = {**spec.resources.requests, resource: f"{max(0, have - by)}n"}
        return replace(spec, resources=replace(spec.resources, requests=requests))
    containers, left = _lowered(spec.containers, resource, by)
    # An init container that needs more than all the others decides alone; taking it down as well does no harm to the answer.
    inits = tuple(_lowered((c,), resource, by)[0][0] for c in spec.init_containers) if left < by or spec.init_containers else ()
    return replace(spec, containers=containers, init_containers=inits or spec.init_containers)


def without_taint(problem: Problem, text: str) -> Problem:
    """No NodePool and no node with the taint."""

    def kept(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
        return tuple(t for t in taints if str(t) != text)

    def bare(place: StateNode) -> StateNode:
        if place.node is None or not any(str(t) == text for t in place.node.spec.taints):
            return place
        return replace(place, node=replace(place.node, spec=replace(place.node.spec, taints=kept(place.node.spec.taints))))

    changed = with_pools(problem, lambda p: with_template(p, lambda s: replace(s, taints=kept(s.taints or ()))))
    return replace(changed, nodes=tuple(map(bare, problem.nodes)))


def without_requirement(problem: Problem, key: str, pool: str = "") -> Problem:
    """No NodePool (or not the one named) asking for anything of a label key."""

    def change(one: NodePool) -> NodePool:
        if pool and one.name != pool:
            return one
        return with_template(one, lambda s: replace(s, requirements=tuple(r for r in s.requirements if r.key != key)))

    return with_pools(problem, change)


def with_values(problem: Problem, pool: str, key: str, values: tuple[str, ...]) -> Problem:
    """The NodePool allowing `values` of `key` as well: added to its lists, taken off its exclusions, bounds given up."""

    def change(spec: NodeClaimTemplateSpec) -> NodeClaimTemplateSpec:
        about = [r for r in spec.requirements if r.key == key]
        floor = max((r.min_values or 0 for r in about), default=0) or None
        listed = {v for r in about if r.operator == "In" for v in r.values}
        banned = {v for r in about if r.operator == "NotIn" for v in r.values} - set(values)
        if listed or not about:
            wide = NodeSelectorRequirement(key=key, operator="In", values=tuple(sorted(listed | set(values))), min_values=floor)
        elif banned:
            wide = NodeSelectorRequirement(key=key, operator="NotIn", values=tuple(sorted(banned)), min_values=floor)
        else:
            wide = NodeSelectorRequirement(key=key, operator="Exists", min_values=floor)
        return replace(spec, requirements=(*(r for r in spec.requirements if r.key != key), wide))

    return with_pools(problem, lambda p: with_template(p, change) if p.name == pool else p)


def with_label(problem: Problem, pool: str, key: str, value: str) -> Problem:
    """The NodePool's nodes carrying a label."""

    def change(one: NodePool) -> NodePool:
        if one.name != pool:
            return one
        template = one.spec.template
        meta = replace(template.metadata, labels={**(template.metadata.labels or {}), key: value})
        return replace(one, spec=replace(one.spec, template=replace(template, metadata=meta)))

    return with_pools(problem, change)


def with_limit(problem: Problem, resource: str, amount: int | None, pool: str = "") -> Problem:
    """The limit of one NodePool, or of all, set; None takes it away."""

    def change(one: NodePool) -> NodePool:
        limits = one.spec.limits
        if not limits or resource not in limits or (pool and one.name != pool):
            return one
        kept = {k: v for k, v in limits.items() if k != resource}
        return replace(one, spec=replace(one.spec, limits=kept if amount is None else {**kept, resource: f"{amount}n"}))

    return with_pools(problem, change)


def with_min_values(problem: Problem, key: str, least: int | None, pool: str = "") -> Problem:
    def change(one: NodePool) -> NodePool:
        if pool and one.name != pool:
            return one
        return with_template(
            one,
            lambda s: replace(
                s,
                requirements=tuple(replace(r, min_values=least) if r.key == key and r.min_values else r for r in s.requirements),
            ),
        )

    return with_pools(problem, change)


def offered(problem: Problem, which: frozenset[tuple[str, str]]) -> Problem:
    """Those offerings for sale that are not at present in a zone for a reason of `which`."""
    return replace(problem, pools=tuple(replace(p, instance_types=_sold(p.instance_types, which)) for p in problem.pools))


_Types = tuple[InstanceType, ...]
_SOLD: dict[tuple[int, frozenset[tuple[str, str]]], tuple[_Types, _Types]] = {}
"""Catalogues by identity, with the same where more is for sale: explanations ask for them again and again, and columns are shared
only by the very same types. The last few are kept."""


def _sold(types: _Types, which: frozenset[tuple[str, str]]) -> _Types:
    key = id(types), which
    known = _SOLD.get(key)
    if known is not None and known[0] is types:
        return known[1]
    while len(_SOLD) >= 8:
        del _SOLD[next(iter(_SOLD))]

    def sell(one: Offering) -> Offering:
        out = not one.available and (one.zone, one.unavailable_because) in which
        return replace(one, available=True) if out else one

    made = tuple(replace(t, offerings=tuple(map(sell, t.offerings))) for t in types)
    _SOLD[key] = (types, made)
    return made


def without_terms(spec: PodSpec, keep: Callable[[int], bool]) -> PodSpec:
    """The pod without those expressions of its only required node affinity term that `keep` refuses, by position."""
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return spec
    node = affinity.node_affinity
    assert node.required is not None
    (term,) = node.required.node_selector_terms
    left = tuple(e for i, e in enumerate(term.match_expressions) if keep(i))
    required = NodeSelector(node_selector_terms=(replace(term, match_expressions=left),)) if left else None
    return replace(spec, affinity=replace(affinity, node_affinity=replace(node, required=required)))


def _less(amounts: Mapping[str, str | int], resource: str) -> dict[str, str | int]:
    return {k: v for k, v in amounts.items() if k != resource}


def _asking_nothing(container: Container, resource: str) -> Container:
    resources = container.resources
    bare = replace(resources, requests=_less(resources.requests, resource), limits=_less(resources.limits, resource))
    return replace(container, resources=bare)


def _lowered(containers: tuple[Container, ...], resource: str, by: int) -> tuple[tuple[Container, ...], int]:
    """Containers asking for `by` less together, largest first, with what could not be taken off."""
    asked: list[int] = [parse(c.resources.requests.get(resource, 0)) for c in containers]
    for i in sorted(range(len(asked)), key=lambda i: (-asked[i], i)):
        taken = min(by, asked[i])
        asked[i] -= taken
        by -= taken
    changed = (
        replace(c, resources=replace(c.resources, requests={**c.resources.requests, resource: f"{amount}n"}))
        if resource in c.resources.requests
        else c
        for c, amount in zip(containers, asked, strict=True)
    )
    return tuple(changed), by
