"""The nearest changes that let a pod in, each with its number, each solved again before it is told.

A fix touches one constraint of the conflict. Where no single one is enough, fixes are put together, four at most.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import PodSpec, Toleration
from kubewright.api.quantity import ONE, Nano, parse, show
from kubewright.explain import edits
from kubewright.explain.conflict import Prober, conflict, without
from kubewright.explain.constraints import Piece, amount_text, limit_of, pieces, shut_zones
from kubewright.scheduling.requirement import IN
from kubewright.scheduling.requirements import of_pod, typo_hint
from kubewright.scheduling.resources import pod_requests
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE, untolerated
from kubewright.solver.build import Parts
from kubewright.solver.problem import Problem
from kubewright.solver.solve import solve
from kubewright.solver.templates import Template

MOST_FIXES = 6
DEEPEST = 4
"""Changes in one fix."""
_BRANCHES = 3
"""Changes to one conflict that are followed up where none is enough alone."""
_WIDEST_SKEW = 20
_MOST_VALUES = 40
"""Values of a label key that are tried one by one for a NodePool that forbids them."""
STEPS = {"cpu": Nano(ONE // 1000), "memory": Nano(2**20 * ONE), "ephemeral-storage": Nano(2**20 * ONE)}
"""What a suggested request is rounded down to: a millicore, a mebibyte, else a whole one."""


class Fix(NamedTuple):
    """`rank` orders fixes, the smallest change first; `apply` makes it."""

    rank: int
    text: str
    apply: Callable[[Problem], Problem]


def fixes(prober: Prober, members: Sequence[Piece], depth: int = 1) -> list[Fix]:
    """Changes to the members of a conflict after which the pod is placed and fewer pods are left out, nearest first."""
    found = [f for f in _once(prober, members) if prober.cures(f.apply(prober.problem))][:MOST_FIXES]
    if found or depth == DEEPEST or prober.patience.is_over:
        return found
    # More is in the way than this conflict. Changes that settle it alone are looked for where nothing else is in the way.
    settled = {p.identity for p in members}
    rest = [p for p in pieces(prober.problem, prober.key) if p.identity not in settled]
    bare = Prober(without(prober.problem, rest), prober.key, prober.patience)
    firsts = [f for f in _once(bare, members) if bare.cures(f.apply(bare.problem))]
    for first in firsts[:_BRANCHES]:
        further = Prober(first.apply(prober.problem), prober.key, prober.patience)
        next_members = conflict(further)
        if not settled.isdisjoint(p.identity for p in next_members if p.kind == "request"):
            continue  # the same amount would have to be changed twice
        for second in fixes(further, next_members, depth + 1)[:1]:
            both = Fix(first.rank + second.rank, f"{first.text}, and {second.text}", _then(first, second))
            if prober.cures(both.apply(prober.problem)):
                found.append(both)
        if len(found) == 2:
            break
    return sorted(found, key=lambda f: (f.rank, f.text))


def _once(prober: Prober, members: Sequence[Piece]) -> list[Fix]:
    """What may be tried, nearest first, each text once."""
    candidates = sorted((f for p in members for f in _candidates(prober, p)), key=lambda f: (f.rank, f.text))
    return list({f.text: f for f in candidates}.values())


def _then(first: Fix, second: Fix) -> Callable[[Problem], Problem]:
    return lambda problem: second.apply(first.apply(problem))


def _candidates(prober: Prober, piece: Piece) -> Iterator[Fix]:
    match piece.kind:
        case "request":
            yield from _requests(prober, piece)
        case "node-selector" | "node-affinity":
            yield from _labels(prober, piece)
        case "taint":
            yield from _tolerations(prober)
        case "pool-requirement":
            yield from _requirements(prober, piece)
        case "limit":
            yield from _limits(prober, piece)
        case "min-values":
            yield from _min_values(prober, piece)
        case "spread":
            yield from _spreads(prober, piece)
        case "pod-affinity" | "pod-anti-affinity":
            yield Fix(40, f"make the pod's {piece.what} a preference", piece.drop)
        case "repelled":
            yield Fix(60, f"drop the {piece.what}, which keeps the pod away", piece.drop)
        case "host-port":
            yield Fix(50, f"do without {piece.what}", piece.drop)
        case "volume":
            yield Fix(
                45,
                f"recreate {piece.what.split(' (')[0]} with a StorageClass of volumeBindingMode WaitForFirstConsumer",
                _unbound(piece.target),
            )
        case "attachments":
            yield from _attachments(prober, piece)
        case "zone":
            yield Fix(25, f"wait until zone {piece.target} is for sale again", _reopened(piece.target))


def _requests(prober: Prober, piece: Piece) -> Iterator[Fix]:
    """Lower the request to the largest amount with which the pod is placed."""
    problem, key, resource = prober.problem, prober.key, piece.target
    wanted = pod_requests(edits.pod_of(problem, key))[resource]
    step = STEPS.get(resource, ONE)

    def lowered(by: int) -> Callable[[Problem], Problem]:
        return lambda p: edits.with_pod(p, key, lambda spec: edits.lower_request(spec, resource, by))

    parts = Parts(problem)
    amounts = {a for t in parts.templates for a in t.fit.ladder(resource).amounts}
    amounts |= {node.free.get(resource, 0) for node in parts.table.nodes}
    steps = sorted({a // step * step for a in amounts if 0 < a < wanted}, reverse=True)
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if prober.cures(lowered(wanted - steps[middle])(problem)):
            high = middle
        else:
            low = middle + 1
    if low < len(steps):
        less = wanted - steps[low]
        share = less * 100 // wanted
        text = f"lower the {resource} request by {amount_text(resource, less)} to {amount_text(resource, steps[low])}"
        yield Fix(5 + share // 2, text, lowered(less))


def _labels(prober: Prober, piece: Piece) -> Iterator[Fix]:
    """Let NodePools offer what the pod asks for, write a key right, or ask no more."""
    problem = prober.problem
    pod = edits.pod_of(problem, prober.key)
    parts = Parts(problem)
    key = names.normalize(piece.target.partition(":")[2] or piece.target, parts.aliases)
    asked = of_pod(pod.spec, preferences=False, aliases=parts.aliases).get(key)
    if asked is not None and asked.operator == IN:
        values = tuple(sorted(asked.values))
        for template in parts.templates:
            yield from _offer(template, key, values)
    elif asked is not None and asked.operator == "Exists":
        for template in parts.templates:
            yield _label_fix(template.name, key, "true")
    hint = typo_hint(piece.target, parts.well_known, {})
    if hint and piece.kind == "node-selector":
        yield Fix(1, f"write nodeSelector {hint} instead of {piece.target}", _renamed(prober.key, piece.target, hint))
    yield Fix(30, f"drop {piece.what} from the pod", piece.drop)


def _offer(template: Template, key: str, values: tuple[str, ...]) -> Iterator[Fix]:
    own = template.written.get(key)
    if own is not None and not all(own.has(v) for v in values):
        add = [v for v in values if not own.has(v)][:1]
        yield _widened(template.name, key, tuple(add))
    elif own is None and key not in template.columns.well_known:
        yield _label_fix(template.name, key, values[0])
        text = f"add requirement {key} In [{' '.join(values)}] to NodePool {template.name}"
        yield Fix(11, text, lambda p: edits.with_values(p, template.name, key, values))


def _label_fix(pool: str, key: str, value: str) -> Fix:
    return Fix(10, f"add template label {key}={value} to NodePool {pool}", lambda p: edits.with_label(p, pool, key, value))


def _widened(pool: str, key: str, values: tuple[str, ...]) -> Fix:
    what = f"zone {values[0]}" if key == names.ZONE else f"{key} {values[0]}"
    return Fix(8, f"add {what} to NodePool {pool}", lambda p: edits.with_values(p, pool, key, values))


def _renamed(pod: str, key: str, right: str) -> Callable[[Problem], Problem]:
    def change(spec: PodSpec) -> PodSpec:
        return replace(spec, node_selector={right if k == key else k: v for k, v in spec.node_selector.items()})

    return lambda p: edits.with_pod(p, pod, change)


def _tolerations(prober: Prober) -> Iterator[Fix]:
    """One fix a NodePool, tolerating all its taints together."""
    problem, key = prober.problem, prober.key
    pod = edits.pod_of(problem, key)
    seen: set[tuple[str, ...]] = set()
    for pool in problem.pools:
        taints = [
            t
            for t in untolerated(pool.node_pool.spec.template.spec.taints or (), pod.spec.tolerations)
            if t.effect != PREFER_NO_SCHEDULE
        ]
        written = tuple(map(str, taints))
        if not written or written in seen:
            continue
        seen.add(written)
        more = tuple(Toleration(key=t.key, value=t.value, effect=t.effect) for t in taints)

        def change(spec: PodSpec, more: tuple[Toleration, ...] = more) -> PodSpec:
            return replace(spec, tolerations=(*spec.tolerations, *more))

        yield Fix(
            7,
            f"tolerate {' and '.join(written)} (NodePool {pool.node_pool.name})",
            lambda p, change=change: edits.with_pod(p, key, change),  # type: ignore[misc]
        )


def _requirements(prober: Prober, piece: Piece) -> Iterator[Fix]:
    """Per NodePool the cheapest single value that would do, looked for only where taking the requirement back does."""
    problem, key = prober.problem, piece.target
    for template in Parts(problem).templates:
        own = template.written.get(key)
        if own is None or not prober.cures(edits.without_requirement(problem, key, template.name)):
            continue
        columns = template.columns
        offered = columns.values(key)
        every = sorted(
            (v for v in offered if not own.has(v)),
            key=lambda v: (columns.cheapest(offered[v], tuple(range(len(columns.kinds)))), v),
        )
        for value in every[:_MOST_VALUES]:
            fix = _widened(template.name, key, (value,))
            if prober.cures(fix.apply(problem)):
                yield fix
                break
        else:
            yield Fix(
                35,
                f"take requirement {own} back from NodePool {template.name}",
                lambda p, pool=template.name: edits.without_requirement(p, key, pool),  # type: ignore[misc]
            )


def _limits(prober: Prober, piece: Piece) -> Iterator[Fix]:
    """Raise the limit as little as lets the pod in, behind all the pods that go before it."""
    problem, resource = prober.problem, piece.target
    unit = Nano(2**30 * ONE) if resource in ("memory", "ephemeral-storage") else ONE
    for template in Parts(problem).templates:
        if resource not in template.remaining:
            continue
        pool = template.name
        free = solve(edits.with_limit(problem, resource, None, pool))
        if prober.key in free.unplaced:
            continue
        now = limit_of(problem, pool, resource)
        sizes = {t.name: t.capacity.get(resource, 0) for p in problem.pools for t in p.instance_types}
        bought = sum(
            ONE if resource == "nodes" else max(sizes[name] for name in c.instance_types)
            for c in free.claims
            if c.node_pool == pool
        )
        used = now - template.remaining[resource]
        low, high = now // unit + 1, max(used + bought, now) // unit + 1
        while low < high:
            middle = (low + high) // 2
            if prober.cures(edits.with_limit(problem, resource, middle * unit, pool)):
                high = middle
            else:
                low = middle + 1
        span = f"from {amount_text(resource, now)} to {amount_text(resource, low * unit)}"
        yield Fix(
            9,
            f"raise limits.{resource} of NodePool {pool} {span}",
            lambda p, to=low * unit, pool=pool: edits.with_limit(p, resource, to, pool),  # type: ignore[misc]
        )


def _min_values(prober: Prober, piece: Piece) -> Iterator[Fix]:
    problem, key = prober.problem, piece.target
    for pool in problem.pools:
        name = pool.node_pool.name
        written = max((r.min_values or 0 for r in pool.node_pool.spec.template.spec.requirements if r.key == key), default=0)
        for least in range(written - 1, 0, -1):

            def change(p: Problem, least: int = least, name: str = name) -> Problem:
                return edits.with_min_values(p, key, least, name)

            if prober.cures(change(problem)):
                yield Fix(12, f"lower minValues of {key} in NodePool {name} from {written} to {least}", change)
                break


def _spreads(prober: Prober, piece: Piece) -> Iterator[Fix]:
    problem, key = prober.problem, prober.key
    pod = edits.pod_of(problem, key)
    (first, *_) = [c for c in pod.spec.topology_spread_constraints if c.topology_key == piece.target]
    for skew in range(first.max_skew + 1, first.max_skew + _WIDEST_SKEW):

        def change(spec: PodSpec, skew: int = skew) -> PodSpec:
            wider = tuple(
                replace(c, max_skew=skew) if c.topology_key == piece.target and c.when_unsatisfiable == "DoNotSchedule" else c
                for c in spec.topology_spread_constraints
            )
            return replace(spec, topology_spread_constraints=wider)

        if prober.cures(edits.with_pod(problem, key, change)):
            text = f"raise maxSkew of the spread over {piece.target} from {first.max_skew} to {skew}"
            yield Fix(15, text, lambda p, change=change: edits.with_pod(p, key, change))  # type: ignore[misc]
            break
    yield Fix(20, f"let the spread over {piece.target} be ScheduleAnyway", piece.drop)


def _unbound(claim: str) -> Callable[[Problem], Problem]:
    """The claim's volume reachable from anywhere, as a new one would be until it is bound."""

    def change(problem: Problem) -> Problem:
        around = problem.surroundings
        volume = next((c.spec.volume_name for c in around.claims if c.key == claim), "")
        freed = tuple(replace(v, spec=replace(v.spec, node_affinity=None)) if v.name == volume else v for v in around.volumes)
        return replace(problem, surroundings=replace(around, volumes=freed))

    return change


