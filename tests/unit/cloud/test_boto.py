"""The boto3 adapter: requests fit AWS's own service models, answer fields exist there, and moto understands a launch."""

import asyncio
import contextlib
import inspect
import typing
from datetime import UTC, datetime

import boto3
import msgspec
import pytest
from botocore.session import get_session
from botocore.stub import Stubber
from botocore.validate import ParamValidator
from msgspec.structs import replace

from kubewright.api.aws import EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, SecurityGroup
from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import ObjectMeta
from kubewright.cloud.aws import api, boto, catalogue, errors, profiles, retry, templates
from kubewright.cloud.aws.doctor import examine
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.prices import LINUX
from kubewright.cloud.aws.templates import Making
from kubewright.errors import ConfigError, NotFound
from kubewright.kube.client import MergePatch
from tests.unit.cloud.world import World, story

SERVICES = {
    api.ComputeApi: "ec2",
    api.ParameterApi: "ssm",
    api.PriceApi: "pricing",
    api.ClusterApi: "eks",
    api.QueueApi: "sqs",
    api.IdentityApi: "iam",
    api.ShiftApi: "arc-zonal-shift",
    api.NetworkDiagnosisApi: "ec2",
    api.RoleDiagnosisApi: "iam",
    api.QuotaDiagnosisApi: "service-quotas",
    api.CallerDiagnosisApi: "sts",
}
CALLS = [
    (service, name, call)
    for proto, service in SERVICES.items()
    for name, call in vars(proto).items()
    if inspect.iscoroutinefunction(call)
]
SESSION = get_session()


def model(service: str, name: str):
    wanted = name.replace("_", "").lower()
    found = SESSION.get_service_model(service)
    return next(found.operation_model(o) for o in found.operation_names if o.lower() == wanted)


