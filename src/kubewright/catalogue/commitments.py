"""Commitments: reserved instances and savings plans, as "so many machines, or dollars an hour, at this price; then list price".

They are used up by what already runs, the rows in their order, whatever decided to buy it. A machine may be covered by several,
each for a part; the rest of it is paid at the list price, as clouds bill.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kubewright.catalogue.prices import is_about
from kubewright.settings import PriceRow

EXACT = 1e-9
"""Relative; sums of prices are not exact in binary."""


class Terms(NamedTuple):
    """What a commitment makes of one machine."""

    usd: float
    """Its price an hour as far as it is covered, for choosing: 0 where it is paid anyway."""
    amount: float
    """What it uses up of the commitment: machines, or dollars an hour."""


class Bought(NamedTuple):
    """A machine that is paid for by the hour."""

    instance_type: str
    capacity_type: str
    zone: str
    usd: float
    """Its list price an hour."""


class Commitments:
    """What is left of each. `lists` has the list price of a machine of each type, for rows that count in sizes of a family."""

    def __init__(self, rows: Iterable[PriceRow], lists: Mapping[str, float]) -> None:
        self.rows: Sequence[PriceRow] = tuple(row for row in rows if row.is_limited)
        self._lists = lists
        self.left = [
            row.up_to_instances if row.up_to_instances is not None else row.up_to_usd_per_hour or 0.0 for row in self.rows
        ]

    def terms(self, index: int, machine: Bought) -> Terms | None:
        """Of the row for the machine; None if it does not cover such machines, or would make them dearer."""
        row = self.rows[index]
        if row.capacity_type != machine.capacity_type or row.zone not in ("", machine.zone):
            return None
        if not is_about(row, machine.instance_type):
            return None
        sizes = 1.0
        if row.family and row.instance_type and row.instance_type != machine.instance_type:
            counted = self._lists.get(row.instance_type, 0.0)
            if counted <= 0 or machine.usd <= 0:
                return None
            sizes = machine.usd / counted
        usd = row.usd_per_hour * sizes if row.usd_per_hour is not None else machine.usd * (1 - (row.discount or 0.0))
        if usd > machine.usd:
            return None
        amount = usd if row.up_to_usd_per_hour is not None else sizes
        return Terms(0.0 if row.paid_anyway else usd, amount)

    def take(self, machine: Bought) -> float:
        """Use up what covers the machine; what it then costs an hour."""
        uncovered = 1.0
        cost = 0.0
        for index in range(len(self.rows)):
            terms = self.terms(index, machine) if self.left[index] > 0 else None
            if terms is None:
                continue
            share = uncovered if terms.amount <= 0 else min(uncovered, self.left[index] / terms.amount)
            self.left[index] = max(0.0, self.left[index] - share * terms.amount)
            cost += share * terms.usd
            uncovered -= share
            if uncovered <= EXACT:
                return cost
        return cost + uncovered * machine.usd

    def covers(self, index: int, amount: float, beside: float = 0.0) -> bool:
        """Whether the row has so much left; `beside` is held by the asker already."""
        return amount <= (self.left[index] + beside) * (1 + EXACT)


def bill(rows: Iterable[PriceRow], lists: Mapping[str, float], machines: Iterable[Bought]) -> float:
    """USD per hour of all machines together, covered in their order."""
    counted = Commitments(rows, lists)
    return sum(counted.take(machine) for machine in machines)
