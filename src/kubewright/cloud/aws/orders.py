"""What to ask CreateFleet for on behalf of one NodeClaim: templates, overrides, tags. Source: spec/aws 7.3, 7.6."""

from collections.abc import Mapping

import msgspec

from kubewright.api import aws_labels, labels
from kubewright.api.aws import Ami, EC2NodeClass
from kubewright.api.karpenter import NodeClaim
from kubewright.api.quantity import ONE
from kubewright.clock import Clock
from kubewright.cloud.aws import amis, api, tags, templates, userdata
from kubewright.cloud.aws.addresses import Addresses, Promised
from kubewright.cloud.aws.cluster import Cluster
from kubewright.cloud.aws.launch import Choice
from kubewright.cloud.aws.measures import Measures
from kubewright.cloud.aws.reservations import CAPACITY_BLOCK
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.cloud.aws.templates import Making
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.cloud.aws.userdata.boot import Boot, node_labels, node_taints
from kubewright.errors import InsufficientCapacity, LaunchFailed
from kubewright.scheduling.requirement import Requirement

REMEMBERED = 1000
MOST_OVERRIDES = 300
"""Of one request. Source: EC2 Fleet quotas."""
_STRATEGIES = {labels.SPOT: "price-capacity-optimized", labels.ON_DEMAND: "lowest-price", labels.RESERVED: "lowest-price"}
_CORRECTED = {**_STRATEGIES, labels.SPOT: "capacity-optimized-prioritized", labels.ON_DEMAND: "prioritized"}
"""For claims planned with prices that are not EC2's own: it is told the order. Source: spec/aws 7.3."""


def place(instance_type: str, zone: str) -> str:
    return f"{instance_type}/{zone}"


class Order(msgspec.Struct, frozen=True):
    """What one NodeClaim asks for; equal requests go out together."""

    uid: str
    node_class: str
    capacity_type: str
    request: api.CreateFleet
    """For one machine, without token and launch tags."""
    group_id: str = ""
    tenancy: str = "default"
    partition: int = 0
    reservations: Mapping[str, str] = {}
    """`place(type, zone)` → the reservation that is launched into there."""
    types: tuple[str, ...] = ()


Groups = dict[Making, list[tuple[float, api.Override]]]
"""Kind of machine → (price, what may be bought of it)."""


