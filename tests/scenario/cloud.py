"""The fake EC2 as stories turn it, and the machines that join from it."""

import functools
from typing import Any

from msgspec.structs import replace

from kubewright.clock import Clock
from kubewright.cloud.aws import catalogue
from kubewright.cloud.aws.provider import AwsProvider
from kubewright.kube.client import KubeClient
from kubewright.settings import Settings
from kubewright.sim.ec2 import FakeEc2, Faults
from kubewright.sim.faults import Gate
from kubewright.sim.joiner import Joiner

CALM = Faults(spot_prices_move=False)
FAMILIES = ("m5", "m6i", "m7g")


@functools.cache
def small_catalogue() -> catalogue.Catalogue:
    """A few families are enough for stories, and thousands of runs would read the rest for nothing."""
    whole = catalogue.embedded()
    types = tuple(t for t in whole.types if t.instance_type.partition(".")[0] in FAMILIES)
    names = {t.instance_type for t in types}
    regions = {name: replace(r, sold={k: v for k, v in r.sold.items() if k in names}) for name, r in whole.regions.items()}
    prices = {region: {k: v for k, v in listed.items() if k in names} for region, listed in whole.on_demand.items()}
    return replace(whole, types=types, regions=regions, on_demand=prices)


class Cloud:
    """One region with one account; outlives operators."""

    def __init__(
        self,
        clock: Clock,
        client: KubeClient,
        *,
        died: Any,
        seed: int = 0,
        faults: Faults = CALM,
        every_call: bool = False,
        zonal_shift: bool = False,
    ) -> None:
        self._clock = clock
        self.ec2 = FakeEc2(clock, seed, faults, known=small_catalogue())
        self._every_call = every_call
        """Reads of the cloud pass the operator's gate, too."""
        self._zonal_shift = zonal_shift
        self.joins = True
        """Whether machines that start from now on become Nodes."""
        self._joiner = Joiner(client, clock, seed=seed, died=died, never_joins=lambda _: not self.joins)
        self.ec2.on_running(self._joiner.running)
        self.ec2.on_terminated(self._joiner.terminated)

    async def run(self) -> None:
        try:
            await self._joiner.run()
        finally:
            self.ec2.stop()

    def provider(self, client: KubeClient, gate: Gate, settings: Settings) -> AwsProvider:
        """For one life of an operator: its writes to the cloud pass its gate."""

        def pass_by(operation: str, when: str) -> None:
            (gate.before if when == "before" else gate.after)(operation, "EC2", "")

        self.ec2.on_write = pass_by
        if self._every_call:
            self.ec2.on_call = lambda operation: gate.before(operation, "AWS call", "")
        aws = replace(self.ec2.settings, zonal_shift=self._zonal_shift)
        return AwsProvider(self.ec2, client, self._clock, settings, aws, small_catalogue())

    def alive(self) -> set[str]:
        """providerIDs of machines that nobody has ended."""
        return {self._provider_id(i) for i in self.ec2.running()}

    def sold(self) -> int:
        """Machines ever bought."""
        return len(self.ec2.costs())

    def zones(self) -> list[str]:
        return sorted({s.availability_zone for s in self.ec2.account.subnets.values()})

    def sell_out(self, instance_type: str, zone: str = "*") -> None:
        self.ec2.exhaust(instance_type, zone)

    def lose(self, provider_id: str) -> None:
        """The machine ends, and not by us."""
        self.ec2.machines.end(provider_id.rpartition("/")[2])

    def call_back(self, provider_id: str) -> None:
        """A spot interruption notice."""
        self.ec2.interrupt(provider_id.rpartition("/")[2])

    @staticmethod
    def _provider_id(instance: Any) -> str:
        return f"aws:///{instance.placement.availability_zone}/{instance.instance_id}"
