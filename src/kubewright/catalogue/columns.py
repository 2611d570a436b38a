"""Instance types behind bit masks, so that "which types still fit" is a few bisections and ANDs.

A row is an instance type with one way of counting its allocatable: types whose offerings override capacity or overhead have a row
per override, all others one row. Bit i of every mask is row i; rows stand in price order. Source: spec/scheduling 0.8, 5.7.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kubewright.api import labels as names
from kubewright.api.quantity import Resources
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import Requirements, agree, compatible

NO_PRICE = float("inf")


def bits(mask: int) -> Iterator[int]:
    """Indices of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Row(NamedTuple):
    type: InstanceType
    allocatable: Resources
    offerings: tuple[Offering, ...]
    """Only available ones, and only those that share this row's overrides."""


class Kind:
    """All offerings that ask the same of a node: a capacity type in a zone (in a reservation)."""

    def __init__(self, requirements: Requirements, index: int) -> None:
        self.requirements = requirements
        self.index = index
        self.rows = 0
        self.prices: dict[int, float] = {}
        self.overlaid = 0
        """Rows whose price is somebody's correction."""
        self.reservation = ""
        self.capacity = 0
        """The least capacity that any offering of the reservation reports."""

    def add(self, row: int, offering: Offering) -> None:
        self.rows |= 1 << row
        self.prices[row] = min(offering.price, self.prices.get(row, NO_PRICE))
        if offering.price_overlaid:
            self.overlaid |= 1 << row
        if offering.capacity_type == names.RESERVED:
            self.capacity = (
                min(self.capacity, offering.reservation_capacity) if self.reservation else offering.reservation_capacity
            )
            self.reservation = reservation_id(offering) or self.reservation


def reservation_key(requirements: Requirements) -> str:
    """The provider's label for a capacity reservation's id among an offering's requirements, "" if there is none."""
    return next((key for key in sorted(requirements) if key.endswith("reservation-id")), "")


def reservation_id(offering: Offering) -> str:
    key = reservation_key(offering.requirements)
    return offering.requirements[key].any() if key else ""


class Ladder:
    """Amounts of one resource, sorted, each with the mask of rows that have at least so much."""

    __slots__ = ("amounts", "masks")

    def __init__(self, having: Iterable[tuple[int, int]]) -> None:
        """`having` is (amount, row)."""
        ordered = sorted(having, reverse=True)
        amounts: list[int] = []
        masks: list[int] = []
        mask = 0
        for amount, row in ordered:
            mask |= 1 << row
            if amounts and amounts[-1] == amount:
                masks[-1] = mask
            else:
                amounts.append(amount)
                masks.append(mask)
        amounts.reverse()
        masks.reverse()
        masks.append(0)
        self.amounts = amounts
        self.masks = masks

    def at_least(self, amount: int) -> int:
        return self.masks[bisect_left(self.amounts, amount)]

    def more_than(self, amount: int) -> int:
        return self.masks[bisect_right(self.amounts, amount)]

    def largest(self, mask: int) -> int:
        """The largest amount of any row in `mask`; the least amount of all when there is none."""
        for i in range(len(self.amounts) - 1, -1, -1):
            if self.masks[i] & mask:
                return self.amounts[i]
        return 0


class Fit:
    """What each row can give to pods once `overhead` (per row) is taken off."""

    def __init__(self, rows: Sequence[Row], overhead: Mapping[int, Resources]) -> None:
        """`overhead` is by row; rows it lacks have none."""
        self.every = (1 << len(rows)) - 1
        self._rows = rows
        self._overhead = overhead
        self._ladders: dict[str, Ladder] = {}
        self.usable = 0
        for i, row in enumerate(rows):
            extra = overhead.get(i, {})
            if all(v >= 0 for v in row.allocatable.values()) and all(v <= row.allocatable.get(k, 0) for k, v in extra.items()):
                self.usable |= 1 << i

    def ladder(self, resource: str) -> Ladder:
        found = self._ladders.get(resource)
        if found is None:
            found = self._ladders[resource] = Ladder(
                (row.allocatable.get(resource, 0) - self._overhead.get(i, {}).get(resource, 0), i)
                for i, row in enumerate(self._rows)
            )
        return found

    def taken(self, row: int) -> Resources:
        """What of the row is not for pods."""
        return self._overhead.get(row, {})

    def holding(self, requests: Resources) -> int:
        """Rows in which `requests` fit."""
        mask = self.usable
        for resource, amount in requests.items():
            ladder = self.ladder(resource)
            mask &= ladder.masks[bisect_left(ladder.amounts, amount)]
        return mask


