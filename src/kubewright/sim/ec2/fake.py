"""The front door of the fake EC2: every call waits, may be throttled or fail before or after its effect, and is counted."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from kubewright.clock import Clock
from kubewright.cloud.aws import api, catalogue
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.sim import joiner
from kubewright.sim.ec2 import boot
from kubewright.sim.ec2.account import Account
from kubewright.sim.ec2.faults import Faults, chance
from kubewright.sim.ec2.instances import Bill, Machine
from kubewright.sim.ec2.machines import Machines
from kubewright.sim.ec2.market import Market
from kubewright.sim.ec2.queue import Queue
from kubewright.sim.ec2.surroundings import Surroundings

A = TypeVar("A")

WriteHook = Callable[[str, str], None]
"""Called with the operation and "before" or "after" its effect; what it raises leaves the call."""


class FakeEc2:
    """`cloud.aws.api.Ec2Api` in memory, deterministic by `seed`, in the time of the running loop.

    It sells `known` (the embedded catalogue) in the first `zones` zones of `region`, and holds one cluster with its subnets,
    security group, images and interruption queue, tagged `karpenter.sh/discovery: <cluster>`.
    """

    def __init__(
        self,
        clock: Clock,
        seed: int = 0,
        faults: Faults | None = None,
        *,
        region: str = "us-west-2",
        cluster: str = "sandbox",
        zones: int = 3,
        version: str = "1.36",
        queue: str = "sandbox",
        known: catalogue.Catalogue | None = None,
    ) -> None:
        self.region = region
        self._clock = clock
        self._seed = seed
        self._faults = faults or Faults()
        self._known = known or catalogue.embedded()
        self._infos = {t.instance_type: t for t in self._known.types}
        self.market = Market(self._known, region, seed, self._faults)
        self.account = Account(region, cluster, self.market.offered, zones, version, self._faults.subnet_addresses)
        self.around = Surroundings(self.account)
        self.queue = Queue(queue, region, clock)
        self.machines = Machines(self.account, self.market, self.queue, clock, seed)
        self.calls: dict[str, int] = {}
        """Operation → how often it was called, refused calls too."""
        self.on_write: WriteHook | None = None
        self.on_call: Callable[[str], None] | None = None
        """Hears every operation when its call arrives, reads too; what it raises leaves the call."""
        self._buckets: dict[str, tuple[float, float]] = {}
        self._scripted: dict[tuple[str, str], list[AwsError]] = {}
        self._down: dict[str, AwsError] = {}

    # --- what a test or a sandbox turns -------------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = self.market.faults = faults

    @property
    def settings(self) -> AwsSettings:
        """What a provider on this fake is configured with."""
        return AwsSettings(region=self.region, interruption_queue=self.queue.name)

    def on_running(self, tell: Callable[[joiner.Machine], None]) -> None:
        """Hears every machine that reaches running, ready to join; fits `Joiner.running`."""
        self.machines.on_running.append(lambda m: tell(self._boots(m)))

    def on_terminated(self, tell: Callable[[str], None]) -> None:
        """Hears the provider id of every machine that is terminated; fits `Joiner.terminated`."""
        self.machines.on_terminated.append(lambda m: tell(self._boots(m).provider_id))

    def _boots(self, machine: Machine) -> joiner.Machine:
        return boot.machine(machine, self._infos, self.region, self._known.branch_interfaces, self._faults.memory_kept)

    def running(self) -> tuple[api.Ec2Instance, ...]:
        """Pending and running machines, oldest first."""
        return tuple(m.seen for m in self.machines.all.values() if m.is_live)

    def interrupt(self, instance_id: str) -> None:
        """Send an interruption notice; the machine ends two minutes later."""
        self.machines.interrupt(instance_id)

    def exhaust(self, instance_type: str = "*", zone: str = "*", capacity_type: str = "*") -> None:
        """Pools run out until `restock`; `*` is every one."""
        self.market.exhaust(instance_type, zone, capacity_type)

    def restock(self) -> None:
        self.market.restock()

    def fail_next(self, operation: str, code: str, message: str = "scripted", *, after: bool = False, status: int = 400) -> None:
        """The next call of `operation` fails, `after` its effect or before it."""
        self._scripted.setdefault((operation, "after" if after else "before"), []).append(
            AwsError(operation, code, message, status)
        )

    def break_down(self, *operations: str, code: str = "ServiceUnavailable", status: int = 503) -> None:
        """The operations fail, until `mend`."""
        for operation in operations:
            self._down[operation] = AwsError(operation, code, "The service is unavailable.", status)

    def mend(self) -> None:
        self._down.clear()

    def impair(self, instance_id: str, what: str = "instance", since: datetime | None = None) -> None:
        """A status check fails from now on; `what` is "instance" or "system"."""
        self.machines.all[instance_id].impaired[what] = since or self._clock.now()

    def plan(self, instance_id: str, code: str) -> None:
        """EC2 schedules an event for the machine."""
        self.machines.all[instance_id].events.append(code)

    def costs(self) -> tuple[Bill, ...]:
        """What every machine has cost so far."""
        return self.machines.bills()

    def usd_per_hour(self) -> float:
        """What everything that runs costs now."""
        return sum(b.usd_per_hour for b in self.costs() if b.end is None)

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def describe_instance_types(self, request: api.DescribeInstanceTypes) -> api.InstanceTypesPage:
        return await self._read("DescribeInstanceTypes", lambda: self._types(request))

    async def describe_instance_type_offerings(self, request: api.DescribeInstanceTypeOfferings) -> api.TypeOfferingsPage:
        return await self._read("DescribeInstanceTypeOfferings", lambda: self._offerings(request))

    async def describe_subnets(self, request: api.DescribeSubnets) -> api.SubnetsPage:
        return await self._read("DescribeSubnets", lambda: self.account.describe_subnets(request))

    async def describe_security_groups(self, request: api.DescribeSecurityGroups) -> api.SecurityGroupsPage:
        return await self._read("DescribeSecurityGroups", lambda: self.account.describe_security_groups(request))

    async def describe_images(self, request: api.DescribeImages) -> api.ImagesPage:
        return await self._read("DescribeImages", lambda: self.account.describe_images(request))

    async def create_launch_template(self, request: api.CreateLaunchTemplate) -> api.LaunchTemplateAnswer:
        return await self._write("CreateLaunchTemplate", lambda: self.account.create_launch_template(request, self._clock.now()))

    async def describe_launch_templates(self, request: api.DescribeLaunchTemplates) -> api.LaunchTemplatesPage:
        return await self._read("DescribeLaunchTemplates", lambda: self.account.describe_launch_templates(request))

    async def delete_launch_template(self, request: api.DeleteLaunchTemplate) -> api.Done:
        return await self._write("DeleteLaunchTemplate", lambda: self.account.delete_launch_template(request))

    async def create_fleet(self, request: api.CreateFleet) -> api.FleetAnswer:
        return await self._write("CreateFleet", lambda: self.machines.create_fleet(request))

    async def describe_instances(self, request: api.DescribeInstances) -> api.InstancesPage:
        return await self._read("DescribeInstances", lambda: self.machines.describe(request))

    async def terminate_instances(self, request: api.TerminateInstances) -> api.TerminateAnswer:
        return await self._write("TerminateInstances", lambda: self.machines.terminate(request))

    async def create_tags(self, request: api.CreateTags) -> api.Done:
        return await self._write("CreateTags", lambda: self.machines.create_tags(request))

    async def describe_spot_price_history(self, request: api.DescribeSpotPriceHistory) -> api.SpotPricesPage:
        return await self._read("DescribeSpotPriceHistory", lambda: self._spot_prices(request))

    async def get_parameter(self, request: api.GetParameter) -> api.ParameterAnswer:
        return await self._read("GetParameter", lambda: self.account.get_parameter(request))

    async def get_products(self, request: api.GetProducts) -> api.ProductsPage:
        return await self._read("GetProducts", lambda: self._products(request))

    async def describe_cluster(self, request: api.DescribeCluster) -> api.ClusterAnswer:
        return await self._read("DescribeCluster", lambda: self.account.describe_cluster(request))

    async def get_queue_url(self, request: api.GetQueueUrl) -> api.QueueUrlAnswer:
        return await self._read("GetQueueUrl", lambda: self.queue.get_url(request))

    async def receive_message(self, request: api.ReceiveMessage) -> api.MessagesAnswer:
        await self._read("ReceiveMessage", lambda: None)
        return await self.queue.receive(request)

    async def delete_message(self, request: api.DeleteMessage) -> api.Done:
        return await self._write("DeleteMessage", lambda: self.queue.delete(request))

    async def get_instance_profile(self, request: api.GetInstanceProfile) -> api.InstanceProfileAnswer:
        return await self._read("GetInstanceProfile", lambda: self.account.get_instance_profile(request))

    async def create_instance_profile(self, request: api.CreateInstanceProfile) -> api.InstanceProfileAnswer:
        return await self._write(
            "CreateInstanceProfile", lambda: self.account.create_instance_profile(request, self._clock.now())
        )

    async def add_role_to_instance_profile(self, request: api.ProfileRole) -> api.Done:
        return await self._write("AddRoleToInstanceProfile", lambda: self.account.add_role(request))

    async def remove_role_from_instance_profile(self, request: api.ProfileRole) -> api.Done:
        return await self._write("RemoveRoleFromInstanceProfile", lambda: self.account.remove_role(request))

    async def delete_instance_profile(self, request: api.DeleteInstanceProfile) -> api.Done:
        return await self._write("DeleteInstanceProfile", lambda: self.account.delete_instance_profile(request))

    async def list_instance_profiles(self, request: api.ListInstanceProfiles) -> api.InstanceProfilesPage:
        return await self._read("ListInstanceProfiles", lambda: self.account.list_instance_profiles(request))

    async def run_instances(self, request: api.RunInstances) -> api.Done:
        return await self._read("RunInstances", lambda: self.machines.run_instances(request))

    async def describe_instance_status(self, request: api.DescribeInstanceStatus) -> api.InstanceStatusesPage:
        return await self._read("DescribeInstanceStatus", lambda: self.machines.describe_status(request))

    async def describe_capacity_reservations(self, request: api.DescribeCapacityReservations) -> api.CapacityReservationsPage:
        return await self._read("DescribeCapacityReservations", lambda: self.account.describe_capacity_reservations(request))

    async def describe_placement_groups(self, request: api.DescribePlacementGroups) -> api.PlacementGroupsAnswer:
        return await self._read("DescribePlacementGroups", lambda: self.account.describe_placement_groups(request))

    async def get_managed_resource(self, request: api.GetManagedResource) -> api.ManagedResourceAnswer:
        return await self._read("GetManagedResource", lambda: self.account.get_managed_resource(request, self._clock.now()))

    async def describe_route_tables(self, request: api.DescribeRouteTables) -> api.RouteTablesPage:
        return await self._read("DescribeRouteTables", lambda: self.around.describe_route_tables(request))

    async def describe_vpc_endpoints(self, request: api.DescribeVpcEndpoints) -> api.VpcEndpointsPage:
        return await self._read("DescribeVpcEndpoints", lambda: self.around.describe_vpc_endpoints(request))

    async def get_role(self, request: api.GetRole) -> api.RoleAnswer:
        return await self._read("GetRole", lambda: self.around.get_role(request))

    async def list_attached_role_policies(self, request: api.ListAttachedRolePolicies) -> api.AttachedPoliciesAnswer:
        return await self._read("ListAttachedRolePolicies", lambda: self.around.list_attached_role_policies(request))

    async def get_service_quota(self, request: api.GetServiceQuota) -> api.ServiceQuotaAnswer:
        return await self._read("GetServiceQuota", lambda: self.around.get_service_quota(request))

    async def get_caller_identity(self, request: api.GetCallerIdentity) -> api.CallerIdentity:
        del request
        return await self._read("GetCallerIdentity", self.around.get_caller_identity)

    async def close(self) -> None:
        """The fake outlives its clients; `stop` ends it."""

    def stop(self) -> None:
        """No timer fires any more."""
        self.machines.close()

    # --- how calls go -------------------------------------------------------------------------------------------------

    async def _read(self, operation: str, do: Callable[[], A]) -> A:
        await self._enter(operation)
        answer = do()
        self._lose(operation)
        return answer

    async def _write(self, operation: str, do: Callable[[], A]) -> A:
        await self._enter(operation)
        if self.on_write is not None:
            self.on_write(operation, "before")
        answer = do()
        if self.on_write is not None:
            self.on_write(operation, "after")
        self._lose(operation)
        return answer

    async def _enter(self, operation: str) -> None:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if self.on_call is not None:
            self.on_call(operation)
        await asyncio.sleep(self._faults.call_s)
        if operation in self._down:
            raise self._down[operation]
        if self._is_throttled(operation):
            raise AwsError(operation, "RequestLimitExceeded", "Request limit exceeded.", 503)
        self._raise_scripted(operation, "before")
        if self._faults.fail_before and self._draw(operation, "before") < self._faults.fail_before:
            raise AwsError(operation, "InternalError", "An internal error has occurred", 500)

    def _lose(self, operation: str) -> None:
        self._raise_scripted(operation, "after")
        if self._faults.fail_after and self._draw(operation, "after") < self._faults.fail_after:
            raise AwsError(operation, "RequestTimeout", "the answer was lost", 0)

    def _draw(self, operation: str, when: str) -> float:
        return chance(self._seed, operation, when, self.calls[operation])

    def _raise_scripted(self, operation: str, when: str) -> None:
        waiting = self._scripted.get((operation, when))
        if waiting:
            raise waiting.pop(0)

    def _is_throttled(self, operation: str) -> bool:
        """A token bucket for each operation, as EC2 has."""
        rate = self._faults.calls_per_s
        if rate <= 0:
            return False
        now = self._clock.now().timestamp()
        tokens, since = self._buckets.get(operation, (float(self._faults.calls_burst), now))
        tokens = min(float(self._faults.calls_burst), tokens + (now - since) * rate)
        # A refused call takes nothing out, as in EC2.
        self._buckets[operation] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens < 1

    # --- what is sold -------------------------------------------------------------------------------------------------

    def _types(self, request: api.DescribeInstanceTypes) -> api.InstanceTypesPage:
        unknown = sorted(n for n in request.instance_types if n not in self.market.offered.sold)
        if unknown:
            text = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
            raise AwsError("DescribeInstanceTypes", "InvalidInstanceType", text)
        if request.max_results > 100:
            text = f"Value ( {request.max_results} ) for parameter maxResults is invalid. Expecting a value of at most 100."
            raise AwsError("DescribeInstanceTypes", "InvalidParameterValue", text)
        names = request.instance_types or tuple(self.market.offered.sold)
        found = [self._infos[n] for n in names if n in self._infos]
        page, more = _page(found, request)
        return api.InstanceTypesPage(instance_types=tuple(page), next_token=more)

    def _offerings(self, request: api.DescribeInstanceTypeOfferings) -> api.TypeOfferingsPage:
        if request.location_type != "availability-zone":
            text = f"location type {request.location_type} is not answered here"
            raise AwsError("DescribeInstanceTypeOfferings", "InvalidParameterValue", text)
        rows = [
            api.TypeOffering(instance_type=name, location=zone)
            for name in self.market.offered.sold
            for zone in self.market.offered.zones_of(name)
        ]
        page, more = _page(rows, request)
        return api.TypeOfferingsPage(instance_type_offerings=tuple(page), next_token=more)

    def _spot_prices(self, request: api.DescribeSpotPriceHistory) -> api.SpotPricesPage:
        now: datetime = self._clock.now()
        if not request.product_descriptions or any("Linux" not in d for d in request.product_descriptions):
            text = "prices of other systems than Linux are not answered here; name product descriptions"
            raise AwsError("DescribeSpotPriceHistory", "InvalidParameterValue", text)
        rows = [
            api.SpotPrice(instance_type=kind, availability_zone=zone, spot_price=f"{price:.6f}", timestamp=now)
            for (kind, zone), price in self.market.spot(now).items()
            if (not request.instance_types or kind in request.instance_types)
            and "spot" in self._infos[kind].supported_usage_classes
        ]
        page, more = _page(rows, request)
        return api.SpotPricesPage(spot_price_history=tuple(page), next_token=more)

    def _products(self, request: api.GetProducts) -> api.ProductsPage:
        wanted = {f.field: f.value for f in request.filters}
        is_metal = "bare metal" in wanted.get("productFamily", "")
        rows = [
            json.dumps(_product(name, price))
            for name, price in self.market.on_demand.items()
            if wanted.get("regionCode") == self.region and ("metal" in name) == is_metal
        ]
        page, more = _page(rows, request)
        return api.ProductsPage(price_list=tuple(page), next_token=more)


R = TypeVar("R")


def _page(rows: list[R], request: api.PagedRequest) -> tuple[list[R], str]:
    start, size = int(request.next_token or 0), request.max_results or len(rows) or 1
    return rows[start : start + size], str(start + size) if start + size < len(rows) else ""


def _product(name: str, price: float) -> dict[str, object]:
    """As the price list writes it, cut to what is read."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": {"instanceType": name}},
        "terms": {"OnDemand": {f"{name}.JRTCKXETXF": {"priceDimensions": {f"{name}.6YS6EN2CT7": dimension}}}},
    }


def _check(fake: FakeEc2) -> api.DoctorApi:
    """For mypy: the fake is the whole page."""
    return fake
