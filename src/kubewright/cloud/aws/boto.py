"""The page of calls on boto3, in a bounded thread pool. Converts names and errors, decides nothing.

boto3 is the extra `kubewright[aws]` and is imported when the first `BotoApi` is made. Its own retries are off: `retry` repeats.
"""

import asyncio
import functools
import importlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kubewright.cloud.aws import api
from kubewright.cloud.aws.errors import AwsError
from kubewright.errors import ConfigError

T = TypeVar("T")

THREADS = 10
CONNECT_S, READ_S = 10, 60
PRICING_REGIONS = {"ap": "ap-south-1", "cn": "cn-northwest-1", "eu": "eu-central-1"}
"""Pricing is served in few regions; elsewhere us-east-1. Source: spec/aws 6.3."""


def load() -> Any:
    """boto3. Raises ConfigError: it is not installed."""
    try:
        return importlib.import_module("boto3")  # half a second and 30 MB, only for those who need it
    except ImportError as error:
        raise ConfigError("AWS needs boto3, which is not installed: pip install 'kubewright[aws]'") from error


def region(session: Any = None) -> str:
    """The region of the environment, of the configuration, or of the EC2 machine this runs on.

    Raises:
        ConfigError: none of them names one, or boto3 is missing.
    """
    found = os.environ.get("AWS_REGION") or (session or load().session.Session()).region_name or _own_region()
    if not found:
        raise ConfigError("no AWS region: set AWS_REGION, or region in ~/.aws/config")
    return str(found)


def _own_region() -> str | None:
    """From the instance metadata service, asked once for a second; None where there is none."""
    fetcher = importlib.import_module("botocore.utils").InstanceMetadataRegionFetcher(timeout=1, num_attempts=1)
    found: str | None = fetcher.retrieve_region()
    return found


def to_wire(request: msgspec.Struct) -> dict[str, Any]:
    """The keyword arguments of the boto3 call; moments stay moments."""
    found: dict[str, Any] = msgspec.to_builtins(request, builtin_types=(datetime,))
    return found


def from_wire(answer: Mapping[str, Any], kind: type[T]) -> T:
    """The fields of `kind` from boto3's answer; the rest is dropped."""
    return msgspec.convert(answer, kind, strict=False)


