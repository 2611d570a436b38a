"""From a Problem to the parts of a pass: classes, nodes, templates, topology.

Source: spec/scheduling 3.1 to 3.4, 4.4, 5.1, 6.2 to 6.4, 6.8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import DaemonSet, Pod, PodSpec, Taint
from kubewright.api.meta import is_true
from kubewright.catalogue.columns import table
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.resources import has_claims, with_limits_as_requests
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE
from kubewright.scheduling.volumes import Storage, driver_of
from kubewright.settings import PreferencePolicy
from kubewright.solver.classes import Asks, PodClass, add_variants, group
from kubewright.solver.company import awaits, both_rows, daemon_rows
from kubewright.solver.nodes import (
    ExistingNode,
    NodeTable,
    RequestCache,
    capacity_of,
    is_active_on_node,
    labels_of,
)
from kubewright.solver.problem import Pool, Problem
from kubewright.solver.support import unsupported
from kubewright.solver.templates import Template
from kubewright.solver.terms import (
    Deduction,
    Shape,
    Term,
    affinity_terms,
    required_anti_terms,
    spread_terms,
)
from kubewright.solver.topology import Domains, Group, Rule, Rules, Topology, shunned

_EPOCH = datetime.min.replace(tzinfo=UTC)


class Parts:
    """Everything a pass works on."""

    def __init__(self, problem: Problem, *, lenient: bool = False) -> None:
        settings = problem.settings
        self.problem = problem
        self.aliases = {**names.ALIASES, **settings.label_aliases}
        self.well_known = names.WELL_KNOWN | settings.well_known_labels
        self.storage = Storage(
            {c.key: c for c in problem.surroundings.claims},
            {v.name: v for v in problem.surroundings.volumes},
            {s.name: s for s in problem.surroundings.storage_classes},
            self.aliases,
        )
        self.cache = RequestCache()
        self.daemons = representatives(problem)
        self.pools = usable(problem.pools)
        self.templates, self.without_types = self._templates()
        self.table = self._nodes()
        self.classes = self._classes()
        self.topology = Topology(Universe(self.templates).get, lenient=lenient)
        self._bound: list[tuple[str, Mapping[str, str], list[tuple[int, int]], dict[str, int]]] | None = None
        self._add_topology()

    def _templates(self) -> tuple[list[Template], list[Refusal]]:
        used: dict[str, dict[str, int]] = {}
        for place in self.problem.nodes:
            owner = labels_of(place).get(names.NODEPOOL)
            if owner:
                total = used.setdefault(owner, {})
                for name, amount in capacity_of(place).items():
                    total[name] = total.get(name, 0) + amount
        templates: list[Template] = []
        left_out: list[Refusal] = []
        for pool in self.pools:
            name = pool.node_pool.name
            if not pool.instance_types:
                left_out.append(Refusal(Because.NO_POOL, name, "", pool.problem or "no instance types"))
                continue
            columns = table(pool.instance_types, self.well_known)
            slack = self.problem.settings.slack
            template = Template(pool.node_pool, columns, self.daemons, self.aliases, used.get(name, {}), slack)
            unmet = template.start.unmet(template.start.rows)
            relaxed = self.problem.settings.min_values_policy == "BestEffort"
            if not template.start.rows or (unmet and not relaxed):
                because = Because.MIN_VALUES if unmet and template.start.rows else Because.INSTANCE_TYPE
                left_out.append(Refusal(because, name, "", "no instance type suits the NodePool", {"pool": "empty"}))
                continue
            templates.append(template)
        return templates, left_out

    def _nodes(self) -> NodeTable:
        nodes = [ExistingNode(place, self.aliases, self.cache) for place in self.problem.nodes]
        promised = {t.name: t.attach_limits for p in self.problem.pools for t in p.instance_types if t.attach_limits}
        csi = {c.name: c for c in self.problem.surroundings.csi_nodes}
        for node in nodes:
            node.expect(self.daemons, self.aliases, self.cache)
            host = node.source.node.name if node.source.node is not None else node.name
            node.count_volumes(self.storage, csi.get(host), promised.get(node.labels.get(names.INSTANCE_TYPE, ""), {}))
        return NodeTable(nodes)

    def _classes(self) -> list[PodClass]:
        settings = self.problem.settings
        preferences = settings.preference_policy is PreferencePolicy.RESPECT
        prefer_taints = any(
            t.effect == PREFER_NO_SCHEDULE for p in self.pools for t in p.node_pool.spec.template.spec.taints or ()
        )
        asks = Asks()
        classes = group(self._with_default_spread())
        for one in classes:
            if has_claims(one.spec):
                text = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
                one.refusal = Refusal(Because.UNSUPPORTED, "", "spec.resourceClaims", text, {"field": "spec.resourceClaims"})
                continue
            one.refusal = unsupported(one.spec)
            if one.refusal is not None:
                continue
            add_variants(one, asks, self.storage, preferences=preferences, prefer_taints=prefer_taints, known=self.aliases)
            drivers: dict[str, set[str]] = {}
            for key in one.claims:
                driver = driver_of(key, self.storage)
                if driver:
                    drivers.setdefault(driver, set()).add(key)
            one.drivers = {d: frozenset(keys) for d, keys in sorted(drivers.items())}
        return classes

    def _with_default_spread(self) -> Sequence[Pod]:
        """The pods to be placed, with the cluster's default spread on those that write none. Source: spec/scheduling 6.10."""
        constraints = self.problem.settings.default_constraints
        if not constraints:
            return self.problem.pods
        around = self.problem.surroundings
        deduction = Deduction(
            constraints, around.services, {r.key: r for r in around.replica_sets}, {s.key: s for s in around.stateful_sets}
        )
        found = []
        for pod in self.problem.pods:
            spreads = deduction.spreads(pod)
            found.append(replace(pod, spec=replace(pod.spec, topology_spread_constraints=spreads)) if spreads else pod)
        return found

    def _add_topology(self) -> None:
        around = self.problem.surroundings
        settings = self.problem.settings
        preferences = settings.preference_policy is PreferencePolicy.RESPECT
        scheduled = {pod.metadata.uid or pod.key for pod in self.problem.pods}
        bound_terms = self._bound_anti_terms(scheduled)
        owned: dict[int, list[list[tuple[Group, Term]]]] = {}
        inverse: dict[int, list[Group]] = {}
        known: dict[bytes, list[Term]] = {}
        encode = msgspec.msgpack.Encoder().encode
        for one in self.classes:
            if one.refusal is not None:
                continue
            per_variant: list[list[tuple[Group, Term]]] = []
            for variant in one.variants:
                spec = variant.spec
                if not spec.topology_spread_constraints and spec.affinity is None:
                    per_variant.append([])
                    continue
                shape = encode(
                    (
                        one.namespace,
                        one.labels,
                        spec.topology_spread_constraints,
                        spec.affinity,
                        one.spec.affinity,
                        spec.node_selector,
                        spec.tolerations,
                    )
                )
                terms = known.get(shape)
                if terms is None:
                    terms = known[shape] = self._terms(spec, one.spec, one.namespace, one.labels, preferences=preferences)
                per_variant.append([(self._group(t, scheduled), t) for t in terms])
            owned[one.index] = per_variant
            inverse[one.index] = [
                self._inverse(t)
                for t in required_anti_terms(one.spec, one.namespace, one.labels, around.namespaces, self.aliases)
            ]
        for term, index, labels in bound_terms:
            target = self._inverse(term)
            if term.key == names.HOSTNAME:
                if index is None:
                    target.elsewhere += 1
                else:
                    target.nodes.add(index, 1)
            elif (value := labels.get(term.key)) is not None:
                target.counts[value] = target.counts.get(value, 0) + 1
        for daemon in self.daemons:
            for term in required_anti_terms(
                daemon.spec, daemon.namespace, daemon.metadata.labels, around.namespaces, self.aliases
            ):
                if term.key == names.HOSTNAME:
                    self._expect_daemons(self._inverse(term), (daemon,))
        if self.topology.groups:
            self._bind_rules(owned, inverse)

    def _terms(
        self, spec: PodSpec, written: PodSpec, namespace: str, labels: Mapping[str, str], *, preferences: bool
    ) -> list[Term]:
        around = self.problem.surroundings
        return [
            *spread_terms(spec, written, namespace, labels, preferences=preferences, aliases=self.aliases),
            *affinity_terms(spec, namespace, labels, around.namespaces, preferences=preferences, aliases=self.aliases),
        ]

    def _bind_rules(self, owned: Mapping[int, list[list[tuple[Group, Term]]]], inverse: Mapping[int, list[Group]]) -> None:
        selecting: dict[bytes, list[Group]] = {}
        self._note_followers(owned)
        for one in self.classes:
            if one.refusal is not None:
                continue
            identity = msgspec.msgpack.encode((one.namespace, one.labels))
            picked = selecting.get(identity)
            if picked is None:
                picked = selecting[identity] = self.topology.selecting(one.namespace, one.labels)
            mine = inverse[one.index]
            one.counted_in = tuple(dict.fromkeys([*(g for g in picked if not g.inverse), *mine]))
            repelled = [g for g in picked if g.inverse]
            counted = {g.index for g in one.counted_in}
            for variant, groups in zip(one.variants, owned[one.index], strict=True):
                rules = [
                    Rule(g, int(g.index in counted), variant.strict.get(g.term.key), variant.reach(g.term.key))
                    for g in dict.fromkeys(g for g, _ in groups)
                ]
                rules += [Rule(g, int(g.index in counted), None) for g in repelled]
                variant.rules = _rules(rules, one.counted_in, self._universe)

    def _note_followers(self, owned: Mapping[int, list[list[tuple[Group, Term]]]]) -> None:
        for one in self.classes:
            for variant, groups in zip(one.variants[:1], owned.get(one.index, [])[:1], strict=True):
                for target, term in groups:
                    if term.shape is Shape.AFFINITY and term.key != names.HOSTNAME:
                        wants = [a.requirements.get(term.key) for a in variant.asks]
                        if all(w is not None for w in wants):
                            target.followers.append(tuple(w for w in wants if w is not None))

    def _universe(self, key: str) -> list[str]:
        return self.topology.domains(key, None)

    def _group(self, term: Term, scheduled: set[str]) -> Group:
        found, new = self.topology.group(term)
        if new:
            self._count(found, scheduled)
        return found

    def _inverse(self, term: Term) -> Group:
        return self.topology.group(term, inverse=True)[0]

    def _count(self, target: Group, scheduled: set[str]) -> None:
        """Count the pods that run already. Source: spec/scheduling 6.4."""
        term = target.term
        if term.shape is not Shape.SPREAD and term.key == names.HOSTNAME:
            self._expect_daemons(target, [d for d in self.daemons if term.selects(d.namespace, d.metadata.labels)])
        filtered = bool(term.filter.alternatives or term.filter.tolerations is not None)
        if filtered:
            target.nodes_passing = 0
            for node in self.table.nodes:
                if term.filter.passes(node.requirements, node.taints):
                    target.nodes_passing |= 1 << node.index
        if term.shape is Shape.SPREAD and term.key != names.HOSTNAME:
            for domain, nodes in self.table.values(term.key).items():
                if nodes & target.nodes_passing:
                    target.counts.setdefault(domain, 0)
                    target.present.add(domain)
        for namespace, labels, places, elsewhere in self._bound_pods(scheduled):
            if not _picks_bound(term, namespace, labels):
                continue
            for index, pods in places:
                if not target.nodes_passing >> index & 1:
                    continue
                if term.key == names.HOSTNAME:
                    target.nodes.add(index, pods)
                elif (value := self.table.nodes[index].labels.get(term.key)) is not None:
                    target.counts[value] = target.counts.get(value, 0) + pods
            for which, pods in elsewhere.items():
                if term.key == names.HOSTNAME:
                    target.elsewhere += pods
                elif (there := self._leaving_labels()[which].get(term.key)) is not None:
                    target.counts[there] = target.counts.get(there, 0) + pods

    def _expect_daemons(self, target: Group, daemons: Sequence[Pod]) -> None:
        """Count the pods that DaemonSets will have on nodes to come, and on those that are coming up."""
        target.daemon_rows = both_rows(target.daemon_rows, daemon_rows(self.templates, daemons, self.aliases))
        for node in self.table.nodes:
            if awaits(node, daemons, self.aliases):
                target.nodes.add(node.index, 1)

    def _leaving_labels(self) -> dict[str, Mapping[str, str]]:
        return {place.node.name: place.node.metadata.labels for place in self.problem.leaving if place.node is not None}

    def _bound_pods(self, scheduled: set[str]) -> list[tuple[str, Mapping[str, str], list[tuple[int, int]], dict[str, int]]]:
        """Pods that run, by namespace and labels: on which nodes of the table how many, and on which leaving nodes."""
        if self._bound is not None:
            return self._bound
        encode = msgspec.msgpack.Encoder().encode
        found: dict[bytes, tuple[str, Mapping[str, str], dict[int, int], dict[str, int]]] = {}
        for pod, index, host in self._running(scheduled):
            key = encode((pod.metadata.namespace, pod.metadata.labels))
            entry = found.get(key)
            if entry is None:
                entry = found[key] = (pod.metadata.namespace, pod.metadata.labels, {}, {})
            if index is not None:
                entry[2][index] = entry[2].get(index, 0) + 1
            else:
                entry[3][host] = entry[3].get(host, 0) + 1
        self._bound = [(ns, labels, sorted(on.items()), off) for ns, labels, on, off in found.values()]
        return self._bound

    def _running(self, scheduled: set[str]) -> Iterable[tuple[Pod, int | None, str]]:
        for node in self.table.nodes:
            if node.source.node is not None:
                for pod in node.source.pods:
                    if _counts(pod, scheduled):
                        yield pod, node.index, node.name
        for place in self.problem.leaving:
            if place.node is not None:
                for pod in place.pods:
                    if _counts(pod, scheduled):
                        yield pod, None, place.node.name

    def _bound_anti_terms(self, scheduled: set[str]) -> list[tuple[Term, int | None, Mapping[str, str]]]:
        around = self.problem.surroundings
        leaving = self._leaving_labels()
        found: list[tuple[Term, int | None, Mapping[str, str]]] = []
        for pod, index, host in self._running(scheduled):
            affinity = pod.spec.affinity
            if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.required:
                continue
            labels = self.table.nodes[index].labels if index is not None else leaving[host]
            terms = required_anti_terms(pod.spec, pod.namespace, pod.metadata.labels, around.namespaces, self.aliases)
            found += [(term, index, labels) for term in terms]
        return found


