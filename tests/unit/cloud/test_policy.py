"""The printed IAM policy allows every call that the provider makes, with the tags it makes it with, and nothing wider."""

import fnmatch
import json
from typing import Any

import pytest
from click.testing import CliRunner

from kubewright.cli.main import cli
from kubewright.cloud.aws import api, policy
from tests.unit.cloud.world import World, story

SCOPE = policy.Scope(
    cluster="sandbox",
    region="us-west-2",
    account="111122223333",
    node_role="KarpenterNodeRole-sandbox",
    queue="sandbox",
    zonal_shift=True,
)
DOCUMENT = policy.document(SCOPE)
FREE = {
    *(f"ec2:{name}" for name in policy.READS),
    *("ssm:GetParameter", "pricing:GetProducts", "eks:DescribeCluster", "iam:ListInstanceProfiles", "iam:GetInstanceProfile"),
    *("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage", "arc-zonal-shift:GetManagedResource"),
}
"""Read only, or on one named resource. Source: spec/aws 13."""
SCOPED = {
    *("ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateTags", "ec2:TerminateInstances"),
    *("ec2:DeleteLaunchTemplate", "iam:PassRole", "iam:CreateInstanceProfile", "iam:TagInstanceProfile"),
    *("iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"),
}
OURS = {
    "kubernetes.io/cluster/sandbox": "owned",
    "eks:eks-cluster-name": "sandbox",
    "karpenter.sh/nodepool": "general",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}


def allows(action: str, resource: str, context: dict[str, Any]) -> bool:
    """What IAM says, as far as these statements go."""
    for s in DOCUMENT["Statement"]:
        if action not in s["Action"] or not any(fnmatch.fnmatchcase(resource, r) for r in s["Resource"]):
            continue
        if all(_holds(op, key, want, context) for op, keys in s.get("Condition", {}).items() for key, want in keys.items()):
            return True
    return False


def _holds(op: str, key: str, want: Any, context: dict[str, Any]) -> bool:
    wanted, found = (want if isinstance(want, list) else [want]), context.get(key)
    if op == "ForAllValues:StringEquals":
        return all(v in wanted for v in found or ())
    if op == "StringEqualsIfExists" and found is None:
        return True
    if op == "StringLike":
        return found is not None and any(fnmatch.fnmatchcase(found, w) for w in wanted)
    return found in wanted


def tagged(found: dict[str, str], where: str = "RequestTag") -> dict[str, Any]:
    return {f"aws:{where}/{key}": value for key, value in found.items()}


def arn(kind: str) -> str:
    return f"arn:aws:ec2:us-west-2:111122223333:{kind}/x"


def test_actions_are_the_references_and_every_write_has_a_condition():
    actions = {a for s in DOCUMENT["Statement"] for a in s["Action"]}
    assert actions == FREE | SCOPED
    assert not any("*" in a for a in actions)
    for s in DOCUMENT["Statement"]:
        if set(s["Action"]) & SCOPED and s["Sid"] != "UseWhatLaunchesNeed":
            assert s["Condition"], s["Sid"]
        if set(s["Action"]) & SCOPED:
            assert "*" not in s["Resource"]
    use = next(s for s in DOCUMENT["Statement"] if s["Sid"] == "UseWhatLaunchesNeed")
    assert not any(kind in r for r in use["Resource"] for kind in ("instance/", "launch-template/", "volume/", "fleet/"))


