"""The boto3 adapter: requests fit AWS's own service models, answer fields exist there."""

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

from kubewright.api.karpenter import NodeClaim
from kubewright.cloud.aws import api, boto
from kubewright.cloud.aws.doctor import examine
from kubewright.cloud.aws.errors import AwsError
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