class Universe:
    """Per key, the values that pools can bring about, and behind which taints. Source: spec/scheduling 6.2.

    Differs on purpose: only types that suit the pool by label count, and only listed values.
    """

    def __init__(self, templates: Sequence[Template]) -> None:
        self._templates = templates
        self._known: dict[str, Domains] = {}

    def get(self, key: str) -> Domains:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(key)
        return found

    def _find(self, key: str) -> Domains:
        found: dict[str, list[tuple[Taint, ...]]] = {}
        for template in self._templates:
            own = template.written.get(key)
            values = {v for v, rows in template.columns.values(key).items() if rows & template.labelled}
            if own is not None:
                values = {v for v in values if own.has(v)}
                if not own.complement:
                    values |= own.values
            for value in sorted(values):
                sets = found.get(value)
                if sets is None:
                    found[value] = [template.taints] if template.taints else []
                elif sets and not template.taints:
                    found[value] = []
                elif sets:
                    sets.append(template.taints)
        return found


def usable(pools: Iterable[Pool]) -> list[Pool]:
    """Dynamic, Ready pools that are not going away, heaviest first, ties by later name. Source: spec/scheduling 3.1."""
    fit = [
        p
        for p in pools
        if p.node_pool.spec.replicas is None
        and p.node_pool.metadata.deletion_timestamp is None
        and is_true(p.node_pool.status.conditions, "Ready")
    ]
    fit.sort(key=lambda p: p.node_pool.name, reverse=True)
    fit.sort(key=lambda p: p.node_pool.spec.weight or 0, reverse=True)
    return fit


