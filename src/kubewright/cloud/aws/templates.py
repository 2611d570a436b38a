"""Launch templates: named by what they say, made when first needed, removed after the last use. Source: spec/aws 7.6."""

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


def data(
    node_class: EC2NodeClass, *, image_id: str, user_data: str, capacity_type: str, found: Mapping[str, str]
) -> api.LaunchTemplateData:
    """What a machine of the NodeClass is made of; `user_data` is base64, `found` the tags of what it makes."""
    spec, options = node_class.spec, node_class.spec.metadata_options
    kinds = ("network-interface", *(("spot-instances-request",) if capacity_type == "spot" else ()))
    return api.LaunchTemplateData(
        image_id=image_id,
        block_device_mappings=_disks(node_class),
        iam_instance_profile=api.InstanceProfile(name=node_class.status.instance_profile),
        metadata_options=api.MetadataOptions(
            http_endpoint=(options and options.http_endpoint) or "enabled",
            http_protocol_ipv6=(options and options.http_protocol_ipv6) or "disabled",
            http_put_response_hop_limit=(options and options.http_put_response_hop_limit) or 1,
            http_tokens=(options and options.http_tokens) or "required",
            instance_metadata_tags="disabled",
        ),
        monitoring=api.Monitoring(enabled=spec.detailed_monitoring or False),
        network_interfaces=_interfaces(node_class),
        tag_specifications=tuple(api.TagSpecification(resource_type=kind, tags=tags.as_tags(found)) for kind in kinds),
        user_data=user_data,
    )


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


def _interfaces(node_class: EC2NodeClass) -> tuple[api.NetworkInterface, ...]:
    """Always present, so the security groups are here and nowhere else."""
    spec = node_class.spec
    groups = tuple(g.id for g in node_class.status.security_groups)
    wanted = spec.network_interfaces
    if not wanted:
        public, prefixes = spec.associate_public_ip_address, spec.ip_prefix_count or 0
        return (
            api.NetworkInterface(device_index=0, groups=groups, associate_public_ip_address=public, ipv4_prefix_count=prefixes),
        )
    return tuple(
        api.NetworkInterface(
            device_index=i.device_index,
            network_card_index=i.network_card_index,
            interface_type=i.interface_type,
            groups=groups,
            associate_public_ip_address=None if i.interface_type == "efa-only" else spec.associate_public_ip_address,
            ipv4_prefix_count=0 if i.interface_type == "efa-only" else spec.ip_prefix_count or 0,
        )
        for i in wanted
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

    async def ensure(self, node_class: EC2NodeClass, content: api.LaunchTemplateData, now: datetime) -> str:
        """The name of a template that says `content`. Safe to repeat. Raises AwsError."""
        name = name_of(content, self._cluster, node_class.name)
        if name in self._used:
            self._used[name] = now
            return name
        found = tags.as_tags(tags.of_class(self._cluster, node_class.name, node_class.spec.tags or {}))
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
        self._used[name] = now
        return name

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
        try:
            await retry.call(self._ec2.delete_launch_template, api.DeleteLaunchTemplate(launch_template_name=name))
        except AwsError as error:
            if not is_not_found(error):
                raise
