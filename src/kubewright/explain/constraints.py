"""What binds a pod, taken apart into pieces that can be dropped one by one: the matter of conflicts and fixes."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import NodeSelectorTerm, Pod, PodAffinity, PodSpec
from kubewright.api.quantity import ONE, parse, show
from kubewright.catalogue.types import InstanceType
from kubewright.explain import edits
from kubewright.scheduling.host_ports import host_ports
from kubewright.scheduling.resources import PODS, pod_requests
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE, untolerated
from kubewright.scheduling.volumes import Storage, alternatives, claim_keys, driver_of, dying_keys
from kubewright.solver.problem import Problem
from kubewright.solver.terms import required_anti_terms

_BINARY = ("memory", "ephemeral-storage")


class Piece(NamedTuple):
    """One thing that somebody asked for, and the problem without it."""

    kind: str
    who: str
    what: str
    target: str
    """The label key, resource, taint or index it is about."""
    drop: Callable[[Problem], Problem]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self[:4]


def amount_text(resource: str, amount: int) -> str:
    """A quantity as people write it: 1500m, 312Mi, 1000 and not 1k."""
    if resource not in _BINARY and not resource.startswith("hugepages-") and amount % ONE == 0:
        return str(amount // ONE)
    return show(amount, binary=resource in _BINARY or resource.startswith("hugepages-"))


def zones_text(key: str, storage: Storage) -> str:
    """Where a claim's volume can be reached, "" when anywhere."""
    found = alternatives((key,), storage)
    if not isinstance(found, tuple):
        return ""
    return " or ".join(", ".join(str(one) for _, one in sorted(option.items())) for option in found if option)


def storage_of(problem: Problem) -> Storage:
    around = problem.surroundings
    return Storage(
        {c.key: c for c in around.claims},
        {v.name: v for v in around.volumes},
        {s.name: s for s in around.storage_classes},
        {**names.ALIASES, **problem.settings.label_aliases},
    )


def pieces(problem: Problem, key: str) -> list[Piece]:
    """Every hard constraint that takes part in placing the pod: its own, its volumes', the NodePools', the DaemonSets'."""
    pod = edits.pod_of(problem, key)
    return [
        *_labels(pod),
        *_volumes(pod, problem),
        *_topology(pod),
        *_repelled(pod, problem),
        *_ports(pod),
        *_taints(pod, problem),
        *_requirements(problem),
        *_min_values(problem),
        *_daemons(problem),
        *_limits(problem),
        *_offerings(problem),
        *_requests(pod),
    ]


def _of_pod(pod: Pod, kind: str, what: str, target: str, change: edits.PodEdit) -> Piece:
    return Piece(kind, f"Pod {pod.key}", what, target, lambda problem: edits.with_pod(problem, pod.key, change))


def _labels(pod: Pod) -> Iterator[Piece]:
    def without(key: str) -> edits.PodEdit:
        return lambda spec: replace(spec, node_selector={k: v for k, v in spec.node_selector.items() if k != key})

    for key, value in sorted(pod.spec.node_selector.items()):
        yield _of_pod(pod, "node-selector", f"nodeSelector {key}={value}", key, without(key))
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return
    terms = affinity.required.node_selector_terms
    if len(terms) == 1:
        for i, e in enumerate(terms[0].match_expressions):
            text = f"{e.key} {e.operator} [{' '.join(e.values)}]" if e.values else f"{e.key} {e.operator}"
            yield _of_pod(pod, "node-affinity", f"nodeAffinity {text}", f"{i}:{e.key}", _without_expression(e))
        return
    written = " or ".join(term_text(t) for t in terms)
    yield _of_pod(pod, "node-affinity", f"nodeAffinity {written}", "", _without_node_affinity)


def _without_expression(expression: object) -> edits.PodEdit:
    def change(spec: PodSpec) -> PodSpec:
        node = spec.affinity.node_affinity if spec.affinity is not None else None
        if node is None or node.required is None:
            return spec
        written = node.required.node_selector_terms[0].match_expressions
        return edits.without_terms(spec, lambda i: written[i] != expression)

    return change


