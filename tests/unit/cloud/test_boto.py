"""The boto3 adapter: requests fit AWS's own service models, answer fields exist there, and moto understands a launch."""

import asyncio
import inspect
import typing
from datetime import UTC, datetime

import boto3
import msgspec
import pytest
from botocore.session import get_session
from botocore.stub import Stubber
from botocore.validate import ParamValidator

from kubewright.cloud.aws import api, boto, retry
from kubewright.cloud.aws.errors import AwsError
from kubewright.errors import ConfigError

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


def test_a_session_in_moto_understands_templates_and_fleets():
    """moto is a second opinion on the wire, not on behaviour (it picks the first override whatever it costs)."""
    from moto import mock_aws

    async def tell() -> api.InstancesPage:
        real = boto.BotoApi("us-west-2")
        subnets = [
            s async for page in retry.pages(real.describe_subnets, api.DescribeSubnets(max_results=500)) for s in page.subnets
        ]
        images = await real.describe_images(
            api.DescribeImages(owners=("amazon",), filters=(api.Filter(name="state", values=("available",)),))
        )
        data = api.LaunchTemplateData(
            image_id=images.images[0].image_id, network_interfaces=(api.NetworkInterface(device_index=0),)
        )
        await real.create_launch_template(
            api.CreateLaunchTemplate(launch_template_name="karpenter.k8s.aws/1", launch_template_data=data)
        )
        override = api.Override(instance_type="m5.large", subnet_id=subnets[0].subnet_id)
        config = api.TemplateConfig(
            launch_template_specification=api.TemplateSpecification(launch_template_name="karpenter.k8s.aws/1"),
            overrides=(override,),
        )
        fleet = await real.create_fleet(
            api.CreateFleet(
                type="instant",
                launch_template_configs=(config,),
                target_capacity_specification=api.TargetCapacity(
                    total_target_capacity=1, default_target_capacity_type="on-demand"
                ),
                on_demand_options=api.OnDemandOptions(allocation_strategy="lowest-price"),
                tag_specifications=(
                    api.TagSpecification(resource_type="instance", tags=(api.Tag(key="karpenter.sh/nodeclaim", value="a"),)),
                ),
            )
        )
        found = await real.describe_instances(
            api.DescribeInstances(filters=(api.Filter(name="tag:karpenter.sh/nodeclaim", values=("a",)),))
        )
        assert found.instances[0].instance_id == fleet.instances[0].instance_ids[0]
        await real.terminate_instances(api.TerminateInstances(instance_ids=(found.instances[0].instance_id,)))
        await real.close()
        return found

    with mock_aws():
        page = asyncio.run(tell())
    assert page.instances[0].instance_type == "m5.large"