def _reopened(zone: str) -> Callable[[Problem], Problem]:
    """What is not for sale for the zone's own reasons sold again; what no zone sells is waited for in vain."""

    def change(problem: Problem) -> Problem:
        return edits.offered(problem, frozenset((zone, why) for why in shut_zones(problem).get(zone, ())))

    return change


def _attachments(prober: Prober, piece: Piece) -> Iterator[Fix]:
    """Mount no more volumes than the roomiest type can attach."""
    key, driver = prober.key, piece.target
    mounted = len(edits.pod_of(prober.problem, key).spec.volumes)
    limits = {t.attach_limits[driver] for p in prober.problem.pools for t in p.instance_types if driver in t.attach_limits}
    count = parse(piece.what.split(" ")[0]) // ONE
    for limit in sorted((n for n in limits if n < count), reverse=True):

        def change(spec: PodSpec, limit: int = limit) -> PodSpec:
            return replace(spec, volumes=spec.volumes[: mounted - (count - limit)])

        if prober.cures(edits.with_pod(prober.problem, key, change)):
            text = f"mount {show(limit * ONE)} volumes of driver {driver} at most, {count - limit} fewer"
            yield Fix(25, text, lambda p, change=change: edits.with_pod(p, key, change))  # type: ignore[misc]
            return
