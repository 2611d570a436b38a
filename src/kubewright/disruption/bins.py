"""Machines that might be bought for pods that find no place on a board: what they would cost, without topology.

Optimistic on purpose: the exact scheduler says afterwards what is really possible. Source: spec/scheduling 5.4.
"""

from collections.abc import Sequence

from kubewright.api import labels as names
from kubewright.api.quantity import Resources
from kubewright.catalogue.columns import NO_PRICE
from kubewright.disruption.board import Board, Content
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.solver.claims import OpenClaim
from kubewright.solver.classes import PodClass
from kubewright.solver.templates import State, Template
from kubewright.solver.terms import Shape


class Market:
    """What can be bought in the snapshot of a board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        counted = sorted({name for one in board.classes for name, amount in one.requests.items() if amount})
        self._shares = [_shares(t, counted) for t in board.templates]
        self._without_spot: dict[int, State | None] = {}

    def fraction(self, wanted: Resources) -> float:
        """USD per hour of the share of a machine that `wanted` takes up, on the machine that suits it best."""
        best = NO_PRICE
        for shares in self._shares:
            for usd, room in shares:
                share = 0.0
                for name, amount in wanted.items():
                    if amount:
                        have = room.get(name, 0)
                        if not have:
                            share = NO_PRICE
                            break
                        share = max(share, amount / have)
                best = min(best, usd * share)
        return best

    def open(self, content: Content, *, spot: bool) -> "Bin | None":
        """The cheapest single machine for all of `content`, of the first pool that can; None when there is none."""
        for template in self._board.templates:
            affordable = template.affordable()
            if isinstance(affordable, Refusal):
                continue
            start = template.start if spot else self._no_spot(template)
            if start is None:
                continue
            # Exotic machines only where no other will do, as they are launched.
            for within in (affordable & template.columns.plain, affordable):
                claim = OpenClaim(0, template.name, start)
                claim.rows &= within
                found = Bin(claim, self._board).with_more(content)
                if found is not None:
                    return found
        return None

    def _no_spot(self, template: Template) -> State | None:
        if id(template) not in self._without_spot:
            others = Requirement(names.CAPACITY_TYPE, frozenset((names.ON_DEMAND, names.RESERVED)))
            own = template.start.requirements.get(names.CAPACITY_TYPE)
            allowed = others if own is None else own & others
            state = template.state({**template.start.requirements, names.CAPACITY_TYPE: allowed}) if allowed.values else None
            self._without_spot[id(template)] = state
        return self._without_spot[id(template)]


class Bin:
    """A machine that might be bought. Never changed: more pods make another."""

    __slots__ = ("_board", "_claim", "usd_per_hour")

    def __init__(self, claim: OpenClaim, board: Board) -> None:
        self._board = board
        self._claim = claim
        state = claim.state
        self.usd_per_hour = state.template.columns.cheapest(claim.rows & state.rows, state.kinds)

    def with_more(self, content: Content) -> "Bin | None":
        """The machine for these pods too; None when no machine can hold all of them."""
        old = self._claim
        claim = OpenClaim(0, old.name, old.state)
        claim.rows, claim.requests, claim.ports = old.rows, dict(old.requests), list(old.ports)
        claim.volumes = {driver: set(keys) for driver, keys in old.volumes.items()}
        for index, pods in content.items():
            self._board.steps += 1
            if not _add(claim, self._board.classes[index], pods):
                return None
        return Bin(claim, self._board)

    def is_like(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        """Whether the cheapest machine for it is of that type, and may be of that zone and capacity type."""
        claim = self._claim
        state, columns = claim.state, claim.template.columns
        rows = claim.rows & state.rows
        for usd, row in columns.by_price(state.kinds):
            if not rows >> row & 1:
                continue
            if columns.rows[row].type.name != instance_type:
                return False
            kinds = (columns.kinds[k] for k in state.kinds)
            return any(
                k.rows >> row & 1
                and k.prices[row] <= usd
                and k.requirements[names.ZONE].has(zone)
                and k.requirements[names.CAPACITY_TYPE].has(capacity_type)
                for k in kinds
            )
        return False


def _add(claim: OpenClaim, one: PodClass, pods: int) -> bool:
    if one.refusal is not None or claim.port_clash(one.ports) or (one.ports and pods > 1):
        return False
    if _keeps_apart(one) and pods > 1:
        return False
    requests = tuple(one.requests.items())
    for variant in one.variants:
        for ask in variant.asks:
            state = claim.state.with_ask(ask)
            if isinstance(state, Refusal):
                continue
            within = claim.rows & claim.template.free_of(one.ports) if one.ports else claim.rows
            if one.drivers:
                within &= claim.attaching(one.drivers)
            placed, rows = claim.most(state, requests, pods, within)
            if placed == pods:
                claim.add(one, 0, pods, state, rows)
                return True
    return False


def _keeps_apart(one: PodClass) -> bool:
    """Whether two of these may never share a host."""
    last = one.variants[-1].rules if one.variants else None
    return last is not None and any(r.own and (r.group.inverse or r.group.term.shape is Shape.ANTI_AFFINITY) for r in last.host)


def _shares(template: Template, counted: Sequence[str]) -> Sequence[tuple[float, Resources]]:
    """(USD per hour, room) of every machine worth thinking of: no other gives as much of everything for the money."""
    columns = template.columns
    rows = template.rows & template.start.rows
    kept: list[tuple[float, dict[str, int]]] = []
    for usd, row in columns.by_price(template.start.kinds):
        if not rows >> row & 1:
            continue
        have = columns.rows[row].allocatable
        room = {name: have.get(name, 0) for name in counted}
        # A machine twice as large for twice the money is the same machine here.
        if not any(_beats(u, r, usd, room) for u, r in kept):
            kept = [(u, r) for u, r in kept if not _beats(usd, room, u, r)]
            kept.append((usd, room))
    return kept


def _beats(usd: float, room: Resources, other_usd: float, other: Resources) -> bool:
    return all(room[name] * other_usd >= amount * usd for name, amount in other.items())
