"""Buying: one instant fleet for one NodeClaim, safe to repeat. Source: spec/aws 7.3, 7.4.

The client token follows from the NodeClaim's UID, so that a repeated call cannot buy twice, in this process or after a crash: EC2
answers the same request with the same machine, and a changed one with an error.
"""

import hashlib
from datetime import datetime, timedelta

import msgspec
import structlog

from kubewright.api import labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodeClaim
from kubewright.api.quantity import ONE
from kubewright.cloud.aws import amis, api, errors, retry, tags, templates, userdata
from kubewright.cloud.aws.cluster import Cluster
from kubewright.cloud.aws.launch import Choice
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.cloud.aws.userdata.boot import Boot, node_labels, node_taints
from kubewright.errors import InsufficientCapacity, LaunchFailed

SHOWS_WITHIN = timedelta(seconds=30)
"""How long DescribeInstances may hide a machine that a fleet has bought."""

REMEMBERED = 1000
_STRATEGIES = {labels.SPOT: "price-capacity-optimized", labels.ON_DEMAND: "lowest-price"}
_CORRECTED = {labels.SPOT: "capacity-optimized-prioritized", labels.ON_DEMAND: "prioritized"}
"""For claims planned with prices that are not EC2's own: it is told the order. Source: spec/aws 7.3."""