def term_text(term: NodeSelectorTerm) -> str:
    written = (
        f"{e.key} {e.operator} [{' '.join(e.values)}]" if e.values else f"{e.key} {e.operator}" for e in term.match_expressions
    )
    return f"({', '.join(written)})"


def _without_node_affinity(spec: PodSpec) -> PodSpec:
    assert spec.affinity is not None
    node = spec.affinity.node_affinity
    kept = replace(node, required=None) if node is not None else None
    return replace(spec, affinity=replace(spec.affinity, node_affinity=kept))


def _volumes(pod: Pod, problem: Problem) -> Iterator[Piece]:
    """Volumes that lie somewhere one by one; those that only take attachment slots together, per driver."""
    storage = storage_of(problem)
    slots: dict[str, list[str]] = {}
    for claim in claim_keys(pod):
        where = "" if claim in dying_keys(pod) else zones_text(claim, storage)
        if where:
            yield _of_pod(pod, "volume", f"volume {claim} ({where})", claim, _without_volumes(pod, (claim,)))
        elif driver := driver_of(claim, storage):
            slots.setdefault(driver, []).append(claim)
    for driver, claims in sorted(slots.items()):
        text = f"{len(claims)} volumes of driver {driver}"
        yield _of_pod(pod, "attachments", text, driver, _without_volumes(pod, tuple(claims)))


def _without_volumes(pod: Pod, claims: tuple[str, ...]) -> edits.PodEdit:
    def change(spec: PodSpec) -> PodSpec:
        now = replace(pod, spec=spec)
        mounting = {key: v for v in spec.volumes for key in claim_keys(replace(now, spec=replace(spec, volumes=(v,))))}
        gone = {v.name for key, v in mounting.items() if key in claims}
        return replace(spec, volumes=tuple(v for v in spec.volumes if v.name not in gone))

    return change


def _topology(pod: Pod) -> Iterator[Piece]:
    for spread in pod.spec.topology_spread_constraints:
        if spread.when_unsatisfiable == "DoNotSchedule":
            text = f"spread over {spread.topology_key} with maxSkew {spread.max_skew}"
            if spread.min_domains:
                text += f" and minDomains {spread.min_domains}"

            def change(spec: PodSpec, one: object = spread) -> PodSpec:
                return replace(spec, topology_spread_constraints=tuple(c for c in spec.topology_spread_constraints if c != one))

            yield _of_pod(pod, "spread", text, spread.topology_key, change)
    affinity = pod.spec.affinity
    for kind, field in (("pod-affinity", "pod_affinity"), ("pod-anti-affinity", "pod_anti_affinity")):
        own: PodAffinity | None = getattr(affinity, field) if affinity is not None else None
        for term in own.required if own is not None else ():

            def less(spec: PodSpec, one: object = term, where: str = field) -> PodSpec:
                written: PodAffinity = getattr(spec.affinity, where)
                kept = replace(written, required=tuple(t for t in written.required if t != one))
                assert spec.affinity is not None
                return replace(spec, affinity=replace(spec.affinity, **{where: kept}))

            name = "podAffinity" if kind == "pod-affinity" else "podAntiAffinity"
            yield _of_pod(pod, kind, f"{name} over {term.topology_key}", term.topology_key, less)


