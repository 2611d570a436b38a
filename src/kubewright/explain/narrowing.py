"""How the instance types of each NodePool dwindle: what every constraint removed, and who asked for it."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.quantity import parse_map
from kubewright.catalogue.columns import bits, table
from kubewright.explain.constraints import amount_text, storage_of
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import both, compatible, of_labels, of_term
from kubewright.scheduling.resources import PODS
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE, untolerated
from kubewright.scheduling.volumes import alternatives, dying_keys
from kubewright.solver.build import Parts
from kubewright.solver.classes import PodClass
from kubewright.solver.problem import PlannedClaim, Pool, Problem
from kubewright.solver.templates import Template


class Step(msgspec.Struct, frozen=True):
    """One constraint and how many instance types it removed from those that the steps before had left."""

    who: str
    what: str
    removed: int
    left: int


class Narrowing(msgspec.Struct, frozen=True):
    """The same story told for every NodePool it is true of."""

    pools: tuple[str, ...]
    types: int
    """Instance types that the pool's NodeClass offers."""
    steps: tuple[Step, ...]
    """Only those that removed something."""
    short: Mapping[str, str]
    """Resource → how much the roomiest type that suits in all else lacks."""
    problem: str = ""
    """Why the pool was not asked at all."""

    @property
    def left(self) -> int:
        return self.steps[-1].left if self.steps else self.types


def narrowings(problem: Problem, key: str, bought: Sequence[PlannedClaim]) -> tuple[Narrowing, ...]:
    """One for each NodePool, those with the same steps as one, in the order in which pools are asked.

    `problem` is asked about this pod alone; `bought` are the claims of the pass, which count against limits.
    """
    parts = Parts(problem)
    one = next(c for c in parts.classes if any(p.key == key for p in c.pods))
    found: list[Narrowing] = []
    for template in parts.templates:
        for claim in bought:
            if claim.node_pool == template.name:
                template.reserve(_rows(template, claim.instance_types))
        found.append(_narrow(template, one, problem))
    asked = {t.name for t in parts.templates}
    for pool in problem.pools:
        name = pool.node_pool.name
        if name not in asked:
            found.append(_not_asked(pool, one, problem, parts))
    return tuple(_grouped(found))


def _not_asked(pool: Pool, one: PodClass, problem: Problem, parts: Parts) -> Narrowing:
    """Why a NodePool takes no part in the pass, whatever the pod."""
    name = pool.node_pool.name
    if pool.problem or not pool.instance_types:
        return Narrowing((name,), 0, (), {}, pool.problem or "its NodeClass offers no instance types")
    if all(r.where != name for r in parts.without_types):
        return Narrowing((name,), len(pool.instance_types), (), {}, "it is static, being deleted, or not Ready")
    template = Template(pool.node_pool, table(pool.instance_types, parts.well_known), parts.daemons, parts.aliases, {})
    story = _narrow(template, one, problem)
    empty = next((s for s in story.steps if not s.left), None)
    if not template.start.rows:
        text = f"{empty.what} matches no offering" if empty is not None else "its requirements match no offering"
    else:
        unmet = template.start.unmet(template.start.rows)
        text = ", ".join(f"only {found} of {wanted} required values for {key}" for key, wanted, found in unmet)
    return replace(story, problem=text)


def _rows(template: Template, types: Sequence[str]) -> int:
    wanted = set(types)
    return sum(1 << i for i, row in enumerate(template.columns.rows) if row.type.name in wanted)


def _grouped(found: Sequence[Narrowing]) -> Iterator[Narrowing]:
    alike: dict[bytes, list[Narrowing]] = {}
    for one in found:
        told = replace(
            one,
            pools=(),
            steps=tuple(replace(s, who="NodePool" if s.who == f"NodePool {one.pools[0]}" else s.who) for s in one.steps),
        )
        alike.setdefault(msgspec.json.encode(told), []).append(one)
    for group in alike.values():
        first = group[0]
        if len(group) == 1:
            yield first
        else:
            own = f"NodePool {first.pools[0]}"
            steps = tuple(replace(s, who="NodePool" if s.who == own else s.who) for s in first.steps)
            yield replace(first, pools=tuple(n for one in group for n in one.pools), steps=steps)


