"""Capacity reservations: which of a pass's claims get a machine of one, so that none is promised twice and none is left over.

A claim that could be launched from several reservations takes a machine of one of them, whichever that turns out to be: claims
and machines are matched, and a claim moves over to another of its reservations when that makes room for one that has no choice.
Source: spec/scheduling 5.8. Differs on purpose: the reference holds a machine of each for every claim until it is launched, so
one claim uses up three reservations of one machine and the pods behind it wait for the next pass; here all are used at once, and
what is left goes where else it may at once, since nothing is unsure about machines that are all promised.
"""

from collections.abc import Iterable, Sequence

from kubewright.catalogue.columns import Columns
from kubewright.solver.claims import OpenClaim
from kubewright.solver.problem import StateNode
from kubewright.solver.templates import State


class Reservations:
    """The machines of each reservation and who of the pass gets them. Claims are known by their index."""

    def __init__(self, tables: Iterable[Columns], taken: Sequence[frozenset[str]] = (), *, strict: bool) -> None:
        """`taken` are the reservations of each machine that was bought before and that the provider does not count yet.

        `strict` claims never give up their reservation to hold more pods.
        """
        self.strict = strict
        self.capacity: dict[str, int] = {}
        for columns in tables:
            for kind in columns.kinds:
                if kind.reservation:
                    self.capacity[kind.reservation] = min(kind.capacity, self.capacity.get(kind.reservation, kind.capacity))
        self._may: dict[int, frozenset[str]] = {}
        self._has: dict[int, str] = {}
        self._on: dict[str, set[int]] = {name: set() for name in sorted(self.capacity)}
        """Reservation → those who have a machine of it."""
        for i, names in enumerate(taken):
            self.hold(-1 - i, names)

    def rows(self, claim: int | None, state: State) -> int:
        """Rows that the claim could be bought as from a reservation that has a machine for it, or will if others move over.

        None asks for a claim that is not there yet.
        """
        mask = 0
        reachable = self._reachable(claim)
        for index in state.kinds:
            kind = state.template.columns.kinds[index]
            if kind.reservation in reachable:
                mask |= kind.rows
        return mask & state.rows

    def named(self, state: State, rows: int) -> frozenset[str]:
        """Reservations, with a machine left or not, that sell any of `rows` to claims in this state."""
        kinds = state.template.columns.kinds
        return frozenset(kinds[k].reservation for k in state.kinds if kinds[k].reservation and kinds[k].rows & rows)

    def hold(self, claim: int, names: frozenset[str]) -> bool:
        """Give the claim a machine of one of `names`, keeping the promise to all others.

        False, and nothing changed, if there is none.
        """
        reachable = self._reachable(claim)
        if not any(name in reachable for name in names):
            return False
        self._may[claim] = names
        if self._has.get(claim) not in names:
            self.release(claim)
            self._may[claim] = names
            self._seat(claim, set())
        return True

    def release(self, claim: int) -> None:
        """The claim does without."""
        self._may.pop(claim, None)
        before = self._has.pop(claim, None)
        if before is not None:
            self._on[before].discard(claim)

    def settle(self, claims: Iterable[OpenClaim]) -> None:
        """Write down what each claim may be launched from.

        Launches come in any order and take any machine they may. Where that could leave one without, all that could get in each
        other's way are held to the machine they were matched with.
        """
        may = {claim: names & self.capacity.keys() for claim, names in self._may.items()}
        while unsafe := [names for index, names in may.items() if self._could_lose(index, may)]:
            contested = frozenset[str]().union(*unsafe)
            may = {i: frozenset((self._has[i],)) if names & contested else names for i, names in may.items()}
        for claim in claims:
            if claim.held:
                claim.held = may[claim.index]

    def _could_lose(self, claim: int, may: dict[int, frozenset[str]]) -> bool:
        others = sum(1 for c, names in may.items() if c != claim and names & may[claim])
        return sum(self.capacity[name] for name in may[claim]) <= others

    def _reachable(self, claim: int | None) -> set[str]:
        """Reservations with a machine that is free, or that somebody can free by moving over; the claim's own counts as free."""
        own = self._has.get(claim) if claim is not None else None
        found = {n for n, most in self.capacity.items() if len(self._on[n]) - (n == own) < most}
        if not found:
            return found
        grown = True
        while grown and len(found) < len(self.capacity):
            more = {n for n, on in self._on.items() if n not in found and any(self._may[h] & found for h in on if h != claim)}
            found |= more
            grown = bool(more)
        return found

    def _seat(self, claim: int, asked: set[str]) -> bool:
        """The augmenting path: a free machine, else the one of somebody who finds another."""
        names = sorted(self._may[claim] & self._on.keys() - asked)
        for name in names:
            if len(self._on[name]) < self.capacity[name]:
                self._sit(claim, name)
                return True
        for name in names:
            asked.add(name)
            for other in sorted(self._on[name]):
                if self._seat(other, asked):
                    self._sit(claim, name)
                    return True
        return False

    def _sit(self, claim: int, name: str) -> None:
        before = self._has.get(claim)
        if before is not None:
            self._on[before].discard(claim)
        self._has[claim] = name
        self._on[name].add(claim)


def promised(nodes: Iterable[StateNode]) -> list[frozenset[str]]:
    """The reservations of each claim that was bought from one and has no machine yet: no provider counts it."""
    found = []
    for node in nodes:
        if node.claim is not None and not node.claim.status.provider_id:
            found += [
                frozenset(r.values)
                for r in node.claim.spec.requirements
                if r.key.endswith("reservation-id") and r.operator == "In"
            ]
    return found
