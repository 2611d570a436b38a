"""Open claims: nodes being planned.

Source: spec/scheduling 5.4, 5.5.
"""

from collections.abc import Mapping, Sequence

from kubewright.api.quantity import Resources
from kubewright.scheduling.host_ports import HostPort, clash
from kubewright.solver.classes import PodClass
from kubewright.solver.templates import State, Template
from kubewright.solver.topology import Group


class OpenClaim:
    """A node being planned: its state, the rows that still hold everything on it, and what is on it."""

    __slots__ = (
        "doubts",
        "held",
        "index",
        "min_values_relaxed",
        "name",
        "placed",
        "ports",
        "requests",
        "rows",
        "state",
        "uncounted",
        "volumes",
    )

    def __init__(self, index: int, name: str, state: State) -> None:
        self.index = index
        self.name = name
        self.state = state
        self.rows = state.rows
        self.requests: dict[str, int] = {}
        """Of pods alone; daemon overhead is in the template's `fit`."""
        self.placed: list[tuple[PodClass, int, int]] = []
        """(class, from, to) into the class's pods."""
        self.ports: list[HostPort] = []
        self.volumes: dict[str, set[str]] = {}
        self.held: frozenset[str] = frozenset()
        """Capacity reservations that it may be launched from; one of them has a machine for it. See `reservations`."""
        self.min_values_relaxed = False
        self.doubts: list[tuple[Group, str, int]] = []
        """(group, domain, pods) of those uncounted that stand in a domain already."""
        self.uncounted: list[tuple[Group, int]] = []
        """(group, pods) that will count once the claim has one value of the group's key."""

    @property
    def pods(self) -> int:
        return sum(end - start for _, start, end in self.placed)

    @property
    def template(self) -> Template:
        return self.state.template

    def rows_with(self, state: State, requests: Sequence[tuple[str, int]], pods: int, within: int) -> int:
        """Rows that hold `pods` more such pods in `state`."""
        rows = within & state.rows
        if not rows:
            return 0
        ladder = self.state.template.fit.ladder
        mine = self.requests
        for name, amount in requests:
            rows &= ladder(name).at_least(mine.get(name, 0) + amount * pods)
            if not rows:
                return 0
        return rows

    def most(self, state: State, requests: Sequence[tuple[str, int]], wanted: int, within: int) -> tuple[int, int]:
        """The most pods, up to `wanted`, that fit, with the rows that then remain; (0, 0) when not even one does."""
        relaxed = self.min_values_relaxed
        rows = self.rows_with(state, requests, wanted, within)
        if rows and (relaxed or not state.unmet(rows)):
            return wanted, rows
        low, high, best = 0, wanted, 0
        while high - low > 1:
            middle = (low + high) // 2
            rows = self.rows_with(state, requests, middle, within)
            if rows and (relaxed or not state.unmet(rows)):
                low, best = middle, rows
            else:
                high = middle
        return low, best

    def port_clash(self, ports: Sequence[HostPort]) -> bool:
        return bool(ports and self.ports) and clash(ports, self.ports) is not None

    def attaching(self, drivers: Mapping[str, frozenset[str]]) -> int:
        """Rows to which these claims can be attached beside those that are on the claim already."""
        return self.template.columns.attaching({d: self.volumes.get(d, set()) | keys for d, keys in drivers.items()})

    def add(self, one: PodClass, start: int, pods: int, state: State, rows: int) -> None:
        self.state = state
        self.rows = rows
        mine = self.requests
        for name, amount in one.requests.items():
            mine[name] = mine.get(name, 0) + amount * pods
        self.placed.append((one, start, start + pods))
        if one.ports:
            self.ports += one.ports
        for driver, keys in one.drivers.items():
            self.volumes.setdefault(driver, set()).update(keys)

    def all_requests(self) -> Resources:
        """Pods' requests and the least daemon overhead."""
        total = dict(self.requests)
        for name, amount in self.template.least_overhead(self.rows).items():
            total[name] = total.get(name, 0) + amount
        return total
