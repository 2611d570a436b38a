"""What EC2 refuses to launch, and with which words: (code, message)."""

from collections.abc import Sequence
from datetime import timedelta

from kubewright.clock import Clock
from kubewright.cloud.aws import api, errors
from kubewright.sim.ec2.account import Account
from kubewright.sim.ec2.instances import Machine
from kubewright.sim.ec2.market import Market

Problem = tuple[str, str]
MOST_IN_SPREAD = 7
"""Machines of a spread placement group in one zone."""


class Refusals:
    """Of one account in one market."""

    def __init__(self, account: Account, market: Market, clock: Clock) -> None:
        self._account = account
        self._market = market
        self._clock = clock

    def of_launch(
        self, data: api.LaunchTemplateData, override: api.Override, market: str, live: Sequence[Machine]
    ) -> Problem | None:
        """Why this cannot be launched now; `live` are the machines that run."""
        kind, account = override.instance_type, self._account
        found = self.of_template(data, override)
        if found is not None:
            return found
        subnet = account.subnets[override.subnet_id]
        zone = subnet.availability_zone
        if (
            self._market.faults.vcpu_quota
            and self._vcpus(market, live) + self._market.vcpus[kind] > self._market.faults.vcpu_quota
        ):
            code = "MaxSpotInstanceCountExceeded" if market == "spot" else "VcpuLimitExceeded"
            return code, "You have requested more vCPU capacity than your current vCPU limit allows"
        if subnet.available_ip_address_count < 1:
            text = f"There are not enough free addresses in subnet '{subnet.subnet_id}' for the requested instances."
            return errors.SUBNET_FULL, text
        reservation = reservation_of(data)
        if reservation:
            return self._reservation_problem(reservation, kind, zone)
        placed = data.placement.group_id if data.placement else ""
        group = account.groups_of_placement.get(placed)
        if group is not None and group.strategy == "spread":
            there = [m for m in live if m.seen.placement.group_id == placed and m.pool[1] == zone]
            if len(there) >= MOST_IN_SPREAD:
                text = "You have reached the limit of instances in this spread placement group"
                return "InsufficientInstanceCapacity", f"{text} in the Availability Zone ({zone})."
        if not self._market.has_capacity((kind, zone, market)):
            text = f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone})."
            return "InsufficientInstanceCapacity", text
        return None

    def of_template(self, data: api.LaunchTemplateData, override: api.Override) -> Problem | None:
        """What is wrong whatever capacity there is."""
        kind, account = override.instance_type, self._account
        subnet = account.subnets.get(override.subnet_id)
        image = account.images.get(override.image_id or data.image_id)
        groups = [g for i in data.network_interfaces for g in i.groups]
        profile = data.iam_instance_profile.name if data.iam_instance_profile else ""
        if subnet is None:
            return "InvalidSubnetID.NotFound", f"The subnet ID '{override.subnet_id}' does not exist"
        zone = subnet.availability_zone
        if override.availability_zone and override.availability_zone != zone:
            return "InvalidParameterCombination", f"The subnet is in {zone}, not in {override.availability_zone}"
        if kind not in self._market.vcpus:
            return "InvalidParameterValue", f"Invalid value '{kind}' for InstanceType."
        if image is None:
            return "InvalidAMIID.NotFound", f"The image id '[{override.image_id or data.image_id}]' does not exist"
        missing = [g for g in groups if g not in account.groups]
        if missing:
            return "InvalidGroup.NotFound", f"The security group '{missing[0]}' does not exist"
        if any(account.groups[g].vpc_id != subnet.vpc_id for g in groups):
            return "InvalidParameter", "Security group and subnet belong to different networks."
        if profile and not self._knows_profile(profile):
            text = f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
            return "InvalidParameterValue", text
        if data.placement and data.placement.group_id and data.placement.group_id not in account.groups_of_placement:
            return "InvalidPlacementGroup.Unknown", f"The Placement Group '{data.placement.group_id}' is unknown."
        if zone not in self._market.offered.zones_of(kind) or kind not in self._market.on_demand:
            text = f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({zone})."
            return "Unsupported", text
        if image.architecture not in self._market.architectures[kind]:
            text = f"The architecture '{image.architecture}' of the specified image is not one of the instance type's ({kind})"
            return "InvalidParameterValue", text
        return None

    def _knows_profile(self, name: str) -> bool:
        found = self._account.profiles.get(name)
        if found is None:
            return False
        lag = timedelta(seconds=self._market.faults.profile_lag_s)
        return found.create_date is None or found.create_date + lag <= self._clock.now()

    def _reservation_problem(self, reservation_id: str, kind: str, zone: str) -> Problem | None:
        found = self._account.reservations.get(reservation_id)
        if found is None or found.state != "active" or (found.end_date is not None and found.end_date <= self._clock.now()):
            return "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{reservation_id}' does not exist"
        if (found.instance_type, found.availability_zone) != (kind, zone):
            return "InvalidParameterValue", f"The capacity reservation '{reservation_id}' is not for {kind} in {zone}"
        if found.available_instance_count < 1:
            text = f"The capacity reservation '{reservation_id}' does not have sufficient capacity for the requested instances."
            return "ReservationCapacityExceeded", text
        return None

    def _vcpus(self, market: str, live: Sequence[Machine]) -> int:
        return sum(self._market.vcpus[m.pool[0]] for m in live if m.pool[2] == market)


def reservation_of(data: api.LaunchTemplateData) -> str:
    wanted = data.capacity_reservation_specification
    target = wanted.capacity_reservation_target if wanted is not None else None
    return target.capacity_reservation_id if target is not None else ""
