"""The account: who asks, the cluster, permissions, the queue, quotas, and what NodeClasses name."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from kubewright.api.aws import EC2NodeClass
from kubewright.api.meta import find_condition
from kubewright.cloud.aws import api, instances, tags
from kubewright.cloud.aws.doctor.findings import POLICY, Finding, is_denied, look, not_seen, ok, problem, unknown
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.prices import LINUX
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.templates import PREFIX

OLDEST, NEWEST = 26, 36
"""Minor versions of Kubernetes. Source: spec/aws 8.1."""
NODE_POLICIES = (
    ("AmazonEKSWorkerNodePolicy",),
    ("AmazonEKS_CNI_Policy", "AmazonEKS_CNI_IPv6_Policy"),
    ("AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly"),
)
"""Of each line the node's role needs one. Source: spec/aws 13."""
QUOTAS = (("L-1216C47A", "on-demand", "Running On-Demand Standard instances"), ("L-34B43A08", "spot", "Standard Spot requests"))
"""Both count vCPUs of families A, C, D, H, I, M, R, T and Z."""
_STANDARD = frozenset("acdhimrtz")
ROOM = 0.8
"""A quota of which more is used is told."""


async def caller(ec2: api.DoctorApi) -> list[Finding]:
    found = await look(ec2.get_caller_identity, api.GetCallerIdentity())
    if isinstance(found, AwsError):
        text = f"AWS does not say who asks: {found}"
        return [problem("credentials", text, "give credentials: AWS_PROFILE, IRSA or EKS Pod Identity")]
    return [ok("credentials", f"asking as {found.arn}")]


async def cluster(ec2: api.DoctorApi, name: str) -> list[Finding]:
    about = f"cluster {name}"
    found = await look(ec2.describe_cluster, api.DescribeCluster(name=name))
    if isinstance(found, AwsError):
        if found.code == "ResourceNotFoundException":
            return [problem(about, "EKS does not know it in this region", "check --cluster-name and --region")]
        return [problem(about, f"eks:DescribeCluster failed: {found}", POLICY)]
    minor = int(found.cluster.version.partition(".")[2] or 0)
    if not OLDEST <= minor <= NEWEST:
        text = f"Kubernetes {found.cluster.version} is not one of 1.{OLDEST} to 1.{NEWEST}"
        return [problem(about, text, "change the cluster's version, or use another release of kubewright")]
    return [ok(about, f"Kubernetes {found.cluster.version}")]