def _repelled(pod: Pod, problem: Problem) -> Iterator[Piece]:
    """Other pods whose anti-affinity keeps this one away."""
    aliases = {**names.ALIASES, **problem.settings.label_aliases}
    spaces = problem.surroundings.namespaces

    def repels(other: Pod) -> bool:
        if other.key == pod.key or other.spec.affinity is None or other.spec.affinity.pod_anti_affinity is None:
            return False
        terms = required_anti_terms(other.spec, other.namespace, other.metadata.labels, spaces, aliases)
        return any(t.selects(pod.namespace, pod.metadata.labels) for t in terms)

    running = (p for place in (*problem.nodes, *problem.leaving) for p in place.pods)
    found = sorted({p.key for p in (*problem.pods, *running) if repels(p)})
    if not found:
        return
    text = f"podAntiAffinity of {found[0]}" + (f" and {len(found) - 1} others" if len(found) > 1 else "")

    def gentle(other: Pod) -> Pod:
        if other.key not in found:
            return other
        assert other.spec.affinity is not None
        return replace(other, spec=replace(other.spec, affinity=replace(other.spec.affinity, pod_anti_affinity=None)))

    def drop(problem: Problem) -> Problem:
        return replace(
            problem,
            pods=tuple(map(gentle, problem.pods)),
            nodes=tuple(replace(n, pods=tuple(map(gentle, n.pods))) for n in problem.nodes),
            leaving=tuple(replace(n, pods=tuple(map(gentle, n.pods))) for n in problem.leaving),
        )

    yield Piece("repelled", f"Pod {found[0]}", text, "", drop)


def _ports(pod: Pod) -> Iterator[Piece]:
    if ports := host_ports(pod.spec):

        def change(spec: PodSpec) -> PodSpec:
            return replace(
                spec,
                containers=tuple(replace(c, ports=()) for c in spec.containers),
                init_containers=tuple(replace(c, ports=()) for c in spec.init_containers),
            )

        listed = ", ".join(sorted({str(p.port) for p in ports}))
        yield _of_pod(pod, "host-port", f"hostPort {listed}", listed, change)


def _taints(pod: Pod, problem: Problem) -> Iterator[Piece]:
    having: dict[str, list[str]] = {}
    for pool in problem.pools:
        for taint in untolerated(pool.node_pool.spec.template.spec.taints or (), pod.spec.tolerations):
            if taint.effect != PREFER_NO_SCHEDULE:
                having.setdefault(str(taint), []).append(pool.node_pool.name)
    for taint_text, pools in sorted(having.items()):
        yield Piece(
            "taint",
            _pool_text(pools),
            f"taint {taint_text}",
            taint_text,
            lambda problem, text=taint_text: edits.without_taint(problem, text),  # type: ignore[misc]
        )


def _requirements(problem: Problem) -> Iterator[Piece]:
    having: dict[str, list[str]] = {}
    texts: dict[str, set[str]] = {}
    for pool in problem.pools:
        for r in pool.node_pool.spec.template.spec.requirements:
            if pool.node_pool.name not in having.setdefault(r.key, []):
                having[r.key].append(pool.node_pool.name)
            texts.setdefault(r.key, set()).add(f"{r.operator} [{' '.join(r.values)}]" if r.values else r.operator)
    for key, pools in sorted(having.items()):
        yield Piece(
            "pool-requirement",
            _pool_text(pools),
            f"requirement {key} {' or '.join(sorted(texts[key]))}",
            key,
            lambda problem, key=key: edits.without_requirement(problem, key),  # type: ignore[misc]
        )


def _min_values(problem: Problem) -> Iterator[Piece]:
    having: dict[str, list[str]] = {}
    for pool in problem.pools:
        for r in pool.node_pool.spec.template.spec.requirements:
            if r.min_values:
                having.setdefault(r.key, []).append(pool.node_pool.name)
    for key, pools in sorted(having.items()):
        yield Piece(
            "min-values",
            _pool_text(pools),
            f"minValues of {key}",
            key,
            lambda problem, key=key: edits.with_min_values(problem, key, None),  # type: ignore[misc]
        )


def _daemons(problem: Problem) -> Iterator[Piece]:
    for daemon in problem.surroundings.daemon_sets:

        def drop(problem: Problem, key: str = daemon.key) -> Problem:
            around = problem.surroundings
            kept = tuple(d for d in around.daemon_sets if d.key != key)
            return replace(problem, surroundings=replace(around, daemon_sets=kept))

        yield Piece("daemon", f"DaemonSet {daemon.key}", f"room for DaemonSet {daemon.key}", daemon.key, drop)


