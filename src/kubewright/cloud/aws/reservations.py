"""Capacity reservations: which ones a NodeClass selects, and how much of each is left. Source: spec/aws 2.3, 6.2."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from kubewright.api.aws import CapacityReservation, CapacityReservationSelectorTerm
from kubewright.cloud.aws import api, retry, selectors
from kubewright.cloud.aws.errors import AwsError, is_not_found

CAPACITY_BLOCK = "capacity-block"
EXPIRES_EARLY = timedelta(minutes=40)
"""AWS begins to end a capacity block's machines half an hour before its end."""
_CRITERIA = frozenset({"open", "targeted"})
_TYPES = frozenset({"default", CAPACITY_BLOCK})


class ReservationCounts:
    """How many machines each reservation has room for: EC2's count, less what was launched since."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._told: dict[str, datetime] = {}
        self.version = 0

    def told(self, reservation_id: str, left: int, now: datetime) -> None:
        self._told[reservation_id] = now
        self._set(reservation_id, left)

    def left(self, reservation_id: str) -> int:
        return self._left.get(reservation_id, 0)

    def launched(self, reservation_id: str, now: datetime) -> None:
        """One fewer, unless EC2's count is younger than the launch."""
        if self._told.get(reservation_id, now) <= now:
            self._set(reservation_id, max(0, self.left(reservation_id) - 1))

    def ended(self, reservation_id: str) -> None:
        self._set(reservation_id, self.left(reservation_id) + 1)

    def used_up(self, reservation_id: str, now: datetime) -> None:
        self._told[reservation_id] = now
        self._set(reservation_id, 0)

    def _set(self, reservation_id: str, left: int) -> None:
        if self._left.get(reservation_id) != left:
            self._left[reservation_id] = left
            self.version += 1


async def resolve(
    ec2: api.Ec2Api, terms: Sequence[CapacityReservationSelectorTerm], now: datetime
) -> tuple[api.CapacityReservation, ...]:
    """Active reservations that any term selects, by id. A term that names one which is not there selects nothing.

    Raises:
        AwsError: a look-up failed for another reason.
    """
    found: dict[str, api.CapacityReservation] = {}
    active = api.Filter(name="state", values=("active",))
    for term in terms:
        if term.id:
            request = api.DescribeCapacityReservations(capacity_reservation_ids=(term.id,), filters=(active,))
        else:
            filters = [active]
            if term.owner_id:
                filters.append(api.Filter(name="owner-id", values=(term.owner_id,)))
            if term.instance_match_criteria:
                filters.append(api.Filter(name="instance-match-criteria", values=(term.instance_match_criteria,)))
            filters += selectors.tag_filters(term.tags)
            request = api.DescribeCapacityReservations(filters=tuple(filters), max_results=1000)
        try:
            async for page in retry.pages(ec2.describe_capacity_reservations, request):
                found.update((r.capacity_reservation_id, r) for r in page.capacity_reservations)
        except AwsError as error:
            if not is_not_found(error):
                raise
    return tuple(found[i] for i in sorted(found) if _usable(found[i], now))


def _usable(found: api.CapacityReservation, now: datetime) -> bool:
    if found.end_date is not None and found.end_date <= now:
        return False
    if found.instance_match_criteria in _CRITERIA and (found.reservation_type or "default") in _TYPES:
        return True
    structlog.get_logger("kubewright.aws").warning(
        "a capacity reservation of an unknown kind is not used",
        reservation=found.capacity_reservation_id,
        criteria=found.instance_match_criteria,
        kind=found.reservation_type,
    )
    return False


def described(found: Iterable[api.CapacityReservation], now: datetime) -> tuple[CapacityReservation, ...]:
    """As a NodeClass's status shows them."""
    return tuple(
        CapacityReservation(
            availability_zone=r.availability_zone,
            id=r.capacity_reservation_id,
            instance_match_criteria=r.instance_match_criteria,
            instance_type=r.instance_type,
            owner_id=r.owner_id,
            end_time=r.end_date,
            reservation_type=r.reservation_type or "default",
            interruptible=r.interruptible,
            state="expiring" if is_expiring(r.reservation_type, r.end_date, now) else "active",
        )
        for r in found
    )


def is_expiring(reservation_type: str, end: datetime | None, now: datetime) -> bool:
    return reservation_type == CAPACITY_BLOCK and end is not None and now >= end - EXPIRES_EARLY