class Orders:
    """Makes orders; equal NodeClaims get equal ones."""

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        made: templates.LaunchTemplates,
        unavailable: UnavailableOfferings,
        addresses: Addresses,
        measures: Measures,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._templates = made
        self._unavailable = unavailable
        self._addresses = addresses
        self._measures = measures
        self._contents: dict[bytes, api.LaunchTemplateData] = {}
        self._images: dict[tuple[Ami, ...], dict[str, Ami | None]] = {}
        """AMIs → instance type → the one it starts from."""

    async def make(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        choice: Choice,
        cluster: Cluster,
        aws: AwsSettings,
        group: api.PlacementGroup | None,
    ) -> tuple[Order, Promised]:
        """The order, and the addresses that are counted on for it.

        Raises:
            InsufficientCapacity, LaunchFailed, UserDataError, AwsError: nothing is promised then.
        """
        groups = self._groups(claim, node_class, choice, group)
        # Before anything is waited for: launches of the same moment must see each other's promises.
        promised = self._addresses.promise(_wanted(groups, choice))
        try:
            configs, reservations = await self._configs(claim, node_class, groups, cluster, aws)
        except BaseException:
            self._addresses.take_back(promised)
            raise
        found = tags.as_tags(tags.of_pool(self._cluster, claim, node_class.spec.tags or {}, cluster.uid))
        is_relaxed = claim.metadata.annotations.get(labels.MIN_VALUES_RELAXED) == "true"
        market = choice.capacity_type
        strategy = (_CORRECTED if is_corrected(claim, choice) else _STRATEGIES)[market]
        on_demand: api.OnDemandOptions | None = api.OnDemandOptions(allocation_strategy=strategy)
        reserved: api.ReservedOptions | None = None
        if market == labels.RESERVED:
            market = labels.ON_DEMAND
            if choice.interruptible:
                market, on_demand = "reserved-capacity", None
                reserved = api.ReservedOptions(reservation_types=("interruptible-capacity-reservation",))
            elif choice.reservation_type == CAPACITY_BLOCK:
                market, on_demand = CAPACITY_BLOCK, None
        is_spot = market == labels.SPOT
        request = api.CreateFleet(
            type="instant",
            launch_template_configs=configs,
            target_capacity_specification=api.TargetCapacity(total_target_capacity=1, default_target_capacity_type=market),
            spot_options=api.SpotOptions(allocation_strategy=strategy) if is_spot else None,
            on_demand_options=None if is_spot else on_demand,
            reserved_capacity_options=reserved,
            tag_specifications=tuple(
                api.TagSpecification(resource_type=kind, tags=found) for kind in ("instance", "volume", "fleet")
            ),
            context="" if is_relaxed else node_class.spec.context or "",
        )
        order = Order(
            claim.metadata.uid,
            node_class.name,
            choice.capacity_type,
            request,
            group.group_id if group else "",
            choice.tenancy,
            choice.partition,
            reservations,
            tuple(b.type.name for b in choice.types),
        )
        return order, promised

    def _groups(self, claim: NodeClaim, node_class: EC2NodeClass, choice: Choice, group: api.PlacementGroup | None) -> Groups:
        """Every kind of machine with what may be bought of it, and for how much."""
        full = {s.id for s in node_class.status.subnets if self._unavailable.subnet_is_full(s.id)}
        subnets = self._addresses.best(node_class.status.subnets, full)
        wants_efa = aws_labels.EFA in claim.spec.resources.requests
        if len(self._images) > REMEMBERED:
            self._images.clear()
        images = self._images.setdefault(node_class.status.amis, {})
        corrected = is_corrected(claim, choice)
        groups: Groups = {}
        for b in choice.types:
            if b.type.name not in images:
                images[b.type.name] = amis.for_type(node_class.status.amis, b.type)
            ami = images[b.type.name]
            if ami is None:
                continue
            for o in b.offerings:
                if o.zone not in subnets:
                    continue
                making = Making(
                    image_id=ami.id,
                    pods=b.type.capacity["pods"] // ONE,
                    capacity_type=choice.capacity_type,
                    efa=b.type.capacity.get(aws_labels.EFA, 0) // ONE if wants_efa else 0,
                    reservation_id=_only(o.requirements.get(aws_labels.CAPACITY_RESERVATION_ID)),
                    reservation_type=choice.reservation_type,
                    interruptible=choice.interruptible,
                    tenancy=choice.tenancy,
                    group_id=group.group_id if group else "",
                    partition=choice.partition,
                )
                override = api.Override(
                    instance_type=b.type.name,
                    subnet_id=subnets[o.zone],
                    availability_zone=o.zone,
                    image_id=ami.id,
                    priority=o.price if corrected else None,
                )
                groups.setdefault(making, []).append((o.price, override))
        if not groups:
            if not any(images[b.type.name] for b in choice.types):
                raise LaunchFailed("AMINotFound", "no AMI of the NodeClass runs on any of the instance types")
            raise InsufficientCapacity("no capacity offerings are currently available given the constraints")
        return groups

    async def _configs(
        self, claim: NodeClaim, node_class: EC2NodeClass, groups: Groups, cluster: Cluster, aws: AwsSettings
    ) -> tuple[tuple[api.TemplateConfig, ...], dict[str, str]]:
        """One template for each kind of machine, with everything that may be bought from it; and place → reservation."""
        now = self._clock.now()
        limit = sorted(price for listed in groups.values() for price, _ in listed)[:MOST_OVERRIDES][-1]
        room = MOST_OVERRIDES
        configs: list[api.TemplateConfig] = []
        reservations: dict[str, str] = {}
        for making, listed in sorted(groups.items(), key=lambda item: msgspec.structs.astuple(item[0])):
            overrides = tuple(o for price, o in listed if price <= limit)[:room]
            room -= len(overrides)
            if not overrides:
                continue
            content = self._content(claim, node_class, making, cluster, aws)
            name = await self._templates.ensure(node_class, content, now, claim.metadata.labels.get(labels.NODEPOOL, ""))
            specification = api.TemplateSpecification(launch_template_name=name, version="$Latest")
            configs.append(api.TemplateConfig(launch_template_specification=specification, overrides=overrides))
            if making.reservation_id:
                reservations.update((place(o.instance_type, o.availability_zone), making.reservation_id) for o in overrides)
        return tuple(configs), reservations

    def _content(
        self, claim: NodeClaim, node_class: EC2NodeClass, making: Making, cluster: Cluster, aws: AwsSettings
    ) -> api.LaunchTemplateData:
        """What the template says; made once for equal machines."""
        boot = boot_of(claim, node_class, making, cluster)
        pool = claim.metadata.labels.get(labels.NODEPOOL, "")
        status = (node_class.status.security_groups, node_class.status.instance_profile)
        key = msgspec.json.encode((node_class.name, node_class.spec, status, pool, making, boot))
        if key not in self._contents:
            if len(self._contents) >= REMEMBERED:
                self._contents.clear()
            found = tags.of_class(self._cluster, node_class.name, node_class.spec.tags or {}) | {tags.NODE_POOL: pool}
            text = userdata.render(node_class, boot)
            self._measures.set("karpenter_ec2nodeclasses_userdata_bytes", len(text.encode()), nodeclass=node_class.name)
            self._contents[key] = templates.data(
                node_class,
                making,
                user_data=userdata.encode(text),
                found=found,
                region=aws.region,
                ipv6=cluster.is_ipv6,
                reserves=aws.reserved_capacity,
            )
        return self._contents[key]


