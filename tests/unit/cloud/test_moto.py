"""moto's server as a second opinion on the wire: the adapter's real clients send real requests to it over a loopback socket.

An opinion on shapes, not on behaviour (it picks the first override whatever it costs). Every call of the adapter stands in one
of three sets: one of the two stories makes it, or moto does not know it, and the day it does a test here says so.
"""

import asyncio
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import boto3
import pytest
from moto.server import ThreadedMotoServer
from msgspec.structs import replace

from kubewright.api.aws import EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, SecurityGroup
from kubewright.api.meta import ObjectMeta
from kubewright.cloud.aws import api, boto, catalogue, errors, profiles, retry, templates
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.prices import LINUX
from kubewright.cloud.aws.templates import Making
from tests.unit.cloud.test_boto import CALLS

LAUNCH = {
    "create_fleet",
    "create_launch_template",
    "create_tags",
    "delete_launch_template",
    "describe_images",
    "describe_instance_status",
    "describe_instances",
    "describe_launch_templates",
    "describe_route_tables",
    "describe_security_groups",
    "describe_subnets",
    "describe_vpc_endpoints",
    "run_instances",
    "terminate_instances",
}
REST = {
    "add_role_to_instance_profile",
    "create_instance_profile",
    "delete_instance_profile",
    "delete_message",
    "describe_cluster",
    "describe_instance_type_offerings",
    "describe_instance_types",
    "describe_spot_price_history",
    "get_caller_identity",
    "get_instance_profile",
    "get_parameter",
    "get_queue_url",
    "get_role",
    "get_service_quota",
    "list_attached_role_policies",
    "list_instance_profiles",
    "receive_message",
    "remove_role_from_instance_profile",
}
UNKNOWN_TO_MOTO = {
    "describe_capacity_reservations": api.DescribeCapacityReservations(),
    "describe_placement_groups": api.DescribePlacementGroups(),
    "get_managed_resource": api.GetManagedResource(resource_identifier="arn:aws:eks:us-west-2:123456789012:cluster/c"),
    "get_products": api.GetProducts(service_code="AmazonEC2", filters=()),
}
BY_OPERATION = {name.replace("_", ""): name for _, name, _ in CALLS}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of one server for each process of tests, at a free port."""
    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


class Moto:
    """An empty account at the server, and the calls it answered: with data, or with a refusal of its own."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.answered: set[str] = set()
        self._clients: list = []
        self.session = boto3.session.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-west-2")
        self.session.events.register("response-received", self._answered)  # before the first client, which copies these

    def _answered(self, event_name: str, response_dict=None, parsed_response=None, **_: object) -> None:
        operation = event_name.rpartition(".")[2].lower()
        if parsed_response is not None and response_dict["status_code"] < 500 and operation in BY_OPERATION:
            assert response_dict["headers"]["server"].startswith("Werkzeug"), "moto's server, and nothing else, answers"
            self.answered.add(BY_OPERATION[operation])

    def adapter(self) -> boto.BotoApi:
        return boto.BotoApi("us-west-2", session=self.session, endpoint=self.server)

    def client(self, service: str):
        """For what the adapter never does: making queues and roles."""
        self._clients.append(self.session.client(service, endpoint_url=self.server))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def moto(server, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST")) as answer:
        assert answer.status == 200
    told = Moto(server)
    yield told
    told.close()


def test_every_call_is_told_to_moto_or_known_to_be_missing_there():
    assert LAUNCH | REST | UNKNOWN_TO_MOTO.keys() == set(BY_OPERATION.values())
    assert len(LAUNCH) + len(REST) + len(UNKNOWN_TO_MOTO) == len(BY_OPERATION)


@pytest.mark.parametrize("name", sorted(UNKNOWN_TO_MOTO))
def test_what_moto_does_not_know_fails_as_a_broken_server_does(moto, name):
    """Whatever page it sends: EC2's parser cannot read this one, and that too is a failure to be tried again."""

    async def tell() -> None:
        real = moto.adapter()
        with pytest.raises(AwsError) as found:
            await getattr(real, name)(UNKNOWN_TO_MOTO[name])
        assert errors.is_unsure(found.value), found.value
        await real.close()

    asyncio.run(tell())
    assert moto.answered == set()


def test_moto_understands_a_launch_from_its_template_to_its_end(moto):
    async def tell() -> None:
        real = moto.adapter()
        pages = retry.pages(real.describe_subnets, api.DescribeSubnets(max_results=500))
        subnets = [s async for page in pages for s in page.subnets]
        assert subnets[0].availability_zone_id
        (group,) = (
            await real.describe_security_groups(
                api.DescribeSecurityGroups(filters=(api.Filter(name="group-name", values=("default",)),))
            )
        ).security_groups
        images = await real.describe_images(
            api.DescribeImages(
                owners=("amazon",), include_deprecated=True, filters=(api.Filter(name="state", values=("available",)),)
            )
        )
        making = Making(image_id=images.images[0].image_id, pods=29, capacity_type="on-demand")
        spec = EC2NodeClassSpec(ami_family="AL2023", detailed_monitoring=True)
        status = EC2NodeClassStatus(security_groups=(SecurityGroup(id=group.group_id),))
        data = templates.data(EC2NodeClass(spec=spec, status=status), making, user_data="eA==", found={"a": "b"}, reserves=False)
        data = replace(data, iam_instance_profile=None)
        marks = (api.Tag(key="eks:eks-cluster-name", value="c"), api.Tag(key="karpenter.sh/nodepool", value="p"))
        mine = (api.Filter(name="tag:eks:eks-cluster-name", values=("c",)),)
        name = "karpenter.k8s.aws/1"
        make = api.CreateLaunchTemplate(
            launch_template_name=name,
            launch_template_data=data,
            client_token="t",
            tag_specifications=(api.TagSpecification(resource_type="launch-template", tags=marks),),
        )
        await real.create_launch_template(make)
        with pytest.raises(AwsError) as again:
            await real.create_launch_template(make)
        assert again.value.code == errors.TEMPLATE_EXISTS
        (there,) = (await real.describe_launch_templates(api.DescribeLaunchTemplates(filters=mine))).launch_templates
        assert there.launch_template_name == name
        override = api.Override(instance_type="m5.large", subnet_id=subnets[0].subnet_id, priority=0.1)
        specification = api.TemplateSpecification(launch_template_name=name, version="$Latest")
        ask = api.CreateFleet(
            type="instant",
            launch_template_configs=(api.TemplateConfig(launch_template_specification=specification, overrides=(override,)),),
            target_capacity_specification=api.TargetCapacity(total_target_capacity=3, default_target_capacity_type="on-demand"),
            on_demand_options=api.OnDemandOptions(allocation_strategy="prioritized"),
            tag_specifications=(api.TagSpecification(resource_type="instance", tags=marks),),
            context="ctx",
        )
        with pytest.raises(AwsError) as dry:
            await real.create_fleet(replace(ask, dry_run=True))
        assert dry.value.code == "DryRunOperation"
        run = api.RunInstances(launch_template=specification, instance_type="m5.large", min_count=1, max_count=1, dry_run=True)
        with pytest.raises(AwsError) as dry:
            await real.run_instances(run)
        assert dry.value.code == "DryRunOperation"
        fleet = await real.create_fleet(ask)
        ids = tuple(i for each in fleet.instances for i in each.instance_ids)
        assert len(ids) == 3
        by_id = (api.Filter(name="instance-id", values=ids),)
        found = (await real.describe_instances(api.DescribeInstances(filters=by_id))).instances
        assert {i.instance_id for i in found} == set(ids)
        assert found[0].launch_time.tzinfo is not None
        assert {t.key for t in found[0].tags} >= {"eks:eks-cluster-name", "karpenter.sh/nodepool"}
        await real.create_tags(api.CreateTags(resources=ids[:1], tags=(api.Tag(key="Name", value="n"),)))
        statuses = await real.describe_instance_status(api.DescribeInstanceStatus())
        assert {s.instance_id for s in statuses.instance_statuses} >= set(ids)
        ended = await real.terminate_instances(api.TerminateInstances(instance_ids=ids))
        assert {c.current_state.name for c in ended.terminating_instances} == {"shutting-down"}
        with pytest.raises(AwsError) as unknown:
            await real.terminate_instances(api.TerminateInstances(instance_ids=("i-0123456789abcdef0",)))
        assert unknown.value.code == "InvalidInstanceID.NotFound"
        assert "i-0123456789abcdef0" in unknown.value.message, "the id is read from the text"
        await real.delete_launch_template(api.DeleteLaunchTemplate(launch_template_name=name))
        tables = await real.describe_route_tables(
            api.DescribeRouteTables(filters=(api.Filter(name="vpc-id", values=(subnets[0].vpc_id,)),))
        )
        assert tables.route_tables[0].associations[0].main
        await real.describe_vpc_endpoints(api.DescribeVpcEndpoints())
        await real.close()

    asyncio.run(tell())
    assert moto.answered == LAUNCH


def test_moto_understands_types_profiles_queues_parameters_and_clusters(moto):
    async def tell() -> None:
        real = moto.adapter()
        (large,) = (await real.describe_instance_types(api.DescribeInstanceTypes(instance_types=("m5.large",)))).instance_types
        assert (large.vcpus, large.memory_mib) == (2, 8192)
        assert large == next(t for t in catalogue.embedded().types if t.instance_type == "m5.large")
        here = api.DescribeInstanceTypeOfferings(
            location_type="availability-zone", filters=(api.Filter(name="instance-type", values=("m5.large",)),)
        )
        rows = (await real.describe_instance_type_offerings(here)).instance_type_offerings
        assert {r.location[:-1] for r in rows} == {"us-west-2"}
        prices = api.DescribeSpotPriceHistory(
            start_time=datetime(2026, 1, 1, tzinfo=UTC), product_descriptions=LINUX, instance_types=("m5.large",)
        )
        assert (await real.describe_spot_price_history(prices)).spot_price_history
        # moto knows the quotas of one service
        peers = await real.get_service_quota(api.GetServiceQuota(service_code="vpc", quota_code="L-7E9ECCDB"))
        assert peers.quota.value == 50
        assert (await real.get_caller_identity(api.GetCallerIdentity())).account
        iam = moto.client("iam")
        iam.create_role(RoleName="nodes", AssumeRolePolicyDocument="{}")
        assert (await real.get_role(api.GetRole(role_name="nodes"))).role.role_name == "nodes"
        attached = await real.list_attached_role_policies(api.ListAttachedRolePolicies(role_name="nodes"))
        assert attached.attached_policies == ()
        node_class = EC2NodeClass(metadata=ObjectMeta(name="default", uid="u"), spec=EC2NodeClassSpec(role="nodes"))
        missing, now = profiles.MissingRoles(), datetime(2026, 1, 1, tzinfo=UTC)
        for _ in range(2):
            name = await profiles.ensure(real, "c", "us-west-2", node_class, missing, now)
        held = (await real.get_instance_profile(api.GetInstanceProfile(instance_profile_name=name))).instance_profile
        assert [r.role_name for r in held.roles] == ["nodes"]
        assert [p.instance_profile_name for p in await profiles.under(real, "/karpenter/us-west-2/c/")] == [name]
        absent = replace(node_class, spec=EC2NodeClassSpec(role="nobody"))
        with pytest.raises(profiles.RoleMissing):
            await profiles.ensure(real, "c", "us-west-2", absent, missing, now)
        await profiles.remove_all(real, "c", "us-west-2", node_class)
        assert await profiles.under(real, "/karpenter/") == []
        sqs = moto.client("sqs")
        sqs.create_queue(QueueName="q")
        url = (await real.get_queue_url(api.GetQueueUrl(queue_name="q"))).queue_url
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        look = api.ReceiveMessage(queue_url=url, max_number_of_messages=1, visibility_timeout=0)
        assert [len((await real.receive_message(look)).messages) for _ in range(2)] == [1, 1], "seen, and not hidden"
        (message,) = (await real.receive_message(replace(look, visibility_timeout=20))).messages
        assert message.body == "hello"
        await real.delete_message(api.DeleteMessage(queue_url=url, receipt_handle=message.receipt_handle))
        with pytest.raises(AwsError) as none:
            await real.get_queue_url(api.GetQueueUrl(queue_name="none"))
        assert errors.is_not_found(none.value)
        moto.client("ssm").put_parameter(Name="/mine/ami", Value="ami-1", Type="String")
        assert (await real.get_parameter(api.GetParameter(name="/mine/ami"))).parameter.value == "ami-1"
        with pytest.raises(AwsError) as none:
            await real.get_parameter(api.GetParameter(name="/none"))
        assert errors.is_not_found(none.value)
        eks = moto.client("eks")
        arn = "arn:aws:iam::123456789012:role/c"
        eks.create_cluster(name="c", roleArn=arn, resourcesVpcConfig={"subnetIds": ["subnet-1"]}, version="1.30")
        cluster = (await real.describe_cluster(api.DescribeCluster(name="c"))).cluster
        assert (cluster.version, cluster.arn.rpartition("/")[2]) == ("1.30", "c")
        assert cluster.kubernetes_network_config.service_ipv4_cidr
        with pytest.raises(AwsError) as none:
            await real.describe_cluster(api.DescribeCluster(name="none"))
        assert none.value.code == "ResourceNotFoundException"
        await real.close()

    asyncio.run(tell())
    assert moto.answered == REST