class BotoApi:
    """`api.Ec2Api` against AWS. `endpoint` is for tests: every service is then asked there."""

    def __init__(self, region: str, *, session: Any = None, endpoint: str | None = None) -> None:
        boto3 = load()
        config, exceptions = importlib.import_module("botocore.config"), importlib.import_module("botocore.exceptions")
        unreadable = importlib.import_module("botocore.parsers").ResponseParserError  # no BotoCoreError: the page of a proxy

        self._session = session or boto3.session.Session(region_name=region)
        self.region = region
        self._endpoint = endpoint
        self._config = config.Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            max_pool_connections=THREADS,
            retries={"mode": "standard", "total_max_attempts": 1},
            user_agent_extra="kubewright",
        )
        self._client_error = exceptions.ClientError
        self._other_errors = (exceptions.BotoCoreError, exceptions.HTTPClientError, unreadable)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="aws")
        self._clients: dict[str, Any] = {}

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            region = self.region
            if service == "pricing":
                region = PRICING_REGIONS.get(region.partition("-")[0], "us-east-1")
            self._clients[service] = self._session.client(
                service, region_name=region, config=self._config, endpoint_url=self._endpoint
            )
        return self._clients[service]

    async def _call(self, service: str, operation: str, request: msgspec.Struct, kind: type[T]) -> T:
        """Raises AwsError: AWS said no, or did not answer, or not in a way that can be read (status 0)."""
        client = self._client(service)  # made here: boto3's session is not safe to use from several threads
        do = functools.partial(getattr(client, operation), **to_wire(request))
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, do)
        except self._client_error as error:
            response = error.response
            told, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            raise AwsError(operation, told.get("Code", "Unknown"), told.get("Message", str(error)), status) from error
        except self._other_errors as error:
            raise AwsError(operation, type(error).__name__, str(error), 0) from error
        return from_wire(answer, kind)

    async def describe_instance_types(self, request: api.DescribeInstanceTypes) -> api.InstanceTypesPage:
        return await self._call("ec2", "describe_instance_types", request, api.InstanceTypesPage)

    async def describe_instance_type_offerings(self, request: api.DescribeInstanceTypeOfferings) -> api.TypeOfferingsPage:
        return await self._call("ec2", "describe_instance_type_offerings", request, api.TypeOfferingsPage)

    async def describe_subnets(self, request: api.DescribeSubnets) -> api.SubnetsPage:
        return await self._call("ec2", "describe_subnets", request, api.SubnetsPage)

    async def describe_security_groups(self, request: api.DescribeSecurityGroups) -> api.SecurityGroupsPage:
        return await self._call("ec2", "describe_security_groups", request, api.SecurityGroupsPage)

    async def describe_images(self, request: api.DescribeImages) -> api.ImagesPage:
        return await self._call("ec2", "describe_images", request, api.ImagesPage)

    async def create_launch_template(self, request: api.CreateLaunchTemplate) -> api.LaunchTemplateAnswer:
        return await self._call("ec2", "create_launch_template", request, api.LaunchTemplateAnswer)

    async def describe_launch_templates(self, request: api.DescribeLaunchTemplates) -> api.LaunchTemplatesPage:
        return await self._call("ec2", "describe_launch_templates", request, api.LaunchTemplatesPage)

    async def delete_launch_template(self, request: api.DeleteLaunchTemplate) -> api.Done:
        return await self._call("ec2", "delete_launch_template", request, api.Done)

    async def create_fleet(self, request: api.CreateFleet) -> api.FleetAnswer:
        return await self._call("ec2", "create_fleet", request, api.FleetAnswer)

    async def describe_instances(self, request: api.DescribeInstances) -> api.InstancesPage:
        return await self._call("ec2", "describe_instances", request, api.InstancesPage)

    async def terminate_instances(self, request: api.TerminateInstances) -> api.TerminateAnswer:
        return await self._call("ec2", "terminate_instances", request, api.TerminateAnswer)

    async def create_tags(self, request: api.CreateTags) -> api.Done:
        return await self._call("ec2", "create_tags", request, api.Done)

    async def describe_spot_price_history(self, request: api.DescribeSpotPriceHistory) -> api.SpotPricesPage:
        return await self._call("ec2", "describe_spot_price_history", request, api.SpotPricesPage)

    async def get_parameter(self, request: api.GetParameter) -> api.ParameterAnswer:
        return await self._call("ssm", "get_parameter", request, api.ParameterAnswer)

    async def get_products(self, request: api.GetProducts) -> api.ProductsPage:
        return await self._call("pricing", "get_products", request, api.ProductsPage)

    async def describe_cluster(self, request: api.DescribeCluster) -> api.ClusterAnswer:
        return await self._call("eks", "describe_cluster", request, api.ClusterAnswer)

    async def get_queue_url(self, request: api.GetQueueUrl) -> api.QueueUrlAnswer:
        return await self._call("sqs", "get_queue_url", request, api.QueueUrlAnswer)

    async def receive_message(self, request: api.ReceiveMessage) -> api.MessagesAnswer:
        return await self._call("sqs", "receive_message", request, api.MessagesAnswer)

    async def delete_message(self, request: api.DeleteMessage) -> api.Done:
        return await self._call("sqs", "delete_message", request, api.Done)

    async def get_instance_profile(self, request: api.GetInstanceProfile) -> api.InstanceProfileAnswer:
        return await self._call("iam", "get_instance_profile", request, api.InstanceProfileAnswer)

    async def create_instance_profile(self, request: api.CreateInstanceProfile) -> api.InstanceProfileAnswer:
        return await self._call("iam", "create_instance_profile", request, api.InstanceProfileAnswer)

    async def add_role_to_instance_profile(self, request: api.ProfileRole) -> api.Done:
        return await self._call("iam", "add_role_to_instance_profile", request, api.Done)

    async def remove_role_from_instance_profile(self, request: api.ProfileRole) -> api.Done:
        return await self._call("iam", "remove_role_from_instance_profile", request, api.Done)

    async def delete_instance_profile(self, request: api.DeleteInstanceProfile) -> api.Done:
        return await self._call("iam", "delete_instance_profile", request, api.Done)

    async def run_instances(self, request: api.RunInstances) -> api.Done:
        return await self._call("ec2", "run_instances", request, api.Done)

    async def describe_instance_status(self, request: api.DescribeInstanceStatus) -> api.InstanceStatusesPage:
        return await self._call("ec2", "describe_instance_status", request, api.InstanceStatusesPage)

    async def describe_capacity_reservations(self, request: api.DescribeCapacityReservations) -> api.CapacityReservationsPage:
        return await self._call("ec2", "describe_capacity_reservations", request, api.CapacityReservationsPage)

    async def describe_placement_groups(self, request: api.DescribePlacementGroups) -> api.PlacementGroupsAnswer:
        return await self._call("ec2", "describe_placement_groups", request, api.PlacementGroupsAnswer)

    async def describe_route_tables(self, request: api.DescribeRouteTables) -> api.RouteTablesPage:
        return await self._call("ec2", "describe_route_tables", request, api.RouteTablesPage)

    async def describe_vpc_endpoints(self, request: api.DescribeVpcEndpoints) -> api.VpcEndpointsPage:
        return await self._call("ec2", "describe_vpc_endpoints", request, api.VpcEndpointsPage)

    async def list_instance_profiles(self, request: api.ListInstanceProfiles) -> api.InstanceProfilesPage:
        return await self._call("iam", "list_instance_profiles", request, api.InstanceProfilesPage)

    async def get_role(self, request: api.GetRole) -> api.RoleAnswer:
        return await self._call("iam", "get_role", request, api.RoleAnswer)

    async def list_attached_role_policies(self, request: api.ListAttachedRolePolicies) -> api.AttachedPoliciesAnswer:
        return await self._call("iam", "list_attached_role_policies", request, api.AttachedPoliciesAnswer)

    async def get_managed_resource(self, request: api.GetManagedResource) -> api.ManagedResourceAnswer:
        return await self._call("arc-zonal-shift", "get_managed_resource", request, api.ManagedResourceAnswer)

    async def get_service_quota(self, request: api.GetServiceQuota) -> api.ServiceQuotaAnswer:
        return await self._call("service-quotas", "get_service_quota", request, api.ServiceQuotaAnswer)

    async def get_caller_identity(self, request: api.GetCallerIdentity) -> api.CallerIdentity:
        return await self._call("sts", "get_caller_identity", request, api.CallerIdentity)

    async def close(self) -> None:
        """Wait for no call; threads end with what they are doing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()


def _check(real: BotoApi) -> api.DoctorApi:
    """For mypy: the adapter is the whole page."""
    return real