class Columns:
    """One table over a list of instance types, shared by every pool that offers that list."""

    def __init__(self, types: Sequence[InstanceType], well_known: Collection[str]) -> None:
        """`well_known` are the labels that a set of requirements may leave open and still take an offering that names them."""
        ordered = sorted(types, key=lambda t: (cheapest(t), t.name))
        self.well_known = frozenset(well_known)
        self.rows: tuple[Row, ...] = tuple(row for kind in ordered for row in _rows(kind))
        self.every = (1 << len(self.rows)) - 1
        self.plain = sum(1 << i for i, row in enumerate(self.rows) if not row.type.exotic)
        """Rows that need not be asked for."""
        self.capacity_overlaid = sum(1 << i for i, row in enumerate(self.rows) if row.type.capacity_overlaid)
        self._attaching: dict[tuple[str, int], int] = {}
        self.kinds = self._gather_kinds()
        self._by_value: dict[str, dict[str, int]] = {}
        self._special: dict[str, list[tuple[Requirement, int]]] = {}
        self._defined: dict[str, int] = {}
        self._gather_labels()
        self._matching: dict[Requirement, int] = {}
        self._capacity: dict[str, Ladder] = {}
        self._price_order: dict[tuple[int, ...], list[tuple[float, int]]] = {}
        self.fit = Fit(self.rows, {})

    @property
    def keys(self) -> list[str]:
        """Every label key that some row answers for, sorted."""
        return sorted(self._defined)

    def values(self, key: str) -> Mapping[str, int]:
        """Each listed value of `key` → the rows that list it."""
        return self._by_value.get(key, {})

    def matching(self, wanted: Requirement) -> int:
        """Rows whose own requirement for the key can hold together with `wanted`; rows without the key do."""
        mask = self._matching.get(wanted)
        if mask is None:
            mask = self._matching[wanted] = self._match(wanted)
        return mask

    def matching_all(self, requirements: Requirements) -> int:
        mask = self.every
        for one in requirements.values():
            mask &= self.matching(one)
        return mask

    def open_kinds(self, requirements: Requirements) -> tuple[int, ...]:
        """Indices of the offering kinds that nodes with these requirements may be bought as."""
        return tuple(k.index for k in self.kinds if compatible(requirements, k.requirements, self.well_known) is None)

    def offered(self, kinds: Iterable[int]) -> int:
        """Rows that some offering of `kinds` sells."""
        mask = 0
        for index in kinds:
            mask |= self.kinds[index].rows
        return mask

    def capacity(self, resource: str) -> Ladder:
        found = self._capacity.get(resource)
        if found is None:
            found = self._capacity[resource] = Ladder((row.type.capacity.get(resource, 0), i) for i, row in enumerate(self.rows))
        return found

    def attaching(self, volumes: Mapping[str, Collection[str]]) -> int:
        """Rows to which all of `volumes` (CSI driver → claims) can be attached."""
        mask = self.every
        for driver, claims in volumes.items():
            key = driver, len(claims)
            found = self._attaching.get(key)
            if found is None:
                limits = (row.type.attach_limits.get(driver) for row in self.rows)
                found = sum(1 << i for i, limit in enumerate(limits) if limit is None or limit >= len(claims))
                self._attaching[key] = found
            mask &= found
        return mask

    def within(self, remaining: Resources) -> int:
        """Rows whose capacity does not exceed what a pool may still buy. Source: spec/scheduling 3.5."""
        mask = self.every
        for resource, amount in remaining.items():
            mask &= ~self.capacity(resource).more_than(amount)
        return mask

    def by_price(self, kinds: tuple[int, ...]) -> list[tuple[float, int]]:
        """(USD per hour, row) of every row that `kinds` sell, cheapest first, ties by name."""
        found = self._price_order.get(kinds)
        if found is None:
            least: dict[int, float] = {}
            for index in kinds:
                for row, price in self.kinds[index].prices.items():
                    if price < least.get(row, NO_PRICE):
                        least[row] = price
            found = sorted(((price, row) for row, price in least.items()), key=lambda p: (p[0], self.rows[p[1]].type.name, p[1]))
            self._price_order[kinds] = found
        return found

    def cheapest(self, mask: int, kinds: tuple[int, ...]) -> float:
        """USD per hour of the cheapest offering among the rows of `mask`; infinite when there is none."""
        return next((price for price, row in self.by_price(kinds) if mask >> row & 1), NO_PRICE)

    def distinct(self, key: str, mask: int) -> int:
        """How many values of `key` the rows of `mask` list between them."""
        return sum(1 for having in self._by_value.get(key, {}).values() if having & mask)

    def _gather_kinds(self) -> tuple[Kind, ...]:
        kinds: dict[tuple[object, ...], Kind] = {}
        for i, row in enumerate(self.rows):
            for offering in row.offerings:
                identity = tuple(offering.requirements[key].identity for key in sorted(offering.requirements))
                kind = kinds.get(identity)
                if kind is None:
                    kind = kinds[identity] = Kind(offering.requirements, len(kinds))
                kind.add(i, offering)
        return tuple(kinds.values())

    def _gather_labels(self) -> None:
        for i, row in enumerate(self.rows):
            bit = 1 << i
            for key, one in row.type.requirements.items():
                self._defined[key] = self._defined.get(key, 0) | bit
                if one.complement or not one.values:
                    self._special.setdefault(key, []).append((one, bit))
                    continue
                column = self._by_value.setdefault(key, {})
                for value in one.values:
                    column[value] = column.get(value, 0) | bit

    def _match(self, wanted: Requirement) -> int:
        key = wanted.key
        mask = self.every & ~self._defined.get(key, 0)
        column = self._by_value.get(key, {})
        if wanted.complement:
            for value, having in column.items():
                if wanted.has(value):
                    mask |= having
        else:
            for value in wanted.values:
                mask |= column.get(value, 0)
        for one, bit in self._special.get(key, ()):
            if agree(one, wanted):
                mask |= bit
        return mask


