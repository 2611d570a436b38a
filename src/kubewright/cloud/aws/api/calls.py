"""The calls, by AWS service."""

from typing import Protocol

from kubewright.cloud.aws.api.diagnosis import (
    AttachedPoliciesAnswer,
    CallerIdentity,
    DescribeRouteTables,
    DescribeVpcEndpoints,
    GetCallerIdentity,
    GetRole,
    GetServiceQuota,
    ListAttachedRolePolicies,
    RoleAnswer,
    RouteTablesPage,
    ServiceQuotaAnswer,
    VpcEndpointsPage,
)
from kubewright.cloud.aws.api.fleets import (
    CreateFleet,
    CreateTags,
    DescribeInstances,
    DescribeInstanceStatus,
    FleetAnswer,
    InstancesPage,
    InstanceStatusesPage,
    RunInstances,
    TerminateAnswer,
    TerminateInstances,
)
from kubewright.cloud.aws.api.network import (
    DescribeImages,
    DescribeSecurityGroups,
    DescribeSubnets,
    GetParameter,
    ImagesPage,
    ParameterAnswer,
    SecurityGroupsPage,
    SubnetsPage,
)
from kubewright.cloud.aws.api.prices import DescribeSpotPriceHistory, GetProducts, ProductsPage, SpotPricesPage
from kubewright.cloud.aws.api.reservations import (
    CapacityReservationsPage,
    DescribeCapacityReservations,
    DescribePlacementGroups,
    PlacementGroupsAnswer,
)
from kubewright.cloud.aws.api.services import (
    ClusterAnswer,
    CreateInstanceProfile,
    DeleteInstanceProfile,
    DeleteMessage,
    DescribeCluster,
    GetInstanceProfile,
    GetManagedResource,
    GetQueueUrl,
    InstanceProfileAnswer,
    InstanceProfilesPage,
    ListInstanceProfiles,
    ManagedResourceAnswer,
    MessagesAnswer,
    ProfileRole,
    QueueUrlAnswer,
    ReceiveMessage,
)
from kubewright.cloud.aws.api.templates import (
    CreateLaunchTemplate,
    DeleteLaunchTemplate,
    DescribeLaunchTemplates,
    LaunchTemplateAnswer,
    LaunchTemplatesPage,
)
from kubewright.cloud.aws.api.types import (
    DescribeInstanceTypeOfferings,
    DescribeInstanceTypes,
    InstanceTypesPage,
    TypeOfferingsPage,
)
from kubewright.cloud.aws.api.wire import Done


class ComputeApi(Protocol):
    """EC2."""

    async def describe_instance_types(self, request: DescribeInstanceTypes) -> InstanceTypesPage:
        """Shapes of what can be bought; every 12 h and for `catalogue refresh`."""
        ...

    async def describe_instance_type_offerings(self, request: DescribeInstanceTypeOfferings) -> TypeOfferingsPage:
        """Which zone sells which type."""
        ...

    async def describe_subnets(self, request: DescribeSubnets) -> SubnetsPage:
        """Where nodes may stand, and how many addresses are left there."""
        ...

    async def describe_security_groups(self, request: DescribeSecurityGroups) -> SecurityGroupsPage:
        """What nodes' network interfaces are put in."""
        ...

    async def describe_images(self, request: DescribeImages) -> ImagesPage:
        """Architecture, age and deprecation of the AMIs that a NodeClass selects."""
        ...

    async def create_launch_template(self, request: CreateLaunchTemplate) -> LaunchTemplateAnswer:
        """CreateFleet launches from templates only; it holds user data, security groups, disks and profile."""
        ...

    async def describe_launch_templates(self, request: DescribeLaunchTemplates) -> LaunchTemplatesPage:
        """Find templates of an earlier run, by name before creating and by tag for clean-up."""
        ...

    async def delete_launch_template(self, request: DeleteLaunchTemplate) -> Done:
        """An account holds 5,000 templates at most; ours go soon after their last use and with their NodeClass."""
        ...

    async def create_fleet(self, request: CreateFleet) -> FleetAnswer:
        """Buys the machine: an instant fleet picks among types and subnets by EC2's own knowledge of its pools."""
        ...

    async def describe_instances(self, request: DescribeInstances) -> InstancesPage:
        """What we own and in which state; also how a launch is found again after a crash."""
        ...

    async def terminate_instances(self, request: TerminateInstances) -> TerminateAnswer:
        """Ends machines; one unknown id fails the whole call."""
        ...

    async def run_instances(self, request: RunInstances) -> Done:
        """A dry run that tells of a NodeClass's faults before a NodeClaim meets them."""
        ...

    async def describe_instance_status(self, request: DescribeInstanceStatus) -> InstanceStatusesPage:
        """Which machines EC2 has found impaired or has plans with."""
        ...

    async def describe_capacity_reservations(self, request: DescribeCapacityReservations) -> CapacityReservationsPage:
        """What is paid for already, and how much of it is free."""
        ...

    async def describe_placement_groups(self, request: DescribePlacementGroups) -> PlacementGroupsAnswer:
        """Strategy and partitions of the group that a NodeClass launches into."""
        ...

    async def create_tags(self, request: CreateTags) -> Done:
        """Puts the node's name on its machine once it is known."""
        ...

    async def describe_spot_price_history(self, request: DescribeSpotPriceHistory) -> SpotPricesPage:
        """Spot prices per type and zone now."""
        ...