def is_corrected(claim: NodeClaim, choice: Choice) -> bool:
    """Whether EC2 must be told the order: prices of what may be bought now are not its own."""
    is_planned = claim.metadata.annotations.get(labels.PRICE_OVERLAY_APPLIED) == "true"
    return is_planned and any(o.price_overlaid for b in choice.types for o in b.offerings)


def boot_of(claim: NodeClaim, node_class: EC2NodeClass, making: Making, cluster: Cluster) -> Boot:
    """What the machine of a claim is told at its start."""
    custom = node_class.ami_family == "Custom"
    ami = next((a.name for a in node_class.status.amis if a.id == making.image_id), "")
    return Boot(
        cluster_name=cluster.name,
        endpoint=cluster.endpoint,
        ca_bundle=cluster.ca_bundle,
        service_cidr=cluster.service_cidr,
        cluster_dns=(cluster.dns,) if cluster.dns else (),
        max_pods=making.pods,
        labels=node_labels(claim, making.capacity_type, custom=custom),
        taints=node_taints(claim),
        raid0=node_class.spec.instance_store_policy == "RAID0",
        image_name=ami,
    )


def _wanted(groups: Groups, choice: Choice) -> dict[str, int]:
    """Addresses that each subnet may lose: the least that any machine there would take. Source: spec/aws 2.1."""
    pods = {b.type.name: b.type.capacity["pods"] // ONE for b in choice.types}
    found: dict[str, int] = {}
    for listed in groups.values():
        for _, o in listed:
            count = pods[o.instance_type]
            found[o.subnet_id] = min(count, found.get(o.subnet_id, count))
    return found


def _only(requirement: Requirement | None) -> str:
    return min(requirement.values, default="") if requirement is not None else ""