async def permissions(ec2: api.DoctorApi, name: str, settings: AwsSettings, now: datetime) -> list[Finding]:
    """Reads are made, writes are tried dry; what cannot be tried without doing it is said."""
    mine = (api.Filter(name=f"tag:{tags.CLUSTER}", values=(name,)),)
    tries: list[tuple[str, Any, Any]] = [
        ("ec2:DescribeInstanceTypes", ec2.describe_instance_types, api.DescribeInstanceTypes(max_results=5)),
        (
            "ec2:DescribeInstanceTypeOfferings",
            ec2.describe_instance_type_offerings,
            api.DescribeInstanceTypeOfferings(location_type="availability-zone", max_results=5),
        ),
        ("ec2:DescribeSubnets", ec2.describe_subnets, api.DescribeSubnets(max_results=5)),
        ("ec2:DescribeSecurityGroups", ec2.describe_security_groups, api.DescribeSecurityGroups(max_results=5)),
        ("ec2:DescribeImages", ec2.describe_images, api.DescribeImages(owners=("self",), max_results=5)),
        ("ec2:DescribeInstances", ec2.describe_instances, api.DescribeInstances(filters=mine, max_results=5)),
        ("ec2:DescribeLaunchTemplates", ec2.describe_launch_templates, api.DescribeLaunchTemplates(filters=mine, max_results=5)),
        ("ec2:DescribeInstanceStatus", ec2.describe_instance_status, api.DescribeInstanceStatus(max_results=5)),
        (
            "ec2:DescribeSpotPriceHistory",
            ec2.describe_spot_price_history,
            api.DescribeSpotPriceHistory(start_time=now, product_descriptions=LINUX, instance_types=("m5.large",), max_results=5),
        ),
        (
            "ec2:DescribeCapacityReservations",
            ec2.describe_capacity_reservations,
            api.DescribeCapacityReservations(max_results=5),
        ),
        ("ec2:DescribePlacementGroups", ec2.describe_placement_groups, api.DescribePlacementGroups()),
        ("iam:ListInstanceProfiles", ec2.list_instance_profiles, api.ListInstanceProfiles(path_prefix="/karpenter/")),
        (
            "ssm:GetParameter",
            ec2.get_parameter,
            api.GetParameter(name="/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
        ),
        *await _writes(ec2, name),
    ]
    if not settings.isolated_vpc:
        wanted = (api.ProductFilter(field="instanceType", value="m5.large", type="TERM_MATCH"),)
        tries.append(
            ("pricing:GetProducts", ec2.get_products, api.GetProducts(service_code="AmazonEC2", filters=wanted, max_results=1))
        )
    found = [_permission(action, await look(do, request)) for action, do, request in tries]
    denied = [f for f in found if f is not None]
    untried = "iam:CreateInstanceProfile, iam:AddRoleToInstanceProfile, iam:PassRole and sqs:DeleteMessage"
    told = unknown("permissions", f"not tried, since trying would do it: {untried}", POLICY)
    return [*(denied or [ok("permissions", f"{len(tries)} calls are allowed")]), told]


async def _writes(ec2: api.DoctorApi, name: str) -> list[tuple[str, Any, Any]]:
    """Dry runs, on things that are the cluster's where they need one."""
    marks = tags.as_tags({tags.owned(name): "owned", tags.CLUSTER: name, tags.NODE_POOL: "doctor", tags.NODE_CLASS: "doctor"})
    of_template = (api.TagSpecification(resource_type="launch-template", tags=marks),)
    data = api.LaunchTemplateData(image_id="ami-00000000000000000")
    make = api.CreateLaunchTemplate(
        launch_template_name=f"{PREFIX}doctor", launch_template_data=data, tag_specifications=of_template, dry_run=True
    )
    tries: list[tuple[str, Any, Any]] = [("ec2:CreateLaunchTemplate", ec2.create_launch_template, make)]
    filters = instances.owned_filters(name)
    machines = await look(ec2.describe_instances, api.DescribeInstances(filters=filters, max_results=5))
    one = () if isinstance(machines, AwsError) or not machines.instances else (machines.instances[0].instance_id,)
    if one:
        end = api.TerminateInstances(instance_ids=one, dry_run=True)
        label = api.CreateTags(resources=one, tags=(api.Tag(key=tags.NAME, value="x"),), dry_run=True)
        tries += [("ec2:TerminateInstances", ec2.terminate_instances, end), ("ec2:CreateTags", ec2.create_tags, label)]
    mine = (api.Filter(name=f"tag:{tags.CLUSTER}", values=(name,)),)
    templates = await look(ec2.describe_launch_templates, api.DescribeLaunchTemplates(filters=mine, max_results=5))
    if not isinstance(templates, AwsError) and templates.launch_templates:
        template = templates.launch_templates[0].launch_template_name
        remove = api.DeleteLaunchTemplate(launch_template_name=template, dry_run=True)
        tries.append(("ec2:DeleteLaunchTemplate", ec2.delete_launch_template, remove))
    return tries


def _permission(action: str, answer: object) -> Finding | None:
    if isinstance(answer, AwsError) and is_denied(answer):
        return problem(action, f"the call is not allowed ({answer})", POLICY)
    return None


async def queue(ec2: api.DoctorApi, settings: AwsSettings) -> list[Finding]:
    name = settings.interruption_queue
    if not name:
        mend = "make a queue with EventBridge rules for EC2 and Health events, and name it with --interruption-queue"
        return [problem("interruption queue", "none is configured: spot machines end without their pods being moved", mend)]
    about = f"queue {name}"
    found = await look(ec2.get_queue_url, api.GetQueueUrl(queue_name=name))
    if isinstance(found, AwsError):
        if is_denied(found):
            return [problem(about, f"sqs:GetQueueUrl is not allowed ({found})", POLICY)]
        return [problem(about, f"it is not there ({found.code})", "make it in this region, or correct --interruption-queue")]
    # Visible again at once, so that the operator misses nothing.
    request = api.ReceiveMessage(queue_url=found.queue_url, max_number_of_messages=1, visibility_timeout=0)
    read = await look(ec2.receive_message, request)
    if isinstance(read, AwsError):
        return [problem(about, f"sqs:ReceiveMessage failed: {read}", POLICY)]
    return [ok(about, "can be read")]


async def quotas(ec2: api.DoctorApi, name: str) -> list[Finding]:
    """How much of the account's vCPUs this cluster's machines use."""
    request = api.DescribeInstances(filters=instances.owned_filters(name), max_results=1000)
    machines = await look(ec2.describe_instances, request)
    listed = () if isinstance(machines, AwsError) else machines.instances
    names = tuple(sorted({i.instance_type for i in listed if i.instance_type[:1] in _STANDARD}))
    shapes = await look(ec2.describe_instance_types, api.DescribeInstanceTypes(instance_types=names)) if names else None
    vcpus = {t.instance_type: t.vcpus for t in shapes.instance_types} if isinstance(shapes, api.InstanceTypesPage) else {}
    found = []
    for code, market, text in QUOTAS:
        about = f"quota {code} ({text})"
        answer = await look(ec2.get_service_quota, api.GetServiceQuota(service_code="ec2", quota_code=code))
        if isinstance(answer, AwsError):
            found.append(not_seen(about, answer, "servicequotas:GetServiceQuota"))
            continue
        most = answer.quota.value
        used = sum(vcpus.get(i.instance_type, 0) for i in listed if (instances.capacity_type(i) == "spot") == (market == "spot"))
        if used >= most * ROOM:
            said = f"this cluster's machines use {used} of {most:g} vCPUs"
            found.append(problem(about, said, f"ask for more in the Service Quotas console, code {code}"))
        else:
            found.append(ok(about, f"{used} of {most:g} vCPUs used by this cluster"))
    return found


async def node_class(ec2: api.DoctorApi, of: EC2NodeClass) -> list[Finding]:
    """What the class's conditions and status say, and whether its role and images will do."""
    about = f"EC2NodeClass {of.name}"
    found = [
        problem(about, f"{c.type} is {c.status}: {c.reason}: {c.message}", _mend_of(c.type))
        for c in of.status.conditions
        if c.status == "False" and c.type != "Ready"
    ]
    ready = find_condition(of.status.conditions, "Ready")
    if ready is None:
        found.append(problem(about, "nobody has looked at it", "start kubewright, or look why it does not run"))
    elif ready.status == "True":
        found.append(ok(about, "ready"))
    found += [
        problem(f"{about}, image {a.id}", f"{a.name or a.id} is deprecated", "select a newer one in spec.amiSelectorTerms")
        for a in of.status.amis
        if a.deprecated
    ]
    return found + await _role(ec2, of)


def _mend_of(kind: str) -> str:
    return {
        "SubnetsReady": "tag the subnets, or correct spec.subnetSelectorTerms",
        "SecurityGroupsReady": "tag the security groups, or correct spec.securityGroupSelectorTerms",
        "AMIsReady": "correct spec.amiSelectorTerms",
        "InstanceProfileReady": "correct spec.role or spec.instanceProfile",
    }.get(kind, "do what the message says")


async def _role(ec2: api.DoctorApi, of: EC2NodeClass) -> list[Finding]:
    role = of.spec.role.rpartition("/")[2]
    if not role and of.status.instance_profile:
        request = api.GetInstanceProfile(instance_profile_name=of.status.instance_profile)
        profile = await look(ec2.get_instance_profile, request)
        if isinstance(profile, AwsError):
            about = f"instance profile {of.status.instance_profile}"
            if is_denied(profile):
                return [problem(about, f"iam:GetInstanceProfile is not allowed ({profile})", POLICY)]
            return [problem(about, f"it is not there ({profile.code})", "make it, or correct spec.instanceProfile")]
        role = next((r.role_name for r in profile.instance_profile.roles), "")
        if not role:
            about = f"instance profile {of.status.instance_profile}"
            return [problem(about, "it holds no role", "add the nodes' role to it")]
    if not role:
        return []
    about = f"role {role}"
    there = await look(ec2.get_role, api.GetRole(role_name=role))
    if isinstance(there, AwsError):
        if there.code == "NoSuchEntity":
            return [problem(about, f"IAM has no such role, which EC2NodeClass {of.name} names", "make it, or correct spec.role")]
        return [not_seen(about, there, "iam:GetRole")]
    attached = await look(ec2.list_attached_role_policies, api.ListAttachedRolePolicies(role_name=role))
    if isinstance(attached, AwsError):
        return [not_seen(about, attached, "iam:ListAttachedRolePolicies")]
    return _policies(about, {p.policy_name for p in attached.attached_policies})


def _policies(about: str, names: Collection[str]) -> list[Finding]:
    missing = [line[0] for line in NODE_POLICIES if not set(line) & set(names)]
    if not missing:
        return [ok(about, "has the policies that nodes need")]
    text = "nodes with it cannot do what these allow, unless another policy or a Pod Identity does"
    return [problem(about, f"{', '.join(missing)} not attached: {text}", f"attach {', '.join(missing)}")]
