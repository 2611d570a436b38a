"""What was out of capacity lately: offerings, whole capacity types, subnets; each for three minutes.

Source: spec/aws 6.4, 6.5.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from kubewright.api import labels

TTL = timedelta(minutes=3)
"""Source: spec/aws 6.4."""

_ANY = ""


class UnavailableOfferings:
    """Marks with an end. A mark that is set again lasts longer."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str, str, str], tuple[datetime, str]] = {}
        """(capacity type, instance type, zone, placement group) → until, why."""
        self._subnets: dict[str, datetime] = {}
        self._shifted: dict[str, str] = {}
        """Zone id → why."""
        self._zone_ids: dict[str, str] = {}
        self._version = 0

    def mark(self, capacity_type: str, instance_type: str, zone: str, why: str, now: datetime, group: str = "") -> None:
        """`group`: only for launches into this placement group."""
        self._marks[capacity_type, instance_type, zone, group] = (now + TTL, why)
        self._version += 1

    def mark_spot(self, why: str, now: datetime) -> None:
        """The account cannot buy spot at all."""
        self.mark(labels.SPOT, _ANY, _ANY, why, now)

    def mark_subnet(self, subnet_id: str, now: datetime) -> None:
        """The subnet has no free address; a zone is out only when all its subnets are."""
        self._subnets[subnet_id] = now + TTL
        self._version += 1

    def shift(self, zones: Mapping[str, str]) -> None:
        """The zones (ids) that traffic is shifted away from now, with the reason; replaces those of before."""
        if zones != self._shifted:
            self._shifted = dict(zones)
            self._version += 1

    def know(self, zone_ids: Mapping[str, str]) -> None:
        """Zone name → id."""
        new = {zone: i for zone, i in zone_ids.items() if i and self._zone_ids.get(zone) != i}
        if new:
            self._zone_ids.update(new)
            self._version += bool(self._shifted)

    def zone_id(self, zone: str) -> str:
        return self._zone_ids.get(zone, "")

    def names_of(self, zone_id: str) -> list[str]:
        """The zone's names in this account, as far as they are known."""
        return sorted(zone for zone, i in self._zone_ids.items() if i == zone_id)

    def shifted(self, zone: str) -> str:
        """Why the zone is shifted away from, "" if it is not."""
        return self._shifted.get(self._zone_ids.get(zone, zone), "")

    def because(self, capacity_type: str, instance_type: str, zone: str, group: str = "") -> str:
        """Why the offering is out, "" if it is not. Call `version` first: it is what lets marks end."""
        shifted = self.shifted(zone)
        if shifted:
            return shifted
        mark = (
            self._marks.get((capacity_type, instance_type, zone, _ANY))
            or self._marks.get((capacity_type, _ANY, _ANY, _ANY))
            or (self._marks.get((capacity_type, instance_type, zone, group)) if group else None)
        )
        return f"{mark[1]} until {mark[0]:%H:%M:%S}" if mark else ""

    def subnet_is_full(self, subnet_id: str) -> bool:
        return subnet_id in self._subnets

    def version(self, now: datetime) -> int:
        """A number that changes with every mark that comes or ends; drops what has ended by `now`."""
        before = len(self._marks) + len(self._subnets)
        self._marks = {key: mark for key, mark in self._marks.items() if mark[0] > now}
        self._subnets = {subnet: until for subnet, until in self._subnets.items() if until > now}
        if len(self._marks) + len(self._subnets) != before:
            self._version += 1
        return self._version
