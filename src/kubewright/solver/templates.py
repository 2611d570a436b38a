"""Templates: what a NodePool would buy, before and after pods narrow it.

A `State` is the label side of an open claim: requirements, and the rows and offerings that can still meet them. States are
interned and their transitions remembered, so that narrowing a claim by a pod class costs one look-up the second time.
Source: spec/scheduling 3.3 to 3.7, 5.4.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kubewright.api import labels as names
from kubewright.api.core import Pod, Taint
from kubewright.api.karpenter import NodePool
from kubewright.api.quantity import ONE, Resources, parse_map
from kubewright.catalogue.columns import Columns, Fit, bits
from kubewright.scheduling.host_ports import HostPort, clash, host_ports
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import (
    Requirements,
    add,
    add_all,
    both,
    compatible,
    of_expressions,
    of_labels,
    of_pod,
    of_term,
)
from kubewright.scheduling.resources import NODES, pod_requests, total_of
from kubewright.scheduling.taints import TOLERATES_PREFERENCES, untolerated
from kubewright.solver.classes import Ask
from kubewright.solver.topology import Allowed

PLACEHOLDER = "hostname-placeholder"
_SIMULATED = (names.REGISTERED, names.INITIALIZED)


class Pin(NamedTuple):
    """One value that an open claim could be fixed to for a key."""

    price: float
    value: str
    state: "State"


class State:
    """Requirements of an open claim of one template, with everything that follows from them alone."""

    __slots__ = ("_next", "_only_sold", "_pins", "id", "kinds", "min_values", "requirements", "rows", "template")

    def __init__(self, template: "Template", index: int, requirements: Requirements) -> None:
        columns = template.columns
        self.template = template
        self.id = index
        self.requirements = requirements
        self.kinds = columns.open_kinds(requirements)
        self.rows = template.rows & columns.matching_all(requirements) & columns.offered(self.kinds)
        self.min_values = tuple((r.key, r.min_values) for r in requirements.values() if r.min_values is not None)
        self._next: dict[int, State | Refusal] = {}
        self._pins: dict[str, tuple[Pin, ...]] = {}
        self._only_sold: dict[str, str | None] = {}

    def with_ask(self, ask: Ask) -> "State | Refusal":
        """This state narrowed by a pod's labels and taints, or why it cannot be."""
        found = self._next.get(ask.id)
        if found is None:
            found = self._next[ask.id] = self._narrow(ask)
        return found

    def _narrow(self, ask: Ask) -> "State | Refusal":
        template = self.template
        taints = untolerated(template.taints, ask.tolerations)
        if taints:
            facts = {"taints": "; ".join(map(str, taints)), "owner": f"NodePool {template.name}"}
            return Refusal(Because.TAINT, template.name, "", str(taints[0]), facts, curable=False)
        refusal = compatible(self.requirements, ask.requirements, template.columns.well_known)
        if refusal is not None:
            return refusal
        return template.state(both(self.requirements, ask.requirements))

    def pins(self, key: str) -> tuple[Pin, ...]:
        """Values of `key` a claim in this state can be fixed to, cheapest first; empty when its nodes will not have the label."""
        found = self._pins.get(key)
        if found is None:
            found = self._pins[key] = self._find_pins(key)
        return found

    def _find_pins(self, key: str) -> tuple[Pin, ...]:
        own = self.requirements.get(key)
        columns = self.template.columns
        values: set[str]
        if own is not None and not own.complement:
            values = set(own.values)
        else:
            values = {v for v, rows in columns.values(key).items() if rows & self.rows}
            for index in self.kinds:
                offered = columns.kinds[index].requirements.get(key)
                if offered is not None and not offered.complement:
                    values |= offered.values
        found: list[Pin] = []
        for value in sorted(values):
            if own is not None and not own.has(value):
                continue
            pinned = Requirement(key, frozenset((value,)))
            state = self.template.state({**self.requirements, key: pinned if own is None else own & pinned})
            if state.rows:
                found.append(Pin(columns.cheapest(state.rows, state.kinds), value, state))
        return tuple(sorted(found, key=lambda p: (p.price, p.value)))

    def options(
        self, pinned: Sequence[str], limits: Mapping[str, Allowed], ranks: Mapping[str, Mapping[str, int]]
    ) -> list["State"]:
        """Every state with one value for each of `pinned` that the limits allow, best first.

        Best is the fewest pods counted there (for keys with a spread), then the cheapest.
        """
        states = [self]
        for key in pinned:
            limit = limits.get(key)
            rank: Mapping[str, int] = ranks.get(key, {})
            further: list[State] = []
            for state in states:
                pins = state.pins(key)
                if not pins:
                    if limit is None or not limit.key_needed:
                        further.append(state)
                    continue
                fine = [p for p in pins if limit is None or limit.has(p.value)]
                fine.sort(key=lambda p: (rank.get(p.value, 0), p.price, p.value))
                further += [p.state for p in fine]
            states = further
        return states

    def single(self, key: str) -> str | None:
        """The value of `key` that nodes of this state will have, if only one is possible or for sale."""
        own = self.requirements.get(key)
        if own is not None and not own.complement and len(own.values) == 1:
            return next(iter(own.values))
        if key not in self._only_sold:
            self._only_sold[key] = self._find_only_sold(key)
        return self._only_sold[key]

    def _find_only_sold(self, key: str) -> str | None:
        values: set[str] = set()
        for index in self.kinds:
            kind = self.template.columns.kinds[index]
            if kind.rows & self.rows:
                one = kind.requirements.get(key)
                if one is None or one.complement:
                    return None
                values |= one.values
        own = self.requirements.get(key)
        found = [v for v in values if own is None or own.has(v)]
        return found[0] if len(found) == 1 else None

    def unmet(self, rows: int) -> list[tuple[str, int, int]]:
        """Keys whose minValues `rows` do not meet: (key, wanted, found). Source: spec/scheduling 2.10."""
        columns = self.template.columns
        found = ((key, wanted, columns.distinct(key, rows)) for key, wanted in self.min_values)
        return [f for f in found if f[2] < f[1]]


