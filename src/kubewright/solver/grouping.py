"""From classes, nodes and templates to topology groups: who is bound by which, and what counts there already.

Source: spec/scheduling 6.2 to 6.4, 6.8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kubewright.api import labels as names
from kubewright.api.core import Pod, PodSpec, Taint
from kubewright.settings import PreferencePolicy
from kubewright.solver.classes import PodClass
from kubewright.solver.company import awaits, both_rows, daemon_rows
from kubewright.solver.groups import Domains, Topology
from kubewright.solver.nodes import NodeTable
from kubewright.solver.problem import Problem
from kubewright.solver.running import Running
from kubewright.solver.templates import Template
from kubewright.solver.terms import (
    Shape,
    Term,
    affinity_terms,
    required_anti_terms,
    spread_terms,
)
from kubewright.solver.topology import Group, Rule, Rules, shunned


class Grouping:
    """Makes the groups of a pass, counts who runs, and binds the classes' variants."""

    def __init__(
        self,
        problem: Problem,
        classes: Sequence[PodClass],
        table: NodeTable,
        templates: Sequence[Template],
        daemons: Sequence[Pod],
        aliases: Mapping[str, str],
        *,
        lenient: bool,
    ) -> None:
        self.problem = problem
        self.classes = classes
        self.table = table
        self.templates = templates
        self.daemons = daemons
        self.aliases = aliases
        self.topology = Topology(Universe(templates).get, lenient=lenient)
        scheduled = {pod.metadata.uid or pod.key for pod in problem.pods}
        self.running = table.running or Running(table.nodes, problem.leaving, scheduled)
        self._add_topology()

    def _add_topology(self) -> None:
        around = self.problem.surroundings
        settings = self.problem.settings
        preferences = settings.preference_policy is PreferencePolicy.RESPECT
        bound_terms = self._bound_anti_terms()
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
                per_variant.append([(self._group(t), t) for t in terms])
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

    def _group(self, term: Term) -> Group:
        found, new = self.topology.group(term)
        if new:
            self._count(found)
        return found

    def _inverse(self, term: Term) -> Group:
        return self.topology.group(term, inverse=True)[0]

    def _count(self, target: Group) -> None:
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
        for namespace, labels, places, elsewhere in self.running.alike():
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
        """Count the pods that DaemonSets will have on nodes to come, and on those that are coming up or should have them."""
        target.daemon_rows = both_rows(target.daemon_rows, daemon_rows(self.templates, daemons, self.aliases))
        for node in self.table.nodes:
            if awaits(node, daemons, self.aliases, surely=target.term.shape is Shape.AFFINITY):
                target.nodes.add(node.index, 1)

    def _leaving_labels(self) -> dict[str, Mapping[str, str]]:
        return {place.node.name: place.node.metadata.labels for place in self.problem.leaving if place.node is not None}

    def _bound_anti_terms(self) -> list[tuple[Term, int | None, Mapping[str, str]]]:
        around = self.problem.surroundings
        leaving = self._leaving_labels()
        found: list[tuple[Term, int | None, Mapping[str, str]]] = []
        for pod, index, host in self.running.shy():
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
    counting = [g for g in counted_in if g.term.shape is Shape.SPREAD and not g.inverse]
    leaning = {key: tuple(g for g in counting if g.term.key == key) for key in pinned if key not in keys}
    return Rules(host, keyed, tuple(pinned), one_at_a_time, shunned(counted_in, domains), leaning)
