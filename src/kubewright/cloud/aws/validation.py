"""Whether a NodeClass can be launched from: its own words first, then a dry run of a launch. Source: spec/aws 1.5."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from kubewright.api import aws_labels, conditions, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeClassReference, NodePool
from kubewright.api.meta import ObjectMeta, find_condition
from kubewright.api.quantity import ONE
from kubewright.catalogue.types import InstanceType
from kubewright.clock import Clock
from kubewright.cloud.aws import amis, api, errors, launch, orders, tags, templates, userdata
from kubewright.cloud.aws.capacity import family_of
from kubewright.cloud.aws.cluster import Cluster
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.templates import LaunchTemplates, Making
from kubewright.cloud.aws.userdata import Boot, UserDataError
from kubewright.kube.client import KubeClient
from kubewright.scheduling import requirements

R = TypeVar("R")

AGAIN = timedelta(minutes=10)
SOON = timedelta(seconds=10)
TTL = timedelta(minutes=30)
KIND = "ValidationSucceeded"
NEEDED = ("AMIsReady", "InstanceProfileReady", "SecurityGroupsReady", "SubnetsReady")
FALLBACKS = ("m5.large", "m6g.large")
DRY_RUN_OK = "DryRunOperation"


class Verdict(msgspec.Struct, frozen=True):
    """One condition to set."""

    kind: str
    status: str
    reason: str = ""
    message: str = ""


def refused(reason: str, message: str) -> Verdict:
    return Verdict(KIND, conditions.FALSE, reason, message)


def in_words(node_class: EC2NodeClass) -> Verdict | None:
    """What can be said of the class without asking AWS; None if nothing is wrong."""
    kubelet, family = node_class.spec.kubelet, node_class.ami_family
    if kubelet is not None and kubelet.pods_per_core is not None and not family_of(node_class).honours_pods_per_core:
        text = f"spec.kubelet.podsPerCore: {family} does not know it; use maxPods"
        return refused("UnsupportedKubeletConfiguration", text)
    if kubelet is not None and len(kubelet.cluster_dns or ()) > 1 and family not in ("AL2023", "Custom"):
        text = f"spec.kubelet.clusterDNS: {family} takes one address, found {len(kubelet.cluster_dns or ())}"
        return refused("UnsupportedKubeletConfiguration", text)
    bad = tags.forbidden(node_class.spec.tags or {})
    if bad:
        return refused("TagValidationFailed", f"spec.tags: {', '.join(bad)} are set by us")
    try:
        userdata.render(node_class, Boot(cluster_name="c", endpoint="https://e", ca_bundle="", service_cidr="x", max_pods=110))
    except UserDataError as error:
        limit = "User data is limited to" in str(error)
        return refused("UserDataSizeLimitExceeded" if limit else "UserDataInvalid", str(error))
    return None


def waiting(node_class: EC2NodeClass) -> Verdict | None:
    """Whether something that a launch needs is not resolved."""
    states = [c.status if (c := find_condition(node_class.status.conditions, kind)) else conditions.UNKNOWN for kind in NEEDED]
    if set(states) == {conditions.TRUE}:
        return None
    status = conditions.FALSE if conditions.FALSE in states else conditions.UNKNOWN
    text = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution"
    return Verdict(KIND, status, "DependenciesNotReady", text)


class Validation:
    """Verdicts, remembered for a while as long as nothing that they depend on changes."""

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        settings: AwsSettings,
        cluster: Callable[[], Awaitable[Cluster]],
        templates: LaunchTemplates,
        types: Callable[[EC2NodeClass], Awaitable[tuple[InstanceType, ...]]],
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._cluster = cluster
        self._templates = templates
        self._types = types
        self._known: dict[str, tuple[str, datetime, Verdict]] = {}

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    async def verdict(self, node_class: EC2NodeClass) -> tuple[Verdict | None, timedelta]:
        """The condition to set, None to leave it as it is, and when to look again.

        Raises:
            AwsError, KubeError: nobody knows; the condition stays.
        """
        if node_class.ami_family == "AL2023":
            try:
                cidr = (await self._cluster()).service_cidr
            except AwsError as error:
                if errors.is_retryable(error):
                    return None, SOON
                return refused("ClusterCIDRResolutionFailed", f"Failed to detect the cluster CIDR ({error})"), AGAIN
            if not cidr:
                return refused("ClusterCIDRResolutionFailed", "Failed to detect the cluster CIDR (EKS names none)"), AGAIN
        found = in_words(node_class) or waiting(node_class)
        if found is not None:
            return found, AGAIN
        if not self._settings.dry_run:
            return Verdict(KIND, conditions.TRUE), AGAIN
        key, now = _key(node_class), self._clock.now()
        known = self._known.get(node_class.name)
        if known is not None and known[0] == key and known[1] + TTL > now:
            return known[2], AGAIN
        fresh, keep, delay = await self._try(node_class)
        if fresh is not None and keep:
            self._known[node_class.name] = (key, now, fresh)
        return fresh, delay

    async def _try(self, node_class: EC2NodeClass) -> tuple[Verdict | None, bool, timedelta]:
        """Verdict, whether to remember it, when to look again."""
        types = await self._types(node_class)
        pools = [p for p in (await self._kube.list(NodePool)).items if _uses(p, node_class)]
        chosen = _first(node_class, types, pools)
        if chosen is None:
            return Verdict(KIND, conditions.TRUE), False, AGAIN  # nothing to try it with; AMIsReady has told why
        shape, image_id = chosen
        cluster = await self._cluster()
        making = Making(
            image_id=image_id, pods=shape.capacity["pods"] // ONE, capacity_type=labels.ON_DEMAND, tenancy=_tenancy(pools)
        )
        claim = _sample(node_class, min((p.name for p in pools), default="validation"))
        text = userdata.render(node_class, orders.boot_of(claim, node_class, making, cluster))
        marks = tags.of_pool(cluster.name, claim, node_class.spec.tags or {}, cluster.uid)
        content = templates.data(
            node_class,
            making,
            user_data=userdata.encode(text),
            found=marks,
            region=self._settings.region,
            ipv6=cluster.is_ipv6,
            reserves=self._settings.reserved_capacity,
        )
        try:
            name = await self._templates.ensure(node_class, content, self._clock.now(), claim.metadata.labels[labels.NODEPOOL])
        except AwsError as error:
            return _judge(error, "CreateLaunchTemplate", "Controller isn't authorized to call ec2:CreateLaunchTemplate")
        specification = api.TemplateSpecification(launch_template_name=name, version="$Latest")
        zones = {next(iter(o.requirements[labels.ZONE].values), "") for o in shape.offerings}
        subnets = [s for s in node_class.status.subnets if s.zone in zones] or list(node_class.status.subnets)
        overrides = tuple(
            api.Override(instance_type=shape.name, subnet_id=s.id, availability_zone=s.zone, image_id=image_id) for s in subnets
        )
        specs = tuple(
            api.TagSpecification(resource_type=kind, tags=tags.as_tags(marks)) for kind in ("instance", "volume", "fleet")
        )
        dry = api.CreateFleet(
            type="instant",
            launch_template_configs=(api.TemplateConfig(launch_template_specification=specification, overrides=overrides),),
            target_capacity_specification=api.TargetCapacity(
                total_target_capacity=1, default_target_capacity_type=labels.ON_DEMAND
            ),
            on_demand_options=api.OnDemandOptions(allocation_strategy="lowest-price"),
            tag_specifications=specs,
            dry_run=True,
        )
        wrong = await self._dry(self._ec2.create_fleet, dry)
        if wrong is not None:
            return _judge(wrong, "CreateFleet", "Controller isn't authorized to call ec2:CreateFleet")
        first: AwsError | None = None
        for s in subnets:
            run = api.RunInstances(
                launch_template=specification,
                instance_type=shape.name,
                image_id=image_id,
                subnet_id=s.id,
                min_count=1,
                max_count=1,
                tag_specifications=tuple(t for t in specs if t.resource_type != "fleet"),
                dry_run=True,
            )
            wrong = await self._dry(self._ec2.run_instances, run)
            if wrong is None:
                return Verdict(KIND, conditions.TRUE), True, AGAIN
            first = first or wrong
        assert first is not None  # SubnetsReady is True
        if "Invalid IAM Instance Profile name" in first.message:
            if not node_class.spec.instance_profile:
                return None, False, SOON  # IAM tells EC2 of a new profile a little late
            text = f"spec.instanceProfile: {node_class.spec.instance_profile} does not exist ({first})"
            return refused("InstanceProfileNotFound", text), False, SOON
        return _judge(first, "RunInstances", "Controller isn't authorized to call ec2:RunInstances")

    async def _dry(self, do: Callable[[R], Awaitable[object]], request: R) -> AwsError | None:
        """None if the call would have gone through. Not repeated: there is time for another round."""
        try:
            await do(request)
        except AwsError as error:
            return None if error.code == DRY_RUN_OK else error
        return None


def _judge(error: AwsError, call: str, text: str) -> tuple[Verdict | None, bool, timedelta]:
    if errors.is_retryable(error):
        return None, False, SOON
    if error.code == "UnauthorizedOperation":
        return refused(f"{call}AuthCheckFailed", f"{text}: {errors.launch_reason(error.code, error.message)[1]}"), True, AGAIN
    if "User data is limited to" in error.message:
        return refused("UserDataSizeLimitExceeded", error.message), True, AGAIN
    raise error


def _key(node_class: EC2NodeClass) -> str:
    status = node_class.status
    parts = (
        node_class.name,
        node_class.spec,
        node_class.metadata.annotations,
        status.subnets,
        status.security_groups,
        status.amis,
        status.instance_profile,
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def _uses(pool: NodePool, node_class: EC2NodeClass) -> bool:
    reference = pool.spec.template.spec.node_class_ref
    return reference.kind == node_class.RESOURCE.kind and reference.name == node_class.name


def _first(node_class: EC2NodeClass, types: Sequence[InstanceType], pools: Sequence[NodePool]) -> tuple[InstanceType, str] | None:
    """A type and an image that a launch could use: for plain machines first."""
    usable = [t for t in types if any(not o.unavailable_because.startswith(("AL2023", "the ")) for o in t.offerings)]
    wanted = [requirements.of_expressions(p.spec.template.spec.requirements or (), aws_labels.ALIASES) for p in pools]
    asked = [t for t in usable if any(launch.allows(w, t.requirements) for w in wanted)]
    if not asked or family_of(node_class).windows_build:
        asked = [t for t in usable if t.name in FALLBACKS] or usable
    plain = [t for t in asked if not t.exotic] or asked
    for ami in node_class.status.amis:
        for t in plain:
            if amis.for_requirements((ami,), t.requirements) is not None:
                return t, ami.id
    return None


def _tenancy(pools: Sequence[NodePool]) -> str:
    for p in pools:
        for r in p.spec.template.spec.requirements or ():
            if r.key == aws_labels.INSTANCE_TENANCY and r.operator == "In" and set(r.values) == {"dedicated"}:
                return "dedicated"
    return "default"


def _sample(node_class: EC2NodeClass, pool: str) -> NodeClaim:
    reference = NodeClassReference(group=node_class.RESOURCE.group, kind=node_class.RESOURCE.kind, name=node_class.name)
    return NodeClaim(
        metadata=ObjectMeta(name="validation", labels={labels.NODEPOOL: pool}), spec=NodeClaimSpec(node_class_ref=reference)
    )
