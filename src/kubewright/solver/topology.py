"""Topology groups: who counts where, and which domains a pod may therefore go to.

Hostname groups count per place (node or open claim) and answer with masks of places; other keys count per label value. An open
claim that takes a pod which counts is pinned to one value of the key, so counts are exact and nobody waits for a later pass
(the reference leaves the choice open and the pods pending, spec/scheduling 6.7). Source: spec/scheduling 6.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kubewright.api.labels import HOSTNAME
from kubewright.scheduling.requirement import Requirement
from kubewright.solver.terms import Shape, Term


class Levels:
    """Counts per place, and for every count the mask of places that have at least so many."""

    __slots__ = ("_masks", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._masks: dict[int, int] = {}

    def add(self, place: int, pods: int) -> None:
        before = self.counts.get(place, 0)
        after = self.counts[place] = before + pods
        bit = 1 << place
        for level in range(before + 1, after + 1):
            self._masks[level] = self._masks.get(level, 0) | bit

    def remove(self, place: int, pods: int) -> None:
        """Take back what `add` was told."""
        before = self.counts.pop(place)
        after = before - pods
        if after:
            self.counts[place] = after
        for level in range(after + 1, before + 1):
            self._masks[level] &= ~(1 << place)

    def at_least(self, count: int) -> int:
        return self._masks.get(count, 0)


class Group:
    """One term with its counts. `inverse` groups count the owners of an anti-affinity term and bind the pods it picks."""

    __slots__ = (
        "claims",
        "counts",
        "daemon_rows",
        "doubted",
        "elsewhere",
        "followers",
        "index",
        "inverse",
        "leaned",
        "lenient",
        "nodes",
        "nodes_passing",
        "passes",
        "present",
        "term",
    )

    def __init__(self, index: int, term: Term, *, inverse: bool) -> None:
        self.index = index
        self.term = term
        self.inverse = inverse
        self.counts: dict[str, int] = {}
        """By value of the key; values without pods that a spread must know of stand with 0."""
        self.nodes = Levels()
        self.claims = Levels()
        self.elsewhere = 0
        """Pods on hosts where nothing can be put."""
        self.doubted: dict[str, int] = {}
        """By value, pods on claims that stand there and may or may not come to pass the node filter."""
        self.lenient = False
        self.leaned = False
        """Whether a domain was not counted because no node stands there yet."""
        self.present: set[str] = set()
        """Values that some node, there already or planned, has; shared by all groups of the key."""
        self.followers: list[tuple[Requirement, ...]] = []
        """What the classes bound by an affinity require of the key, any one of each."""
        self.nodes_passing = -1
        """Mask of existing nodes that the node filter lets count."""
        self.daemon_rows: Mapping[str, int] = {}
        """NodePool → rows on which a DaemonSet that the term picks will run (see `solver.company`)."""
        self.passes: dict[object, bool] = {}
        """Claim state → whether the node filter lets such claims count."""

    @property
    def any_counted(self) -> bool:
        return bool(self.elsewhere or self.nodes.counts or self.claims.counts) or any(self.counts.values())

    def describe(self) -> str:
        """The counts as Karpenter prints them. Source: spec/scheduling 6.6."""
        listed = [f"{d}: {n}" for d, n in sorted(self.counts.items())]
        more = f" and {len(listed) - 25} other(s)" if len(listed) > 25 else ""
        return ", ".join(listed[:25]) + more


class Rule(NamedTuple):
    """How one group binds one form of a pod class."""

    group: Group
    own: int
    """1 when the pods count in the group themselves."""
    domains: Requirement | None
    """What the pod itself requires of the key."""
    reach: Requirement | None = None
    """What the pod and its volumes together leave of the key."""


class Rules(NamedTuple):
    """Everything topological that binds one form of a pod class."""

    host: tuple[Rule, ...]
    keyed: tuple[tuple[str, tuple[Rule, ...]], ...]
    """Rules per key other than hostname, by key."""
    pinned: tuple[str, ...]
    """Keys of which a claim must have one value once such a pod is on it."""
    one_at_a_time: bool
    """Whether every placement may change where the next pod can go."""

    shunned: Mapping[str, Mapping[str, int]] = {}
    """Key → value → how many classes that follow these pods could not follow them there."""
    leaning: Mapping[str, tuple[Group, ...]] = {}
    """Pinned key → others' spreads in which these pods count though they are not bound by any of the key."""

    @property
    def any(self) -> bool:
        return bool(self.host or self.keyed)


class Allowed(NamedTuple):
    """Which values of a key a pod may go to."""

    only: Mapping[str, int] | None
    """Value → pods counted there (for choosing); None means any value but `never`."""
    never: frozenset[str]
    key_needed: bool
    """Whether a node without the label is out."""

    def has(self, value: str) -> bool:
        return value not in self.never and (self.only is None or value in self.only)

    @property
    def none(self) -> bool:
        return self.only is not None and all(value in self.never for value in self.only)


ANYWHERE = Allowed(None, frozenset(), key_needed=False)


def allowed(rules: Iterable[Rule]) -> Allowed:
    """The values that all rules of one key allow together. Source: spec/scheduling 6.6."""
    only: dict[str, int] | None = None
    never: set[str] = set()
    key_needed = False
    for rule in rules:
        counts = rule.group.counts
        if rule.group.inverse or rule.group.term.shape is Shape.ANTI_AFFINITY:
            never.update(d for d, n in counts.items() if n)
            continue
        key_needed = True
        if rule.group.term.shape is Shape.SPREAD:
            valid: dict[str, int] | None = _balanced(rule)
        else:
            valid = _with_company(rule)
        if valid is not None:
            only = valid if only is None else {d: n + valid[d] for d, n in only.items() if d in valid}
    return Allowed(only, frozenset(never), key_needed)