def representatives(problem: Problem) -> list[Pod]:
    """One pod for every DaemonSet: its newest pod, else one made from its template. Source: spec/scheduling 3.7."""
    newest: dict[str, Pod] = {}
    for place in (*problem.nodes, *problem.leaving):
        for pod in place.pods:
            owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "DaemonSet"), None)
            if owner is None:
                continue
            key = f"{pod.namespace}/{owner.name}"
            before = newest.get(key)
            if before is None or _age(pod) > _age(before):
                newest[key] = pod
    found: list[Pod] = []
    for daemon in problem.surroundings.daemon_sets:
        live = newest.get(daemon.key)
        chosen = _as_template_says(daemon, live) if live is not None else _from_template(daemon)
        if not (has_claims(chosen.spec) and problem.settings.ignore_dra_requests):
            found.append(chosen)
    return found


def _from_template(daemon: DaemonSet) -> Pod:
    template = daemon.spec.template
    meta = replace(daemon.metadata, labels=template.metadata.labels, annotations=template.metadata.annotations)
    return Pod(metadata=meta, spec=with_limits_as_requests(template.spec))


def _as_template_says(daemon: DaemonSet, live: Pod) -> Pod:
    """The live pod, with the template's required node affinity instead of the pin to its node."""
    written = daemon.spec.template.spec.affinity
    required = written.node_affinity.required if written is not None and written.node_affinity is not None else None
    affinity = live.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return live
    node = replace(affinity.node_affinity, required=required)
    return replace(live, spec=replace(live.spec, affinity=replace(affinity, node_affinity=node)))


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.metadata.creation_timestamp or _EPOCH, pod.name