class ParameterApi(Protocol):
    """Systems Manager."""

    async def get_parameter(self, request: GetParameter) -> ParameterAnswer:
        """AWS publishes the ids of its EKS images as parameters."""
        ...


class PriceApi(Protocol):
    """The price list."""

    async def get_products(self, request: GetProducts) -> ProductsPage:
        """On-demand list prices; for `catalogue refresh` and the 12 h update."""
        ...


class ClusterApi(Protocol):
    """EKS."""

    async def describe_cluster(self, request: DescribeCluster) -> ClusterAnswer:
        """Endpoint, CA, version and service CIDR, which nodes need to join."""
        ...


class QueueApi(Protocol):
    """SQS."""

    async def get_queue_url(self, request: GetQueueUrl) -> QueueUrlAnswer:
        """The interruption queue is configured by name."""
        ...

    async def receive_message(self, request: ReceiveMessage) -> MessagesAnswer:
        """Interruption notices, by long poll."""
        ...

    async def delete_message(self, request: DeleteMessage) -> Done:
        """A handled notice must not come again."""
        ...


class IdentityApi(Protocol):
    """IAM instance profiles, for NodeClasses that name a role instead of a profile."""

    async def get_instance_profile(self, request: GetInstanceProfile) -> InstanceProfileAnswer:
        """Whether ours is there and which role it holds."""
        ...

    async def create_instance_profile(self, request: CreateInstanceProfile) -> InstanceProfileAnswer:
        """EC2 takes a profile, users name a role."""
        ...

    async def add_role_to_instance_profile(self, request: ProfileRole) -> Done:
        """A profile holds one role."""
        ...

    async def remove_role_from_instance_profile(self, request: ProfileRole) -> Done:
        """A profile with a role cannot be deleted."""
        ...

    async def delete_instance_profile(self, request: DeleteInstanceProfile) -> Done:
        """Goes with its NodeClass."""
        ...

    async def list_instance_profiles(self, request: ListInstanceProfiles) -> InstanceProfilesPage:
        """Profiles of roles and NodeClasses that are no more."""
        ...


class ShiftApi(Protocol):
    """ARC zonal shift."""

    async def get_managed_resource(self, request: GetManagedResource) -> ManagedResourceAnswer:
        """Which zones the cluster is shifted away from."""
        ...


class NetworkDiagnosisApi(Protocol):
    """EC2, for `aws doctor` only."""

    async def describe_route_tables(self, request: DescribeRouteTables) -> RouteTablesPage:
        """Whether nodes in a subnet reach the API server, the registry and S3."""
        ...

    async def describe_vpc_endpoints(self, request: DescribeVpcEndpoints) -> VpcEndpointsPage:
        """The ways out of a subnet without a way out, and whom they let through."""
        ...


class RoleDiagnosisApi(Protocol):
    """IAM, for `aws doctor` only."""

    async def get_role(self, request: GetRole) -> RoleAnswer:
        """Whether the node role is there."""
        ...

    async def list_attached_role_policies(self, request: ListAttachedRolePolicies) -> AttachedPoliciesAnswer:
        """Whether it may do what a node must."""
        ...


class QuotaDiagnosisApi(Protocol):
    """Service Quotas, for `aws doctor` only."""

    async def get_service_quota(self, request: GetServiceQuota) -> ServiceQuotaAnswer:
        """How many vCPUs the account may run."""
        ...


class CallerDiagnosisApi(Protocol):
    """STS, for `aws doctor` only."""

    async def get_caller_identity(self, request: GetCallerIdentity) -> CallerIdentity:
        """Who asks."""
        ...


class Ec2Api(ComputeApi, ParameterApi, PriceApi, ClusterApi, QueueApi, IdentityApi, ShiftApi, Protocol):
    """The whole page."""

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...


class DoctorApi(Ec2Api, NetworkDiagnosisApi, RoleDiagnosisApi, QuotaDiagnosisApi, CallerDiagnosisApi, Protocol):
    """What `aws doctor` asks besides."""