class Funnel:
    """The rows that are left, and what each constraint removed, in instance types."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.rows = template.columns.every
        self.steps: list[Step] = []

    def count(self, rows: int) -> int:
        return len({self.template.columns.rows[i].type.name for i in bits(rows)})

    def through(self, who: str, what: str, rows: int) -> None:
        before = self.count(self.rows)
        self.rows &= rows
        left = self.count(self.rows)
        if left < before:
            self.steps.append(Step(who, what, before - left, left))


def _narrow(template: Template, one: PodClass, problem: Problem) -> Narrowing:
    columns = template.columns
    funnel = Funnel(template)
    own = f"NodePool {template.name}"
    pod = f"Pod {one.pods[0].key}"
    requirements: dict[str, Requirement] = {}
    for key, wanted in sorted(template.written.items()):
        requirements[key] = wanted
        funnel.through(own, f"requirement {wanted}", columns.matching(wanted) & columns.offered(columns.open_kinds(requirements)))
    whole = template.start.requirements
    for taint in untolerated(template.taints, one.spec.tolerations):
        if taint.effect != PREFER_NO_SCHEDULE:
            funnel.through(own, f"taint {taint}, which the pod does not tolerate", 0)
    known = columns.well_known
    for who, what, options in _label_steps(one, problem, pod):
        rows = 0
        agreeing = [both(whole, o) for o in options if compatible(whole, o, known) is None]
        for option in agreeing:
            rows |= columns.matching_all(option) & columns.offered(columns.open_kinds(option))
        funnel.through(who, what, rows)
        if len(agreeing) == 1:
            whole = agreeing[0]
    labelled = funnel.rows
    for driver, claims in one.drivers.items():
        funnel.through(pod, f"{len(claims)} volumes of driver {driver}", columns.attaching({driver: claims}))
    for resource, amount in sorted(one.requests.items()):
        if amount and resource != PODS:
            what = f"request {resource} {amount_text(resource, amount)}"
            funnel.through(pod, what, columns.fit.ladder(resource).at_least(amount))
    funnel.through("DaemonSets", "room for their pods on the same node", template.fit.holding(one.requests) & template.fit.usable)
    if one.ports:
        funnel.through("DaemonSets", "host ports", template.free_of(one.ports))
    if template.remaining:
        afford = template.affordable()
        limits = parse_map(template.pool.spec.limits or {})
        used = ", ".join(
            f"{amount_text(k, limits[k] - n)} of {amount_text(k, limits[k])} {k}" for k, n in sorted(template.remaining.items())
        )
        funnel.through(own, f"limits: {used} in use", 0 if isinstance(afford, Refusal) else afford)
    if funnel.rows and (unmet := template.start.unmet(funnel.rows)):
        text = ", ".join(f"{key} has {found} of {wanted}" for key, wanted, found in unmet)
        if problem.settings.min_values_policy == "Strict":
            funnel.through(own, f"minValues: {text}", 0)
    return Narrowing((template.name,), funnel.count(columns.every), tuple(funnel.steps), _short(template, one, labelled))


def _label_steps(one: PodClass, problem: Problem, pod: str) -> Iterator[tuple[str, str, Sequence[Mapping[str, Requirement]]]]:
    aliases = {**names.ALIASES, **problem.settings.label_aliases}
    for key, value in sorted(one.spec.node_selector.items()):
        yield pod, f"nodeSelector {key}={value}", [of_labels({key: value}, aliases)]
    affinity = one.spec.affinity.node_affinity if one.spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        options = [of_term(t, aliases) for t in affinity.required.node_selector_terms]
        text = " or ".join(", ".join(str(r) for _, r in sorted(o.items())) for o in options)
        yield pod, f"nodeAffinity {text}", options
    storage = storage_of(problem)
    for claim in one.claims:
        found = alternatives((claim,), storage, dying_keys(one.pods[0]))
        if isinstance(found, tuple) and any(found):
            text = " or ".join(", ".join(str(r) for _, r in sorted(o.items())) for o in found)
            yield f"PersistentVolumeClaim {claim}", f"volume is in {text}", found


def _short(template: Template, one: PodClass, rows: int) -> dict[str, str]:
    """What the roomiest of the types that hold all else lacks, daemons counted, by resource."""
    found: dict[str, str] = {}
    partly: set[str] = set()
    for resource, amount in sorted(one.requests.items()):
        others = rows & template.fit.holding({r: n for r, n in one.requests.items() if r != resource})
        most = template.fit.ladder(resource).largest(others)
        if others and amount > most:
            found[resource] = amount_text(resource, amount - most)
            if most > 0:
                partly.add(resource)
    # Types without any of a resource say little where others lack only some.
    return {r: text for r, text in found.items() if not partly or r in partly}