def _counts(pod: Pod, scheduled: set[str]) -> bool:
    """Whether a bound pod counts for topology: it runs, is not ending, and is not itself being placed."""
    meta = pod.metadata
    return is_active_on_node(pod) and meta.deletion_timestamp is None and (meta.uid or pod.key) not in scheduled


def _picks_bound(term: Term, namespace: str, labels: Mapping[str, str]) -> bool:
    return term.selects(namespace, labels)


def _rules(rules: Sequence[Rule], counted_in: Sequence[Group], domains: Callable[[str], Iterable[str]]) -> Rules:
    host = tuple(r for r in rules if r.group.term.key == names.HOSTNAME)
    keys = sorted({r.group.term.key for r in rules} - {names.HOSTNAME})
    keyed = tuple((key, tuple(r for r in rules if r.group.term.key == key)) for key in keys)
    # Who merely counts in another's spread is pinned at the end of the pass, so as not to spoil the balance for its owners.
    followed = {g.term.key for g in counted_in if g.term.shape is not Shape.SPREAD}
    pinned = sorted(followed.union(keys) - {names.HOSTNAME})
    one_at_a_time = any(r.own and r.group.term.shape is not Shape.AFFINITY for _, rs in keyed for r in rs)
    return Rules(host, keyed, tuple(pinned), one_at_a_time, shunned(counted_in, domains))
