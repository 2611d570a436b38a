"""The doctor on the fake: a healthy set-up has no problem, and each fault is named with its object and its mend."""

import asyncio
import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubewright.cli.aws import show
from kubewright.cloud.aws import api
from kubewright.cloud.aws.doctor import Finding, Verdict, examine
from kubewright.kube.client import MergePatch
from kubewright.sim.ec2.account import VPC
from tests.unit.cloud.world import World, story


def examined(change=lambda world: None, *, after=lambda world: None, **spec) -> list[Finding]:
    async def tell(world: World):
        cni = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "aws-node", "namespace": "kube-system"}}
        labels = {"app": "cni"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "cni", "image": "x"}]}}
        world.store.create({**cni, "spec": {"selector": {"matchLabels": labels}, "template": template}})
        change(world)
        await world.provider.reconcile_node_class("default")
        await world.provider.create(await world.claim())
        after(world)
        return await examine(world.ec2, world.kube, world.clock, "sandbox", world.ec2.settings)

    return story(tell, ready=False, **spec)


def problems(found: list[Finding]) -> dict[str, Finding]:
    assert all(f.about and f.text for f in found)
    assert all(f.mend for f in found if f.verdict is Verdict.PROBLEM)
    return {f.about: f for f in found if f.verdict is Verdict.PROBLEM}


def the(found: list[Finding], about: str) -> Finding:
    (one,) = [f for a, f in problems(found).items() if a.startswith(about)]
    return one


def test_a_healthy_set_up_has_no_problem():
    found = examined()
    assert problems(found) == {}
    assert any(f.about == "permissions" and "calls are allowed" in f.text for f in found if f.verdict is Verdict.OK)
    assert [f.about for f in found if f.verdict is Verdict.UNKNOWN] == ["permissions"], "what cannot be tried is said"


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("DescribeSpotPriceHistory", "ec2:DescribeSpotPriceHistory"),
        ("DescribeInstanceStatus", "ec2:DescribeInstanceStatus"),
        ("DescribeCapacityReservations", "ec2:DescribeCapacityReservations"),
        ("CreateLaunchTemplate", "ec2:CreateLaunchTemplate"),
        ("TerminateInstances", "ec2:TerminateInstances"),
        ("CreateTags", "ec2:CreateTags"),
        ("DeleteLaunchTemplate", "ec2:DeleteLaunchTemplate"),
        ("GetProducts", "pricing:GetProducts"),
        ("ListInstanceProfiles", "iam:ListInstanceProfiles"),
        ("GetParameter", "ssm:GetParameter"),
    ],
)
def test_a_call_that_is_not_allowed_is_named(operation, action):
    found = examined(after=lambda w: w.ec2.break_down(operation, code="UnauthorizedOperation", status=403))
    assert "kubewright aws iam-policy" in the(found, action).mend


def test_looking_changes_nothing():
    def count(world: World):
        world.before = (
            len(world.ec2.running()),
            len(world.ec2.account.templates),
            len(world.ec2.account.profiles),
            len(world.ec2.queue),
        )
        world.ec2.on_write = lambda operation, when: wrote.append((operation, when))

    wrote: list[tuple[str, str]] = []
    examined(after=count)
    assert not [o for o, when in wrote if when == "after"], "only dry runs"


ONLY_OURS = json.dumps({"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::ours/*"}]})


def first(world: World) -> str:
    return min(world.ec2.account.subnets)


def set_routes(world: World, **route) -> None:
    (table,) = world.ec2.around.tables
    out = api.Route(destination_cidr_block="0.0.0.0/0", state="active" if route else "blackhole", **route)
    world.ec2.around.tables = [replace(table, routes=(out,))]


def no_way_out(world: World) -> None:
    (table,) = world.ec2.around.tables
    world.ec2.around.tables = [replace(table, routes=())]


def endpoints(world: World, *names: str, policy: str = "") -> None:
    no_way_out(world)
    (table,) = world.ec2.around.tables
    world.ec2.around.endpoints = [
        api.VpcEndpoint(
            vpc_endpoint_id=f"vpce-{name}",
            vpc_endpoint_type="Gateway" if name == "s3" else "Interface",
            vpc_id=VPC,
            service_name=f"com.amazonaws.us-west-2.{name}",
            state="available",
            policy_document=policy if name == "s3" else "",
            route_table_ids=(table.route_table_id,) if name == "s3" else (),
        )
        for name in names
    ]


def rules(world: World, **change) -> None:
    world.ec2.account.groups = {name: replace(g, **change) for name, g in world.ec2.account.groups.items()}


def set_routes_nowhere(world: World) -> None:
    set_routes(world)


