"""Launch templates: named by what they say, made when first needed, removed after the last use. Source: spec/aws 7.6."""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil

import msgspec

from kubewright.api import quantity
from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws import api, retry, tags
from kubewright.cloud.aws.capacity import GIB, family_of
from kubewright.cloud.aws.errors import TEMPLATE_EXISTS, AwsError, is_not_found

PREFIX = "karpenter.k8s.aws/"
KEEP = timedelta(minutes=5)
"""After the last use. The reference keeps them one minute, which deletes templates that the next batch makes again."""


NO_IPV6_METADATA = frozenset(
    {
        "us-iso-east-1",
        "us-iso-west-1",
        "us-isob-east-1",
        "us-isob-west-1",
        "us-isof-south-1",
        "us-isof-east-1",
    }
)
"""Regions whose EC2 does not know the option. Source: spec/aws 4.1."""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """What, besides the NodeClass, decides a launch template."""

    image_id: str
    pods: int
    capacity_type: str
    efa: int = 0
    """EFA interfaces, where the claim asks for them."""
    reservation_id: str = ""
    reservation_type: str = ""
    interruptible: bool = False
    tenancy: str = "default"
    group_id: str = ""
    partition: int = 0


def data(
    node_class: EC2NodeClass,
    making: Making,
    *,
    user_data: str,
    found: Mapping[str, str],
    region: str = "",
    ipv6: bool = False,
    reserves: bool = True,
) -> api.LaunchTemplateData:
    """What a machine of the NodeClass is made of; `user_data` is base64, `found` the tags of what it makes.

    `reserves`: reserved capacity is bought only where it is asked for by name; without it open reservations fill by themselves.
    """
    spec, options = node_class.spec, node_class.spec.metadata_options
    kinds = ("network-interface", *(("spot-instances-request",) if making.capacity_type == "spot" else ()))
    ipv6_metadata = (options and options.http_protocol_ipv6) or "disabled"
    return api.LaunchTemplateData(
        image_id=making.image_id,
        block_device_mappings=_disks(node_class),
        iam_instance_profile=api.InstanceProfile(name=node_class.status.instance_profile),
        metadata_options=api.MetadataOptions(
            http_endpoint=(options and options.http_endpoint) or "enabled",
            http_protocol_ipv6="" if region in NO_IPV6_METADATA else ipv6_metadata,
            http_put_response_hop_limit=(options and options.http_put_response_hop_limit) or 1,
            http_tokens=(options and options.http_tokens) or "required",
            instance_metadata_tags="disabled",
        ),
        monitoring=api.Monitoring(enabled=spec.detailed_monitoring or False),
        network_interfaces=_interfaces(node_class, making.efa, ipv6),
        tag_specifications=tuple(api.TagSpecification(resource_type=kind, tags=tags.as_tags(found)) for kind in kinds),
        cpu_options=api.CpuOptions(nested_virtualization=spec.cpu_options.nested_virtualization)
        if spec.cpu_options and spec.cpu_options.nested_virtualization
        else None,
        capacity_reservation_specification=_reservation(making) if reserves else None,
        instance_market_options=_market(making),
        placement=api.TemplatePlacement(
            tenancy="" if making.tenancy == "default" else making.tenancy,
            group_id=making.group_id,
            partition_number=making.partition,
        )
        if making.group_id or making.tenancy != "default"
        else None,
        user_data=user_data,
    )


def _reservation(making: Making) -> api.ReservationSpecification:
    if not making.reservation_id:
        return api.ReservationSpecification(capacity_reservation_preference="none")
    target = api.ReservationTarget(capacity_reservation_id=making.reservation_id)
    return api.ReservationSpecification(
        capacity_reservation_preference="capacity-reservations-only", capacity_reservation_target=target
    )


def _market(making: Making) -> api.MarketOptions | None:
    if making.interruptible:
        return api.MarketOptions(market_type="interruptible-capacity-reservation")
    return api.MarketOptions(market_type="capacity-block") if making.reservation_type == "capacity-block" else None


def _disks(node_class: EC2NodeClass) -> tuple[api.BlockDevice, ...]:
    mappings = node_class.spec.block_device_mappings or family_of(node_class).block_devices
    found = []
    for m in mappings:
        if not m.device_name or m.ebs is None:
            continue
        e = m.ebs
        ebs = api.Ebs(
            delete_on_termination=e.delete_on_termination,
            encrypted=e.encrypted,
            iops=e.iops or 0,
            kms_key_id=e.kms_key_id or "",
            snapshot_id=e.snapshot_id or "",
            throughput=e.throughput or 0,
            volume_initialization_rate=e.volume_initialization_rate or 0,
            volume_size=ceil(quantity.parse(e.volume_size) / GIB) if e.volume_size else 0,
            volume_type=e.volume_type or "",
        )
        found.append(api.BlockDevice(device_name=m.device_name, ebs=ebs))
    return tuple(found)


