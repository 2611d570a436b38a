"""What was out of capacity lately: offerings, whole capacity types, subnets; each for three minutes.

Source: spec/aws 6.4, 6.5.
"""

from datetime import datetime, timedelta

from kubewright.api import labels

TTL = timedelta(minutes=3)
"""Source: spec/aws 6.4."""

_ANY = ""


class UnavailableOfferings:
    """Marks with an end. A mark that is set again lasts longer."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str, str], tuple[datetime, str]] = {}
        """(capacity type, instance type, zone) → until, why."""
        self._subnets: dict[str, datetime] = {}
        self._version = 0

    def mark(self, capacity_type: str, instance_type: str, zone: str, why: str, now: datetime) -> None:
        self._marks[capacity_type, instance_type, zone] = (now + TTL, why)
        self._version += 1

    def mark_spot(self, why: str, now: datetime) -> None:
        """The account cannot buy spot at all."""
        self.mark(labels.SPOT, _ANY, _ANY, why, now)

    def mark_subnet(self, subnet_id: str, now: datetime) -> None:
        """The subnet has no free address; a zone is out only when all its subnets are."""
        self._subnets[subnet_id] = now + TTL
        self._version += 1

    def because(self, capacity_type: str, instance_type: str, zone: str) -> str:
        """Why the offering is out, "" if it is not. Call `version` first: it is what lets marks end."""
        mark = self._marks.get((capacity_type, instance_type, zone)) or self._marks.get((capacity_type, _ANY, _ANY))
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