class Cut(NamedTuple):
    """The types that a claim names in the end."""

    types: tuple[str, ...]
    """Cheapest first."""
    rows: int
    usd: float
    """Per hour, of the cheapest offering."""
    listed: Requirement
    """The types as a requirement."""


class DaemonGroup(NamedTuple):
    """Rows of a template on which the same DaemonSets would run. Source: spec/scheduling 3.7."""

    rows: int
    overhead: Resources
    ports: tuple[HostPort, ...]


class Template:
    """A NodePool that takes part in the pass, with its columns, daemon overhead and what its limits leave."""

    def __init__(
        self,
        pool: NodePool,
        columns: Columns,
        daemons: Sequence[Pod],
        aliases: Mapping[str, str],
        used: Resources,
        slack: float = 0.0,
    ) -> None:
        """`used` is the capacity of the pool's nodes that stay, `nodes` included; `slack` the share of a node to leave free."""
        spec = pool.spec.template.spec
        self.pool = pool
        self.name = pool.name
        self.columns = columns
        self.taints: tuple[Taint, ...] = spec.taints or ()
        self.labels = {**(pool.spec.template.metadata.labels or {}), names.NODEPOOL: pool.name}
        if spec.node_class_ref.kind:
            self.labels[names.node_class_label(spec.node_class_ref.group, spec.node_class_ref.kind)] = spec.node_class_ref.name
        requirements = of_expressions(spec.requirements, aliases)
        add_all(requirements, of_labels(self.labels, aliases))
        self.written = dict(requirements)
        """What the NodePool itself asks for."""
        for key in _SIMULATED:
            add(requirements, Requirement(key, frozenset(("true",))))
        add(requirements, Requirement(names.HOSTNAME, frozenset((PLACEHOLDER,))))
        self.cuts: dict[tuple[tuple[int, ...], int], Cut] = {}
        """(offering kinds, rows) of a claim → what it comes to; many claims of a pass are alike."""
        self._states: dict[tuple[tuple[object, ...], ...], State] = {}
        self.rows = columns.every & columns.fit.usable
        self.labelled = columns.matching_all(requirements)
        """Rows that suit the pool by label, sold at present or not."""
        self.start = self.state(requirements)
        self.daemons = self._group_daemons(daemons, aliases)
        self._slack = slack
        self.fit = self._fit()
        self.rows &= self.fit.usable
        self._states.clear()
        self.start = self.state(requirements)
        limits = parse_map(pool.spec.limits or {})
        self.remaining: dict[str, int] = {name: amount - used.get(name, 0) for name, amount in limits.items()}
        self.opened = 0

    def state(self, requirements: Requirements) -> State:
        identity = tuple(requirements[key].identity for key in sorted(requirements))
        found = self._states.get(identity)
        if found is None:
            found = self._states[identity] = State(self, len(self._states), requirements)
        return found

    def affordable(self) -> int | Refusal:
        """Rows that the limits leave for one more node; nodes count inside the pass. Source: spec/scheduling 3.5."""
        if not self.remaining:
            return self.columns.every
        nodes = self.remaining.get(NODES)
        if nodes is not None and nodes < ONE:
            return Refusal(Because.LIMITS, self.name, NODES, "0", {"limit": NODES})
        rows = self.columns.within({name: left for name, left in self.remaining.items() if name != NODES})
        if not rows & self.start.rows:
            short = sorted(n for n, left in self.remaining.items() if not self.columns.within({n: left}) & self.start.rows)
            return Refusal(Because.LIMITS, self.name, ",".join(short), "", {"limit": ",".join(short)})
        return rows

    def reserve(self, rows: int) -> None:
        """Take the largest type a new claim could become off the limits."""
        for name in self.remaining:
            self.remaining[name] -= ONE if name == NODES else self.columns.capacity(name).largest(rows)

    def free_of(self, ports: Sequence[HostPort]) -> int:
        """Rows whose daemons do not take any of these host ports."""
        rows = self.columns.every
        for group in self.daemons:
            if group.ports and clash(ports, group.ports) is not None:
                rows &= ~group.rows
        return rows

    def least_overhead(self, rows: int) -> Resources:
        """The overhead that every surviving row carries at least; nothing when one has no daemons. Source: 3.7, [Q] 10."""
        living = [g for g in self.daemons if g.rows & rows]
        if not living:
            return {}
        shared = set(living[0].overhead).intersection(*(g.overhead for g in living[1:]))
        return {name: min(g.overhead[name] for g in living) for name in sorted(shared)}

    def _group_daemons(self, daemons: Sequence[Pod], aliases: Mapping[str, str]) -> tuple[DaemonGroup, ...]:
        groups: dict[tuple[int, ...], int] = {}
        masks = [self._daemon_rows(pod, aliases) for pod in daemons]
        if not any(masks):
            return ()
        for row in bits(self.columns.every):
            having = tuple(i for i, mask in enumerate(masks) if mask >> row & 1)
            groups[having] = groups.get(having, 0) | 1 << row
        return tuple(
            DaemonGroup(
                rows,
                total_of(pod_requests(daemons[i]) for i in having),
                tuple(sorted({p for i in having for p in host_ports(daemons[i].spec)})),
            )
            for having, rows in sorted(groups.items())
        )

    def _daemon_rows(self, pod: Pod, aliases: Mapping[str, str]) -> int:
        if untolerated(self.taints, (*pod.spec.tolerations, TOLERATES_PREFERENCES)):
            return 0
        left = self.columns.every
        found = 0
        for wanted in daemon_alternatives(pod, aliases):
            if compatible(self.start.requirements, wanted, self.columns.well_known) is None:
                found |= left & self.columns.matching_all(wanted)
        return found

    def _fit(self) -> Fit:
        overhead = {row: group.overhead for group in self.daemons if group.overhead for row in bits(group.rows)}
        if self._slack:
            for index, row in enumerate(self.columns.rows):
                free = {name: int(row.allocatable.get(name, 0) * self._slack) for name in ("cpu", "memory")}
                overhead[index] = total_of((overhead.get(index, {}), free))
        return Fit(self.columns.rows, overhead) if overhead else self.columns.fit