def _interfaces(node_class: EC2NodeClass, efa: int, ipv6: bool) -> tuple[api.NetworkInterface, ...]:
    """Always present, so the security groups are here and nowhere else.

    Those that the class lists; else, where the claim asks for EFA, as many of that kind as the type has; else one.
    """
    spec = node_class.spec
    if spec.network_interfaces:
        wanted = [(i.network_card_index, i.device_index, i.interface_type) for i in spec.network_interfaces]
    elif efa:
        wanted = [(card, min(card, 1), "efa") for card in range(efa)]
    else:
        wanted = [(0, 0, "")]
    return tuple(_interface(node_class, card, device, kind, ipv6) for card, device, kind in wanted)


def _interface(node_class: EC2NodeClass, card: int, device: int, kind: str, ipv6: bool) -> api.NetworkInterface:
    spec = node_class.spec
    tracking, carries_ip = spec.connection_tracking, kind != "efa-only"
    prefixes = (spec.ip_prefix_count or 0) if carries_ip else 0
    is_first = carries_ip and card == 0 and device == 0
    return api.NetworkInterface(
        device_index=device,
        network_card_index=card if kind else None,
        interface_type=kind,
        groups=tuple(g.id for g in node_class.status.security_groups),
        associate_public_ip_address=spec.associate_public_ip_address if carries_ip else None,
        ipv4_prefix_count=0 if ipv6 else prefixes,
        ipv6_prefix_count=prefixes if ipv6 else 0,
        ipv6_address_count=1 if ipv6 and is_first else 0,
        primary_ipv6=True if ipv6 and is_first else None,
        connection_tracking_specification=api.ConnectionTracking(
            tcp_established_timeout=tracking.tcp_established_timeout or 0,
            udp_stream_timeout=tracking.udp_stream_timeout or 0,
            udp_timeout=tracking.udp_timeout or 0,
        )
        if tracking is not None and carries_ip
        else None,
    )


def name_of(content: api.LaunchTemplateData, cluster: str, node_class: str) -> str:
    """Equal contents, equal names; the hash is wide enough that different ones never meet."""
    encoded = msgspec.json.encode((cluster, node_class, content), order="deterministic")
    return PREFIX + str(int.from_bytes(hashlib.sha256(encoded).digest()[:16], "big"))


class LaunchTemplates:
    """The templates of one cluster."""

    def __init__(self, ec2: api.Ec2Api, cluster: str) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._used: dict[str, datetime] = {}
        self._making: dict[str, asyncio.Lock] = {}

    async def ensure(self, node_class: EC2NodeClass, content: api.LaunchTemplateData, now: datetime, pool: str) -> str:
        """The name of a template that says `content`, for launches of `pool`. Safe to repeat. Raises AwsError."""
        name = name_of(content, self._cluster, node_class.name)
        # One call, however many launches want the template at the same time.
        async with self._making.setdefault(name, asyncio.Lock()):
            if name not in self._used:
                await self._create(name, node_class, content, pool)
            self._used[name] = now
        return name

    async def _create(self, name: str, node_class: EC2NodeClass, content: api.LaunchTemplateData, pool: str) -> None:
        # IAM policies let nobody make, use or delete a template without the pool's tag.
        marks = {**tags.of_class(self._cluster, node_class.name, node_class.spec.tags or {}), tags.NODE_POOL: pool}
        found = tags.as_tags(marks)
        request = api.CreateLaunchTemplate(
            launch_template_name=name,
            launch_template_data=content,
            client_token=hashlib.sha256(name.encode()).hexdigest(),
            tag_specifications=(api.TagSpecification(resource_type="launch-template", tags=found),),
        )
        try:
            await retry.call(self._ec2.create_launch_template, request)
        except AwsError as error:
            if error.code != TEMPLATE_EXISTS:
                raise

    def forget(self) -> None:
        """Somebody deleted a template under us: make them again when they are next asked for."""
        self._used.clear()

    async def collect(self, now: datetime) -> None:
        """Delete ours that were not used for `KEEP`, those of an earlier run too."""
        for template in await self._owned(()):
            used = self._used.setdefault(template.launch_template_name, now)
            if used + KEEP <= now:
                await self._delete(template.launch_template_name)

    async def remove_class(self, node_class: str) -> None:
        """Delete everything that belongs to a NodeClass."""
        for template in await self._owned((api.Filter(name=f"tag:{tags.NODE_CLASS}", values=(node_class,)),)):
            await self._delete(template.launch_template_name)

    async def _owned(self, more: tuple[api.Filter, ...]) -> list[api.LaunchTemplate]:
        ours = api.Filter(name=f"tag:{tags.CLUSTER}", values=(self._cluster,))
        request = api.DescribeLaunchTemplates(filters=(ours, *more), max_results=200)
        found = [t async for page in retry.pages(self._ec2.describe_launch_templates, request) for t in page.launch_templates]
        return sorted((t for t in found if t.launch_template_name.startswith(PREFIX)), key=lambda t: t.launch_template_name)

    async def _delete(self, name: str) -> None:
        self._used.pop(name, None)
        self._making.pop(name, None)
        try:
            await retry.call(self._ec2.delete_launch_template, api.DeleteLaunchTemplate(launch_template_name=name))
        except AwsError as error:
            if not is_not_found(error):
                raise
