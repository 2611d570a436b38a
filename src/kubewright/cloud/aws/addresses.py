"""Free addresses of subnets, those counted that launches under way will take. Source: spec/aws 2.1."""

from collections.abc import Collection, Iterable, Mapping

from kubewright.api.aws import Subnet
from kubewright.cloud.aws import api

Promised = Mapping[str, tuple[int, int]]
"""Subnet → (addresses, which count of EC2's they were promised from)."""


class Addresses:
    """What DescribeSubnets said last, less what was promised since."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._said: dict[str, int] = {}
        """How often each subnet's count was told; a promise of an older count is not taken back."""

    def told(self, subnets: Iterable[api.Subnet]) -> None:
        """A fresh answer of EC2: what was promised before is in it, or will not come."""
        for s in subnets:
            self._free[s.subnet_id] = s.available_ip_address_count
            self._promised.pop(s.subnet_id, None)
            self._said[s.subnet_id] = self._said.get(s.subnet_id, 0) + 1

    def left(self, subnet_id: str) -> int:
        """Free addresses that nobody has been promised; below zero where launches may need more than there are."""
        return self._free.get(subnet_id, 0) - self._promised.get(subnet_id, 0)

    def best(self, subnets: Iterable[Subnet], full: Collection[str] = ()) -> dict[str, str]:
        """Zone → its subnet with most addresses left, without `full` ones; ties keep the order of `subnets`."""
        found: dict[str, str] = {}
        for s in subnets:
            if s.id in full:
                continue
            if s.zone not in found or self.left(s.id) > self.left(found[s.zone]):
                found[s.zone] = s.id
        return found

    def promise(self, wanted: Mapping[str, int]) -> Promised:
        """Count on it that a launch takes so many addresses of each subnet; what is returned takes the promise back."""
        for subnet_id, count in wanted.items():
            self._promised[subnet_id] = self._promised.get(subnet_id, 0) + count
        return {subnet_id: (count, self._said.get(subnet_id, 0)) for subnet_id, count in wanted.items()}

    def take_back(self, promised: Promised, used: str = "") -> None:
        """The launch is decided: only `used` keeps its part."""
        for subnet_id, (count, said) in promised.items():
            if subnet_id != used and self._said.get(subnet_id, 0) == said and subnet_id in self._promised:
                self._promised[subnet_id] -= count

    def empty(self, subnet_id: str) -> None:
        """EC2 said that there is none."""
        self._free[subnet_id] = 0
        self._promised.pop(subnet_id, None)
        self._said[subnet_id] = self._said.get(subnet_id, 0) + 1