def daemon_alternatives(pod: Pod, aliases: Mapping[str, str]) -> list[Requirements]:
    """Every set of labels on which a DaemonSet's pod would run: one per required affinity term."""
    node = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if node is None or node.required is None or len(node.required.node_selector_terms) < 2:
        return [of_pod(pod.spec, preferences=False, aliases=aliases)]
    selector = of_labels(pod.spec.node_selector, aliases)
    return [both(selector, of_term(term, aliases)) for term in node.required.node_selector_terms]


def why_no_rows(state: State, rows: int, fitting: int) -> Refusal:
    """Why no row is left: which of labels, room and offerings fail, alone and in pairs. Source: spec/scheduling 5.7.

    `rows` are those the claim may still use, `fitting` those with room.
    """
    columns = state.template.columns
    matching = columns.matching_all(state.requirements) & rows
    offered = columns.offered(state.kinds) & rows
    fits = fitting & offered
    flags = {
        "met": matching,
        "fits": fits,
        "offered": offered,
        "met-fits": matching & fitting,
        "met-offered": matching & offered,
        "fits-offered": fitting & offered,
    }
    if not matching:
        because = Because.INSTANCE_TYPE
    elif not matching & offered:
        because = Because.OFFERING
    else:
        because = Because.RESOURCES if not matching & offered & fitting else Because.INSTANCE_TYPE
    facts = {name: str(mask.bit_count()) for name, mask in flags.items()}
    return Refusal(because, state.template.name, "", "", facts, curable=because is Because.OFFERING)