def full(kind):
    """A value of a request type with every field set."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: full(hints[f.name]) for f in msgspec.structs.fields(kind)})
    arguments = [a for a in typing.get_args(kind) if a is not type(None) and a is not Ellipsis]
    if typing.get_origin(kind) is tuple:
        return (full(arguments[0]),)
    if arguments:
        return full(arguments[0])
    return {str: "x" * 8, int: 5, float: 1.5, bool: True, datetime: datetime(2026, 11, 29, tzinfo=UTC)}[kind]


@pytest.mark.parametrize(("service", "name", "call"), CALLS, ids=[c[1] for c in CALLS])
def test_every_request_fits_the_service_model(service, name, call):
    request = full(typing.get_type_hints(call)["request"])
    report = ParamValidator().validate(boto.to_wire(request), model(service, name).input_shape)
    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize(("service", "name", "call"), CALLS, ids=[c[1] for c in CALLS])
def test_every_answer_field_is_one_that_aws_sends(service, name, call):
    check_fields(typing.get_type_hints(call)["return"], model(service, name).output_shape, name)


def check_fields(kind, shape, where):
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        inner = [a for a in typing.get_args(kind) if a not in (type(None), Ellipsis)]
        if inner:
            check_fields(inner[0], shape.member if shape.type_name == "list" else shape, where)
        return
    if kind is api.Done:
        return
    hints = typing.get_type_hints(kind)
    for f in msgspec.structs.fields(kind):
        if f.encode_name == "NextToken" and f.encode_name not in shape.members:
            continue  # an answer that comes in one page
        assert f.encode_name in shape.members, f"{where}: {kind.__name__}.{f.encode_name}"
        check_fields(hints[f.name], shape.members[f.encode_name], where)


def stubbed(service: str) -> tuple[boto.BotoApi, Stubber]:
    session = boto3.session.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-west-2")
    real = boto.BotoApi("us-west-2", session=session)
    return real, Stubber(real._client(service))


def test_an_error_code_becomes_ours():
    real, stub = stubbed("ec2")
    stub.add_client_error("terminate_instances", "InvalidInstanceID.NotFound", "gone", 400)
    with stub, pytest.raises(AwsError) as found:
        asyncio.run(real.terminate_instances(api.TerminateInstances(instance_ids=("i-1",))))
    assert (found.value.code, found.value.message, found.value.status) == ("InvalidInstanceID.NotFound", "gone", 400)


def test_an_answer_becomes_ours():
    real, stub = stubbed("ec2")
    instance = {
        "InstanceId": "i-1",
        "InstanceType": "m5.large",
        "State": {"Name": "running"},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "AmiLaunchIndex": 0,
    }
    stub.add_response(
        "describe_instances", {"Reservations": [{"Instances": [instance]}], "NextToken": "more"}, {"InstanceIds": ("i-1",)}
    )
    with stub:
        page = asyncio.run(real.describe_instances(api.DescribeInstances(instance_ids=("i-1",))))
    assert page.next_token == "more"
    assert page.instances[0].state.name == "running"
    assert page.instances[0].launch_time == datetime(2026, 1, 1, tzinfo=UTC)


def test_no_answer_is_status_zero():
    session = boto3.session.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-west-2")
    real = boto.BotoApi("us-west-2", session=session, endpoint="http://127.0.0.1:9")
    with pytest.raises(AwsError) as found:
        asyncio.run(real.describe_subnets(api.DescribeSubnets()))
    assert found.value.status == 0


def test_without_a_region_it_says_where_to_set_one(monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(boto, "_own_region", lambda: None)

    class Nowhere:
        region_name = None

    with pytest.raises(ConfigError, match="AWS_REGION"):
        boto.region(Nowhere())


def test_the_environment_names_the_region(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert boto.region() == "eu-north-1"


def test_every_request_that_is_really_made_is_one_that_boto3_sends():
    """With what is left out left out: what AWS wants must be there. A whole life, and a visit of the doctor."""
    made: set[str] = set()

    class Checked:
        def __init__(self, ec2) -> None:
            self._ec2 = ec2

        def __getattr__(self, name):
            do = getattr(self._ec2, name)
            service = BY_NAME.get(name)
            if service is None:
                return do

            async def checked(request):
                report = ParamValidator().validate(boto.to_wire(request), model(service, name).input_shape)
                assert not report.has_errors(), f"{name}: {report.generate_report()}"
                made.add(name)
                return await do(request)

            return checked

    async def tell(world: World):
        world.ec2.account.reserve("m5.xlarge", "us-west-2b", 1, tags={"team": "ml"})
        world.ec2.account.add_placement_group("far", "partition", 2)
        world.ec2 = checked = Checked(world.ec2)
        world.provider = world.restarted(zonal_shift=True)
        tasks = [asyncio.create_task(part.run()) for part in world.provider.background()]
        await asyncio.sleep(120)
        bought = [
            await world.provider.create(await world.claim(f"c{i}", **{"karpenter.sh/capacity-type": [market]}))
            for i, market in enumerate(("spot", "on-demand"))
        ]
        claim = await world.claim(
            "r", **{"karpenter.sh/capacity-type": ["reserved"], "node.kubernetes.io/instance-type": ["m5.xlarge"]}
        )
        bought.append(await world.provider.create(claim))
        await world.provider.list()
        for name, one in zip(("c0", "c1", "r"), bought, strict=True):
            body = {"status": {"providerID": one.provider_id, "nodeName": name}}
            await world.kube.patch(NodeClaim, name, MergePatch(body), subresource="status")
        world.ec2.queue.put("poison")
        await world.provider.rediscover()
        await asyncio.sleep(120)
        await examine(checked, world.kube, world.clock, "sandbox", world.ec2.settings)
        for one in bought:
            await world.provider.delete(one.provider_id)
        for name in ("c0", "c1", "r"):
            with contextlib.suppress(NotFound):
                await world.kube.delete(NodeClaim, name)
        world.store.delete("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default")
        await world.provider.reconcile_node_class("default")
        for task in tasks:
            task.cancel()

    story(
        tell,
        ready=False,
        capacityReservationSelectorTerms=[{"tags": {"team": "ml"}}],
        placementGroupSelector={"name": "far"},
        connectionTracking={"udpTimeout": 30},
        detailedMonitoring=False,
        blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "encrypted": False}}],
    )
    assert set(BY_NAME) - made == set(), "calls that nobody makes"


BY_NAME = {name: service for service, name, _ in CALLS}


@pytest.fixture
def moto():
    """moto is a second opinion on the wire, not on behaviour (it picks the first override whatever it costs).

    It stands where the network would: boto3 makes whole requests and reads whole answers.
    """
    from moto import mock_aws

    with mock_aws():
        yield


def at_moto() -> boto.BotoApi:
    session = boto3.session.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-west-2")
    return boto.BotoApi("us-west-2", session=session)


def test_moto_understands_a_launch_from_its_template_to_its_end(moto):
    async def tell() -> None:
        real = at_moto()
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


def test_moto_understands_types_profiles_queues_parameters_and_clusters(moto):
    async def tell() -> None:
        real = at_moto()
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
        assert (await real.get_caller_identity(api.GetCallerIdentity())).account
        session = real._session
        iam = session.client("iam")
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
        sqs = session.client("sqs")
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
        session.client("ssm").put_parameter(Name="/mine/ami", Value="ami-1", Type="String")
        assert (await real.get_parameter(api.GetParameter(name="/mine/ami"))).parameter.value == "ami-1"
        with pytest.raises(AwsError) as none:
            await real.get_parameter(api.GetParameter(name="/none"))
        assert errors.is_not_found(none.value)
        eks = session.client("eks")
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