@pytest.mark.parametrize(
    ("change", "about", "text", "mend"),
    [
        (lambda w: setattr(w.ec2.queue, "name", "other"), "queue other", "", ""),
        (
            lambda w: w.ec2.around.quotas.update({"L-1216C47A": 4.0}),
            "quota L-1216C47A",
            "use 4 of 4 vCPUs",
            "Service Quotas console",
        ),
        (
            lambda w: w.ec2.around.policies.update({"KarpenterNodeRole-sandbox": ("AmazonEKSWorkerNodePolicy",)}),
            "role KarpenterNodeRole-sandbox",
            "AmazonEKS_CNI_Policy, AmazonEC2ContainerRegistryPullOnly not attached",
            "attach AmazonEKS_CNI_Policy",
        ),
        (
            lambda w: setattr(w.ec2.account, "roles", {"x"}),
            "role KarpenterNodeRole-sandbox",
            "IAM has no such role",
            "correct spec.role",
        ),
        (set_routes_nowhere, "subnet ", "the default route of rtb-", "correct the default route"),
        (
            lambda w: set_routes(w, gateway_id="igw-1"),
            "subnet ",
            "leads out through igw-1, but nodes get no public address",
            "associatePublicIPAddress",
        ),
        (endpoints, "subnet ", "no VPC endpoint for ec2, ecr.api, ecr.dkr, s3, sts, eks", "NAT gateway"),
        (
            lambda w: endpoints(w, "ec2", "ecr.api", "s3", "sts", "eks"),
            "subnet ",
            "no VPC endpoint for ecr.dkr",
            "VPC endpoints for ecr.dkr",
        ),
        (
            lambda w: endpoints(w, "ec2", "ecr.api", "ecr.dkr", "s3", "sts", "eks", policy=ONLY_OURS),
            "VPC endpoint vpce-s3",
            "keeps image layers from nodes",
            "prod-us-west-2-starport-layer-bucket",
        ),
        (lambda w: rules(w, ip_permissions_egress=()), "security group", "out on port 443", "allow egress on TCP 443"),
        (lambda w: rules(w, ip_permissions=()), "security group", "DNS on port 53", "from the nodes' own security group"),
        (lambda w: w.ec2.account.take_address(first(w), 8180), "subnet ", "free addresses", "prefix delegation"),
    ],
)
def test_each_fault_has_its_object_and_its_mend(change, about, text, mend):
    if about.startswith("queue"):
        settings_name = "sandbox"
        about, text, mend = f"queue {settings_name}", "it is not there", "--interruption-queue"

        def moved(world: World):
            real = world.ec2.queue.get_url
            world.ec2.queue.get_url = lambda request: real(replace(request, queue_name="nobody"))

        found = examined(after=moved)
    else:
        found = examined(after=change)
    (one, *_) = [f for a, f in problems(found).items() if a.startswith(about) and text in f.text]
    assert mend in one.mend


def test_endpoints_for_all_that_nodes_need_are_a_way_out():
    every = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "eks")
    let = {"Statement": {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "*"}}
    found = examined(after=lambda w: endpoints(w, *every, policy=json.dumps(let)))
    assert problems(found) == {}


def test_a_class_with_a_false_condition_is_told_with_its_message():
    async def tell(world: World):
        await world.provider.reconcile_node_class("default")
        return await examine(world.ec2, world.kube, world.clock, "sandbox", world.ec2.settings)

    found = story(tell, ready=False, subnetSelectorTerms=[{"tags": {"no": "such"}}])
    said = [f for f in found if f.verdict is Verdict.PROBLEM and f.about == "EC2NodeClass default"]
    assert any("SubnetsNotFound" in f.text and "spec.subnetSelectorTerms" in f.mend for f in said)


@pytest.mark.parametrize(("sandbox", "words"), [("False", "have no network yet"), ("True", "wait for their images")])
def test_pods_that_stay_containercreating_on_a_node_that_joined_point_at_what_was_found(sandbox, words):
    async def tell(world: World):
        await world.provider.reconcile_node_class("default")
        no_way_out(world)
        world.store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}})
        began = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}}
        world.store.create({**pod, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}})
        ready = {"type": "PodReadyToStartContainers", "status": sandbox, "lastTransitionTime": began}
        body = {"status": {"phase": "Pending", "startTime": began, "conditions": [ready]}}
        world.store.patch("v1", "Pod", "default", "web", MergePatch(body), subresource="status")
        early = await examine(world.ec2, world.kube, world.clock, "sandbox", world.ec2.settings)
        await asyncio.sleep(timedelta(minutes=3).total_seconds())
        return early, await examine(world.ec2, world.kube, world.clock, "sandbox", world.ec2.settings)

    early, late = story(tell, ready=False)
    assert "node n1" not in problems(early)
    one = the(late, "node n1")
    assert words in one.text
    assert "default/web" in one.text
    assert "nothing leads out of it" in one.mend
    assert the(late, "DaemonSet kube-system/aws-node").mend.startswith("install the VPC CNI")


def test_a_look_that_only_the_doctor_needs_may_be_refused():
    calls = ("DescribeRouteTables", "GetRole", "GetServiceQuota")
    found = examined(after=lambda w: w.ec2.break_down(*calls, code="AccessDenied", status=403))
    assert problems(found) == {}
    assert len([f for f in found if f.verdict is Verdict.UNKNOWN and "not looked at" in f.text]) == 4


def test_it_works_without_a_cluster_and_prints_problems_first(capsys):
    async def tell(world: World):
        world.ec2.around.quotas["L-34B43A08"] = 0.0
        return await examine(world.ec2, None, world.clock, "nowhere", replace(world.ec2.settings, interruption_queue=""))

    found = story(tell)
    assert show(found, "text") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("problem  cluster nowhere: EKS does not know it")
    assert lines[1].strip() == "mend: check --cluster-name and --region"
    assert lines[-1] == f"3 problem(s) in {len(found)} findings"
    assert show(found, "json") == 1
    assert {f["verdict"] for f in json.loads(capsys.readouterr().out)} == {"ok", "problem", "unknown"}
