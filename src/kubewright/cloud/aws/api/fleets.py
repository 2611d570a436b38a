"""Fleets, the machines they buy, and the end of those."""

from datetime import datetime

from kubewright.cloud.aws.api.templates import TagSpecification
from kubewright.cloud.aws.api.wire import Aws, Filter, Page, PagedRequest, Tag


class TemplateSpecification(Aws, frozen=True, kw_only=True):
    launch_template_name: str
    version: str = "$Latest"


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


class TargetCapacity(Aws, frozen=True, kw_only=True):
    total_target_capacity: int
    default_target_capacity_type: str


class CreateFleet(Aws, frozen=True, kw_only=True):
    type: str
    launch_template_configs: tuple[TemplateConfig, ...]
    target_capacity_specification: TargetCapacity
    spot_options: SpotOptions | None = None
    on_demand_options: OnDemandOptions | None = None
    tag_specifications: tuple[TagSpecification, ...] = ()
    client_token: str = ""
    context: str = ""


class FleetTemplateAndOverrides(Aws, frozen=True, kw_only=True):
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
    tenancy: str = "default"


class GroupIdentifier(Aws, frozen=True, kw_only=True):
    group_id: str
    group_name: str = ""


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


class StateChange(Aws, frozen=True, kw_only=True):
    instance_id: str
    current_state: InstanceState
    previous_state: InstanceState


class TerminateAnswer(Aws, frozen=True, kw_only=True):
    terminating_instances: tuple[StateChange, ...] = ()


class CreateTags(Aws, frozen=True, kw_only=True):
    resources: tuple[str, ...]
    tags: tuple[Tag, ...]