def _limits(problem: Problem) -> Iterator[Piece]:
    having: dict[str, list[str]] = {}
    for pool in problem.pools:
        for resource in pool.node_pool.spec.limits or {}:
            having.setdefault(resource, []).append(pool.node_pool.name)
    for resource, pools in sorted(having.items()):
        written = sorted(
            {str((p.node_pool.spec.limits or {})[resource]) for p in problem.pools if resource in (p.node_pool.spec.limits or {})}
        )
        yield Piece(
            "limit",
            _pool_text(pools),
            f"limits.{resource} {' or '.join(written)}",
            resource,
            lambda problem, resource=resource: edits.with_limit(problem, resource, None),  # type: ignore[misc]
        )


def shut_zones(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Zones where nothing is for sale though other zones sell → the reasons that hold in no zone that sells."""
    return _shut(problem, _gone(problem))


def _gone(problem: Problem) -> set[tuple[str, str]]:
    """(zone, why) of every offering that is not available."""
    return {(o.zone, o.unavailable_because) for t in _types(problem) for o in t.offerings if not o.available}


def _shut(problem: Problem, gone: set[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    shut = {zone for zone, _ in gone if zone}
    selling = False
    for t in _types(problem):
        if not shut:
            return {}
        selling = selling or any(o.available for o in t.offerings)
        shut.difference_update([o.zone for o in t.offerings if o.available])
    elsewhere = {why for zone, why in gone if zone not in shut}
    found = {z: tuple(sorted(why for zone, why in gone if zone == z and why not in elsewhere)) for z in sorted(shut)}
    return {zone: reasons for zone, reasons in found.items() if reasons} if selling else {}


def _types(problem: Problem) -> Iterator[InstanceType]:
    """Every catalogue once, however many NodePools share it."""
    for types in {id(p.instance_types): p.instance_types for p in problem.pools}.values():
        yield from types


def _offerings(problem: Problem) -> Iterator[Piece]:
    """What is not for sale: zone by zone where it is the zone, a shift away from it for example, then all else together."""
    gone = _gone(problem)
    for zone, reasons in _shut(problem, gone).items():
        # All that the zone could sell goes with it: that a type is not for sale anywhere is not what keeps the pod out of here.
        here = frozenset(one for one in gone if one[0] == zone)
        gone -= here
        text = f"nothing is for sale in zone {zone} ({_reasons(reasons)})"
        yield Piece("zone", "the cloud", text, zone, lambda problem, here=here: edits.offered(problem, here))  # type: ignore[misc]
    if gone:
        rest = frozenset(gone)
        text = f"offerings that are not available ({_reasons(why for _, why in rest)})"
        yield Piece("offering", "the cloud", text, "", lambda problem: edits.offered(problem, rest))


def _reasons(found: Iterable[str]) -> str:
    return "; ".join(sorted({why or "not for sale at present" for why in found})[:3])


def _requests(pod: Pod) -> Iterator[Piece]:
    for resource, amount in sorted(pod_requests(pod).items()):
        if amount and resource != PODS:

            def change(spec: PodSpec, what: str = resource) -> PodSpec:
                return edits.without_request(spec, what)

            yield _of_pod(pod, "request", f"request {resource} {amount_text(resource, amount)}", resource, change)


def _pool_text(pools: Iterable[str]) -> str:
    listed = sorted(pools)
    word = "NodePool" if len(listed) == 1 else "NodePools"
    shown = ", ".join(listed[:3])
    return f"{word} {shown}" + (f" and {len(listed) - 3} others" if len(listed) > 3 else "")


def limit_of(problem: Problem, pool: str, resource: str) -> int:
    """What a NodePool may have of a resource, in billionths; it must have such a limit."""
    for one in problem.pools:
        limits = one.node_pool.spec.limits or {}
        if one.node_pool.name == pool and resource in limits:
            return parse(limits[resource])
    raise KeyError(pool)
