"""All topology groups of a pass, each known by what makes it one, and found by the pods that it picks.

Source: spec/scheduling 6.2, 6.3.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kubewright.api.core import Taint, Toleration
from kubewright.api.labels import HOSTNAME
from kubewright.scheduling.taints import untolerated
from kubewright.solver.terms import Shape, Term
from kubewright.solver.topology import Group

Domains = Mapping[str, Sequence[tuple[Taint, ...]]]
"""Value of a key → the taint sets behind which pools offer it; an empty sequence means without taints."""


class Topology:
    """All groups of a pass."""

    def __init__(self, universe: Callable[[str], Domains], *, lenient: bool = False) -> None:
        self.lenient = lenient
        self._universe = universe
        self._known: dict[bytes, Group] = {}
        self.groups: list[Group] = []
        self.present: dict[str, set[str]] = {}
        """Key → values that some node has."""
        self._by_pair: dict[tuple[str, str], list[Group]] = {}
        self._others: list[Group] = []

    def group(self, term: Term, *, inverse: bool = False) -> tuple[Group, bool]:
        """The group of `term` and whether it is new (its counts are then to be filled in)."""
        identity = msgspec.msgpack.encode((inverse, _plain(term)))
        found = self._known.get(identity)
        if found is not None:
            return found, False
        group = self._known[identity] = Group(len(self.groups), term, inverse=inverse)
        group.lenient = self.lenient
        group.present = self.present.setdefault(term.key, set())
        self.groups.append(group)
        if term.shape is Shape.SPREAD and term.key != HOSTNAME:
            for domain in self.domains(term.key, term.domain_tolerations):
                group.counts[domain] = 0
        pairs = term.selector.match_labels if term.selector is not None else {}
        pair = min(pairs.items(), default=None)
        if pair is None:
            self._others.append(group)
        else:
            self._by_pair.setdefault(pair, []).append(group)
        return group, True

    def balanced(self) -> bool:
        """Whether every spread that leaned on a domain without nodes holds over all nodes there will be."""
        for group in self.groups:
            alternatives = group.term.filter.alternatives
            if not group.leaned:
                continue
            asked = [a.get(group.term.key) for a in alternatives]
            counts = [
                n
                for d, n in group.counts.items()
                if (n or d in group.present) and (not asked or any(a is None or a.has(d) for a in asked))
            ]
            if counts and max(counts) - min(counts) > group.term.max_skew:
                return False
        return True

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Group]:
        """Groups, inverse ones too, whose term picks such a pod, in order of their making."""
        found = [g for g in self._others if g.term.selects(namespace, labels)]
        if self._by_pair:
            for pair in labels.items():
                found += [g for g in self._by_pair.get(pair, ()) if g.term.selects(namespace, labels)]
        found.sort(key=lambda g: g.index)
        return found

    def domains(self, key: str, tolerations: tuple[Toleration, ...] | None) -> list[str]:
        """Values of `key` that pools offer, sorted; with tolerations only those behind no taints or tolerated ones."""
        offered = self._universe(key)
        if tolerations is None:
            return sorted(offered)
        return sorted(d for d, sets in offered.items() if not sets or any(not untolerated(s, tolerations) for s in sets))


def _plain(term: Term) -> tuple[object, ...]:
    """`term` with everything unordered put in order, for use as an identity."""
    return (
        term.shape,
        term.key,
        term.namespaces,
        _plain_selector(term.selector),
        term.max_skew,
        term.min_domains,
        [[a[k].identity for k in sorted(a)] for a in term.filter.alternatives],
        term.filter.tolerations,
        term.domain_tolerations,
        [(n, _plain_selector(s)) for n, s in term.together_with],
    )


def _plain_selector(selector: object) -> object:
    built = msgspec.to_builtins(selector)
    if not isinstance(built, dict):
        return built
    return [sorted(built.get("matchLabels", {}).items()), sorted(map(repr, built.get("matchExpressions", ())))]