class Fleet:
    """Remembers, per NodeClaim UID, which try is the current one."""

    def __init__(self, ec2: api.Ec2Api, cluster: str, made: templates.LaunchTemplates, unavailable: UnavailableOfferings) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._templates = made
        self._unavailable = unavailable
        self._attempts: dict[str, int] = {}
        self._clashed: dict[str, datetime] = {}
        self._contents: dict[bytes, api.LaunchTemplateData] = {}
        self._log = structlog.get_logger("kubewright.fleet")

    async def buy(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        choice: Choice,
        cluster: Cluster,
        aws: AwsSettings,
        now: datetime,
    ) -> api.Ec2Instance | None:
        """The machine, still pending; None when an earlier fleet of this claim may have bought one that EC2 does not show yet.

        Raises:
            InsufficientCapacity: every offering was out; they are marked.
            LaunchFailed, UserDataError: see there.
            AwsError: the call was answered with an error.
        """
        uid = claim.metadata.uid
        configs = await self._configs(claim, node_class, choice, cluster, aws, now)
        request = self.request(claim, node_class, choice, configs)
        try:
            answer = await retry.call(self._ec2.create_fleet, request)
        except errors.AwsError as error:
            if error.code == errors.TEMPLATE_GONE:
                self._templates.forget()
                configs = await self._configs(claim, node_class, choice, cluster, aws, now)
                self._next(uid)
                answer = await retry.call(self._ec2.create_fleet, self.request(claim, node_class, choice, configs))
            elif error.code == errors.TOKEN_REUSED:
                if self._clashed.setdefault(uid, now) + SHOWS_WITHIN <= now:
                    self._next(uid)  # that fleet bought nothing, or its machine is gone
                return None
            else:
                raise
        self._learn(answer, choice.capacity_type, now)
        if not any(i.instance_ids for i in answer.instances):
            self._next(uid)
            raise errors.of_fleet([(e.error_code, e.error_message) for e in answer.errors])
        self._clashed.pop(uid, None)
        return _instance(answer, claim, node_class, choice.capacity_type, self._cluster, now)

    def request(
        self, claim: NodeClaim, node_class: EC2NodeClass, choice: Choice, configs: tuple[api.TemplateConfig, ...]
    ) -> api.CreateFleet:
        found = tags.as_tags(tags.of_claim(self._cluster, claim, node_class.spec.tags or {}))
        strategy = (_CORRECTED if _is_corrected(claim) else _STRATEGIES)[choice.capacity_type]
        is_spot = choice.capacity_type == labels.SPOT
        token = f"{claim.metadata.uid}/{self._attempts.get(claim.metadata.uid, 0)}"
        return api.CreateFleet(
            type="instant",
            launch_template_configs=configs,
            target_capacity_specification=api.TargetCapacity(
                total_target_capacity=1, default_target_capacity_type=choice.capacity_type
            ),
            spot_options=api.SpotOptions(allocation_strategy=strategy) if is_spot else None,
            on_demand_options=None if is_spot else api.OnDemandOptions(allocation_strategy=strategy),
            tag_specifications=tuple(
                api.TagSpecification(resource_type=kind, tags=found) for kind in ("instance", "volume", "fleet")
            ),
            client_token=hashlib.sha256(token.encode()).hexdigest(),
        )

    async def _configs(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        choice: Choice,
        cluster: Cluster,
        aws: AwsSettings,
        now: datetime,
    ) -> tuple[api.TemplateConfig, ...]:
        """One template per image and pod count, with everything that may be bought from it."""
        subnets = self._best_subnets(node_class)
        groups: dict[tuple[str, int], list[api.Override]] = {}
        for b in choice.types:
            ami = amis.for_type(node_class.status.amis, b.type)
            if ami is None:
                continue
            overrides = groups.setdefault((ami.id, b.type.capacity["pods"] // ONE), [])
            overrides += [
                api.Override(
                    instance_type=b.type.name,
                    subnet_id=subnets[o.zone],
                    availability_zone=o.zone,
                    image_id=ami.id,
                    priority=o.price if _is_corrected(claim) else None,
                )
                for o in b.offerings
                if o.zone in subnets
            ]
        configs = []
        for (image, pods), overrides in sorted(groups.items()):
            if not overrides:
                continue
            content = self._content(claim, node_class, choice.capacity_type, image, pods, cluster, aws)
            name = await self._templates.ensure(node_class, content, now)
            specification = api.TemplateSpecification(launch_template_name=name)
            configs.append(api.TemplateConfig(launch_template_specification=specification, overrides=tuple(overrides)))
        if not configs:
            if not any(amis.for_type(node_class.status.amis, b.type) for b in choice.types):
                raise LaunchFailed("AMINotFound", "no AMI of the NodeClass runs on any of the instance types")
            raise InsufficientCapacity("no capacity offerings are currently available given the constraints")
        return tuple(configs)

    def _content(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        capacity_type: str,
        image: str,
        pods: int,
        cluster: Cluster,
        aws: AwsSettings,
    ) -> api.LaunchTemplateData:
        """What the template says; made once for equal machines."""
        boot = _boot(claim, node_class, capacity_type, pods, cluster, aws)
        pool = claim.metadata.labels.get(labels.NODEPOOL, "")
        status = (node_class.status.security_groups, node_class.status.instance_profile)
        key = msgspec.json.encode((node_class.name, node_class.spec, status, image, pool, capacity_type, boot))
        if key not in self._contents:
            if len(self._contents) >= REMEMBERED:
                self._contents.clear()
            found = tags.of_class(self._cluster, node_class.name, node_class.spec.tags or {}) | {tags.NODE_POOL: pool}
            self._contents[key] = templates.data(
                node_class,
                image_id=image,
                user_data=userdata.encode(userdata.render(node_class, boot)),
                capacity_type=capacity_type,
                found=found,
            )
        return self._contents[key]

    def _best_subnets(self, node_class: EC2NodeClass) -> dict[str, str]:
        """Per zone the subnet with most free addresses (status order) that is not known to be full."""
        found: dict[str, str] = {}
        for s in node_class.status.subnets:
            if s.zone not in found and not self._unavailable.subnet_is_full(s.id):
                found[s.zone] = s.id
        return found

    def _learn(self, answer: api.FleetAnswer, capacity_type: str, now: datetime) -> None:
        """Marks for every offering that was out. Source: spec/aws 6.5."""
        for e in answer.errors:
            tried = e.launch_template_and_overrides.overrides
            self._log.info(
                "fleet error",
                code=e.error_code,
                instance_type=tried.instance_type if tried else "",
                zone=tried.availability_zone if tried else "",
            )
            if e.error_code == errors.NO_SPOT_ROLE:
                self._unavailable.mark_spot(e.error_code, now)
            elif e.error_code in errors.UNFULFILLABLE and tried is not None:
                if e.error_code == errors.SUBNET_FULL:
                    self._unavailable.mark_subnet(tried.subnet_id, now)
                else:
                    self._unavailable.mark(capacity_type, tried.instance_type, tried.availability_zone, e.error_code, now)

    def _next(self, uid: str) -> None:
        self._attempts[uid] = self._attempts.get(uid, 0) + 1
        self._clashed.pop(uid, None)


def _is_corrected(claim: NodeClaim) -> bool:
    return claim.metadata.annotations.get(labels.PRICE_OVERLAY_APPLIED) == "true"


def _boot(claim: NodeClaim, node_class: EC2NodeClass, capacity_type: str, pods: int, cluster: Cluster, aws: AwsSettings) -> Boot:
    custom = node_class.ami_family == "Custom"
    return Boot(
        cluster_name=cluster.name,
        endpoint=cluster.endpoint,
        ca_bundle=cluster.ca_bundle,
        service_cidr=cluster.service_cidr,
        cluster_dns=(aws.cluster_dns,) if aws.cluster_dns else (),
        max_pods=pods,
        labels=node_labels(claim, capacity_type, custom=custom),
        taints=node_taints(claim),
        raid0=node_class.spec.instance_store_policy == "RAID0",
    )


def _instance(
    answer: api.FleetAnswer,
    claim: NodeClaim,
    node_class: EC2NodeClass,
    capacity_type: str,
    cluster: str,
    now: datetime,
) -> api.Ec2Instance:
    """The bought machine from the answer alone: our own overrides are echoed, so EC2 need not be asked again."""
    bought = next(i for i in answer.instances if i.instance_ids)
    chosen = bought.launch_template_and_overrides.overrides
    return api.Ec2Instance(
        instance_id=bought.instance_ids[0],
        instance_type=bought.instance_type or (chosen.instance_type if chosen else ""),
        image_id=chosen.image_id if chosen else "",
        state=api.InstanceState(name="pending"),
        launch_time=now,
        placement=api.Placement(availability_zone=chosen.availability_zone if chosen else ""),
        subnet_id=chosen.subnet_id if chosen else "",
        instance_lifecycle="spot" if capacity_type == labels.SPOT else "",
        tags=tags.as_tags(tags.of_claim(cluster, claim, node_class.spec.tags or {})),
    )