def cheapest(kind: InstanceType) -> float:
    """USD per hour of the type's cheapest available offering; infinite when it has none."""
    return min((o.price for o in kind.offerings if o.available), default=NO_PRICE)


def _rows(kind: InstanceType) -> Iterator[Row]:
    """The base row first, then one per distinct override, in the order in which offerings first show it."""
    groups: dict[tuple[object, ...], list[Offering]] = {(): []}
    for offering in kind.offerings:
        if not offering.available:
            continue
        overrides: tuple[object, ...] = ()
        if offering.capacity_override or offering.overhead_override:
            overrides = (
                tuple(sorted((offering.capacity_override or {}).items())),
                tuple(sorted((offering.overhead_override or {}).items())),
            )
        groups.setdefault(overrides, []).append(offering)
    for overrides, offerings in groups.items():
        yield Row(kind, kind.allocatable(offerings[0] if overrides else None), tuple(offerings))


_tables: list[tuple[Sequence[InstanceType], frozenset[str], Columns]] = []
_KEPT = 8


def table(types: Sequence[InstanceType], well_known: frozenset[str]) -> Columns:
    """The columns of `types`; the same object gives the same columns, so pools and passes share them.

    The last few are kept, by identity of `types`: a provider hands out the same tuple while nothing changed.
    """
    for known, labels, columns in _tables:
        if known is types and labels == well_known:
            return columns
    columns = Columns(types, well_known)
    _tables.append((types, well_known, columns))
    del _tables[:-_KEPT]
    return columns