def test_everything_that_a_launch_sends_is_allowed():
    requests: list[tuple[str, Any]] = []

    async def tell(world: World):
        for name in ("create_fleet", "create_launch_template"):
            real = getattr(world.ec2, name)

            def heard(request, real=real, name=name):
                requests.append((name, request))
                return real(request)

            setattr(world.ec2, name, heard)
        world.provider = world.restarted()
        await world.provider.reconcile_node_class("default")
        await world.provider.create(await world.claim(**{"karpenter.sh/capacity-type": ["spot"]}))
        marks = [api.tags_of(t.tags) for t, _ in world.ec2.account.templates.values()]
        assert all(allows("ec2:DeleteLaunchTemplate", arn("launch-template"), tagged(m, "ResourceTag")) for m in marks)
        assert all(allows("ec2:CreateFleet", arn("launch-template"), tagged(m, "ResourceTag")) for m in marks)
        (machine,) = world.ec2.running()
        found = tagged(api.tags_of(machine.tags), "ResourceTag")
        assert allows("ec2:TerminateInstances", arn("instance"), found)
        names = {"aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
        assert allows("ec2:CreateTags", arn("instance"), {**found, **names})
        assert not allows("ec2:CreateTags", arn("instance"), {**found, "aws:TagKeys": ["kubernetes.io/cluster/other"]})
        (profile,) = world.ec2.account.profiles.values()
        made, there = tagged(api.tags_of(profile.tags)), tagged(api.tags_of(profile.tags), "ResourceTag")
        where = "arn:aws:iam::111122223333:instance-profile/karpenter/x"
        assert allows("iam:CreateInstanceProfile", where, made)
        assert allows("iam:TagInstanceProfile", where, {**made, **there})
        assert allows("iam:DeleteInstanceProfile", where, there)

    story(tell, ready=False)
    assert {name for name, _ in requests} == {"create_fleet", "create_launch_template"}
    for name, request in requests:
        action = "ec2:CreateFleet" if name == "create_fleet" else "ec2:CreateLaunchTemplate"
        specifications = list(request.tag_specifications)
        if name == "create_launch_template":
            specifications += request.launch_template_data.tag_specifications
        for s in specifications:
            context = tagged(api.tags_of(s.tags))
            assert allows("ec2:RunInstances" if name != "create_fleet" else action, arn(s.resource_type), context), s
            assert allows("ec2:CreateTags", arn(s.resource_type), {**context, "ec2:CreateAction": "CreateFleet"}), s


@pytest.mark.parametrize(
    ("action", "kind", "change"),
    [
        ("ec2:TerminateInstances", "instance", {"kubernetes.io/cluster/sandbox": None}),
        ("ec2:TerminateInstances", "instance", {"karpenter.sh/nodepool": None}),
        ("ec2:DeleteLaunchTemplate", "launch-template", {"kubernetes.io/cluster/sandbox": "shared"}),
        ("ec2:CreateFleet", "launch-template", {"kubernetes.io/cluster/sandbox": None}),
    ],
)
def test_what_is_not_the_clusters_is_out_of_reach(action, kind, change):
    assert allows(action, arn(kind), tagged(OURS, "ResourceTag"))
    others = {k: v for k, v in {**OURS, **change}.items() if v is not None}
    assert not allows(action, arn(kind), tagged(others, "ResourceTag"))


@pytest.mark.parametrize("missing", ["kubernetes.io/cluster/sandbox", "eks:eks-cluster-name", "karpenter.sh/nodepool"])
def test_nothing_is_launched_without_its_tags(missing):
    others = {k: v for k, v in OURS.items() if k != missing}
    for kind in policy.CREATED:
        assert allows("ec2:CreateFleet", arn(kind), tagged(OURS))
        assert not allows("ec2:CreateFleet", arn(kind), tagged(others))
    assert not allows("ec2:CreateTags", arn("instance"), tagged(OURS)), "only while something is made"


def test_the_role_that_may_be_passed_on_is_the_nodes():
    context = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert allows("iam:PassRole", "arn:aws:iam::111122223333:role/KarpenterNodeRole-sandbox", context)
    assert not allows("iam:PassRole", "arn:aws:iam::111122223333:role/admin", context)
    assert not allows(
        "iam:PassRole",
        "arn:aws:iam::111122223333:role/KarpenterNodeRole-sandbox",
        {"iam:PassedToService": "lambda.amazonaws.com"},
    )


def test_it_is_printed_as_json_of_the_size_that_iam_takes():
    asked = ["aws", "iam-policy", "--cluster-name", "c", "--account", "111122223333", "--region", "eu-west-1"]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 0
    assert json.loads(result.output) == policy.document(policy.Scope(cluster="c", region="eu-west-1", account="111122223333"))
    assert len(json.dumps(DOCUMENT, separators=(",", ":"))) < 6144, "a managed policy's limit"
    wrong = CliRunner().invoke(cli, [*asked[:4], "--account", "me", "--region", "eu-west-1"])
    assert "write the 12 digits" in str(wrong.exception)