def _balanced(rule: Rule) -> dict[str, int]:
    """Values within the skew of the emptiest."""
    known = _counted(rule)
    if not known:
        return {}
    most = _most(rule, known)
    doubted = rule.group.doubted
    if doubted:
        return {d: n for d, n in known.items() if n + doubted.get(d, 0) <= most}
    return {d: n for d, n in known.items() if n <= most}


def _counted(rule: Rule) -> Mapping[str, int]:
    """Values among which the emptiest is looked for, with their counts.

    All that any required term of the pod as written would take, since a node may come to stand there; a lenient pass looks only
    where one stands. (The reference looks at the first required term only.)
    """
    term = rule.group.term
    known: Mapping[str, int] = rule.group.counts
    asked = [a.get(term.key) for a in term.filter.alternatives]
    if asked and all(a is not None for a in asked):
        known = {d: n for d, n in known.items() if any(a is not None and a.has(d) for a in asked)}
    if rule.group.lenient and rule.reach is not None:
        present = rule.group.present
        counted = {d: n for d, n in known.items() if d in present or rule.reach.has(d)}
        if len(counted) < len(known):
            rule.group.leaned = True
            known = counted
    return known


def _most(rule: Rule, known: Mapping[str, int]) -> int:
    """How many pods a value may have for one more to go there."""
    term = rule.group.term
    least = 0 if len(known) < term.min_domains else min(known.values())
    return term.max_skew + least - rule.own


def stays_balanced(
    rules: Iterable[tuple[str, tuple[Rule, ...]]], late: Mapping[int, int], value_of: Callable[[str], str | None]
) -> bool:
    """Whether spreads hold on a claim whose `late` pods (by index of the group) begin to count with one that joins them there."""
    for key, keyed in rules:
        for rule in keyed:
            pods = late.get(rule.group.index)
            if pods and rule.group.term.shape is Shape.SPREAD:
                known, value = _counted(rule), value_of(key)
                if value is not None and known and known.get(value, 0) + pods > _most(rule, known):
                    return False
    return True


def _with_company(rule: Rule) -> dict[str, int] | None:
    """Domains that hold a pod to follow; None when this pod may be the first one anywhere.

    As kube-scheduler, and unlike the reference, a pod may be the first only if there is none in the whole cluster.
    """
    found = {d: 0 for d, n in rule.group.counts.items() if n and (rule.domains is None or rule.domains.has(d))}
    if found:
        return found
    return None if rule.own and not rule.group.any_counted else {}


class HostMasks(NamedTuple):
    """Which places hostname rules leave, and how many pods fit under them."""

    nodes_only: int
    """Mask, or -1 for all."""
    nodes_never: int
    claims_only: int
    claims_never: int
    fresh: bool
    """Whether a new claim may be opened."""


def host_masks(rules: Iterable[Rule]) -> HostMasks:
    nodes_only = claims_only = -1
    nodes_never = claims_never = 0
    fresh = True
    for rule in rules:
        group = rule.group
        shape = group.term.shape
        if group.inverse or shape is Shape.ANTI_AFFINITY:
            nodes_never |= group.nodes.at_least(1)
            claims_never |= group.claims.at_least(1)
        elif shape is Shape.SPREAD:
            full = group.term.max_skew - rule.own + 1
            if full < 1:
                return HostMasks(0, 0, 0, 0, fresh=False)
            nodes_never |= group.nodes.at_least(full)
            claims_never |= group.claims.at_least(full)
        elif not rule.own or group.any_counted:
            nodes_only &= group.nodes.at_least(1)
            if not group.daemon_rows:
                claims_only &= group.claims.at_least(1)
                fresh = False
    return HostMasks(nodes_only, nodes_never, claims_only, claims_never, fresh)


def host_room(rules: Iterable[Rule], *, node: int | None, claim: int | None) -> int | None:
    """How many more pods hostname rules let onto a place; None when they set no number. A new claim is neither."""
    room: int | None = None
    for rule in rules:
        group = rule.group
        if not rule.own:
            continue
        if group.inverse or group.term.shape is Shape.ANTI_AFFINITY:
            return 1
        if group.term.shape is Shape.SPREAD:
            held = group.nodes.counts.get(node, 0) if node is not None else 0
            held += group.claims.counts.get(claim, 0) if claim is not None else 0
            left = group.term.max_skew - held
            room = left if room is None else min(room, left)
    return room


def shunned(counted_in: Iterable[Group], domains: Callable[[str], Iterable[str]]) -> dict[str, dict[str, int]]:
    """Per key the values to which followers could not come, with how many could not."""
    found: dict[str, dict[str, int]] = {}
    for group in counted_in:
        if not group.followers or group.term.key == HOSTNAME:
            continue
        ranks = found.setdefault(group.term.key, {})
        for value in domains(group.term.key):
            bad = sum(1 for options in group.followers if not any(o.has(value) for o in options))
            if bad:
                ranks[value] = ranks.get(value, 0) + bad
    return {key: ranks for key, ranks in found.items() if ranks}


def rows_with_company(rules: Iterable[Rule], pool: str, claim: int | None) -> int:
    """Rows of a claim that suit pods which must be beside a DaemonSet's or must not.

    Who must be beside one may also find a pod to follow on the claim already.
    """
    rows = -1
    for rule in rules:
        group = rule.group
        if not group.daemon_rows:
            continue
        if group.inverse or group.term.shape is Shape.ANTI_AFFINITY:
            rows &= ~group.daemon_rows.get(pool, 0)
        elif (not rule.own or group.any_counted) and not (claim is not None and group.claims.counts.get(claim)):
            rows &= group.daemon_rows.get(pool, 0)
    return rows
