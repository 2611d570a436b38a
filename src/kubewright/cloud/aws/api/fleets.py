"""Fleets, the machines they buy, and the end of those."""

from datetime import datetime

from kubewright.cloud.aws.api.templates import ReservationSpecification, TagSpecification
from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class TemplateSpecification(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    version: str
    """Always said: without one EC2 refuses the fleet."""


class Override(Aws, frozen=True, kw_only=True):
    """One thing the fleet may buy: a type in a subnet."""

    instance_type: str
    subnet_id: str
    availability_zone: str = ""
    image_id: str = ""
    priority: float | None = None


class TemplateConfig(Aws, frozen=True, kw_only=True):
    launch_template_specification: TemplateSpecification
    overrides: tuple[Override, ...] = ()


class SpotOptions(Aws, frozen=True, kw_only=True):
    allocation_strategy: str


class OnDemandOptions(Aws, frozen=True, kw_only=True):
    allocation_strategy: str


class ReservedOptions(Aws, frozen=True, kw_only=True):
    reservation_types: tuple[str, ...]


class TargetCapacity(Aws, frozen=True, kw_only=True):
    total_target_capacity: int
    default_target_capacity_type: str


class CreateFleet(Aws, frozen=True, kw_only=True):
    type: str
    launch_template_configs: tuple[TemplateConfig, ...]
    target_capacity_specification: TargetCapacity
    spot_options: SpotOptions | None = None
    on_demand_options: OnDemandOptions | None = None
    reserved_capacity_options: ReservedOptions | None = None
    tag_specifications: tuple[TagSpecification, ...] = ()
    client_token: str = ""
    context: str = ""
    dry_run: bool = False


class UsedTemplate(Aws, frozen=True, kw_only=True):
    """EC2 names the template in an answer by id, by name, or both."""

    launch_template_id: str = ""
    launch_template_name: str = ""


class FleetTemplateAndOverrides(Aws, frozen=True, kw_only=True):
    launch_template_specification: UsedTemplate | None = None
    overrides: Override | None = None


class FleetError(Aws, frozen=True, kw_only=True):
    error_code: str
    error_message: str = ""
    lifecycle: str = ""
    launch_template_and_overrides: FleetTemplateAndOverrides = FleetTemplateAndOverrides()


class FleetInstance(Aws, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]
    instance_type: str = ""
    lifecycle: str = ""
    launch_template_and_overrides: FleetTemplateAndOverrides = FleetTemplateAndOverrides()


class FleetAnswer(Aws, frozen=True, kw_only=True):
    fleet_id: str = ""
    instances: tuple[FleetInstance, ...] = ()
    errors: tuple[FleetError, ...] = ()


class InstanceState(Aws, frozen=True, kw_only=True):
    name: str


class Placement(Aws, frozen=True, kw_only=True):
    availability_zone: str = ""
    availability_zone_id: str = ""
    tenancy: str = "default"
    group_id: str = ""
    partition_number: int = 0


class GroupIdentifier(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""


class InstanceInterface(Aws, frozen=True, kw_only=True):
    network_interface_id: str = ""
    interface_type: str = ""


class Ec2Instance(Aws, frozen=True, kw_only=True):
    instance_id: str
    instance_type: str
    image_id: str = ""
    state: InstanceState
    launch_time: datetime | None = None
    placement: Placement = Placement()
    subnet_id: str = ""
    private_dns_name: str = ""
    private_ip_address: str = ""
    architecture: str = ""
    instance_lifecycle: str = ""
    """ "spot", or "" for on-demand."""
    spot_instance_request_id: str = ""
    capacity_reservation_id: str = ""
    capacity_reservation_specification: ReservationSpecification | None = None
    network_interfaces: tuple[InstanceInterface, ...] = ()
    security_groups: tuple[GroupIdentifier, ...] = ()
    tags: tuple[Tag, ...] = ()


class DescribeInstances(PagedRequest, frozen=True, kw_only=True):
    """Ids and `max_results` exclude each other, as in EC2."""

    instance_ids: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()


class Reservation(Aws, frozen=True, kw_only=True):
    instances: tuple[Ec2Instance, ...] = ()


class InstancesPage(Page, frozen=True, kw_only=True):
    reservations: tuple[Reservation, ...] = ()

    @property
    def instances(self) -> tuple[Ec2Instance, ...]:
        return tuple(i for r in self.reservations for i in r.instances)


class TerminateInstances(Aws, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...]
    dry_run: bool = False


class StateChange(Aws, frozen=True, kw_only=True):
    instance_id: str
    current_state: InstanceState
    previous_state: InstanceState


class TerminateAnswer(Aws, frozen=True, kw_only=True):
    terminating_instances: tuple[StateChange, ...] = ()


class CreateTags(Aws, frozen=True, kw_only=True):
    resources: tuple[str, ...]
    tags: tuple[Tag, ...]
    dry_run: bool = False


class RunInstances(Aws, frozen=True, kw_only=True):
    """Only ever as a dry run: it finds faults of a template that CreateFleet tells of too late."""

    launch_template: TemplateSpecification
    instance_type: str
    image_id: str = ""
    subnet_id: str = ""
    min_count: int
    max_count: int
    tag_specifications: tuple[TagSpecification, ...] = ()
    dry_run: bool


class StatusDetail(Aws, frozen=True, kw_only=True):
    name: str = ""
    status: str = ""
    impaired_since: datetime | None = None


class StatusSummary(Aws, frozen=True, kw_only=True):
    status: str = ""
    details: tuple[StatusDetail, ...] = ()


class StatusEvent(Aws, frozen=True, kw_only=True):
    code: str = ""
    description: str = ""
    not_before: datetime | None = None


class InstanceStatus(Aws, frozen=True, kw_only=True):
    instance_id: str
    instance_status: StatusSummary = StatusSummary()
    system_status: StatusSummary = StatusSummary()
    events: tuple[StatusEvent, ...] = ()


class DescribeInstanceStatus(PagedRequest, frozen=True, kw_only=True):
    filters: tuple[Filter, ...] = ()


class InstanceStatusesPage(Page, frozen=True, kw_only=True):
    instance_statuses: tuple[InstanceStatus, ...] = ()
