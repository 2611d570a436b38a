"""Instance profiles for NodeClasses that name a role. Source: spec/aws 3.

Different from the reference on purpose: a profile's name follows from cluster, region, NodeClass and role, not from chance, so
that a crash between its creation and the status that names it leaves none behind.
"""

import hashlib
from collections.abc import Collection
from datetime import datetime, timedelta

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws import api, retry, tags
from kubewright.cloud.aws.errors import AwsError, is_not_found
from kubewright.errors import CloudError

MISSING_FOR = timedelta(minutes=1)
YOUNG = timedelta(hours=1)
"""A profile so new may be one whose NodeClass status has not been written yet."""
COLLECT_EVERY = timedelta(minutes=30)


class RoleMissing(CloudError):
    """IAM does not know the role."""


class MissingRoles:
    """Roles that IAM did not know a moment ago: not asked for again at every look."""

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def note(self, role: str, now: datetime) -> None:
        self._until[role] = now + MISSING_FOR

    def has(self, role: str, now: datetime) -> bool:
        return self._until.get(role, now) > now


def root(region: str, cluster: str) -> str:
    return f"/karpenter/{region}/{cluster}/"


def path(region: str, cluster: str, uid: str) -> str:
    return f"{root(region, cluster)}{uid}/"


def name_of(cluster: str, region: str, node_class: EC2NodeClass) -> str:
    text = f"{region}\n{node_class.metadata.uid}\n{node_class.spec.role}"
    return f"{cluster}_{int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big')}"[:128]


async def ensure(
    ec2: api.Ec2Api, cluster: str, region: str, node_class: EC2NodeClass, missing: MissingRoles, now: datetime
) -> str:
    """The name of a profile that holds the NodeClass's role. Safe to repeat.

    Raises:
        RoleMissing: IAM has no such role.
        AwsError: IAM refuses, or does not answer.
    """
    name, role = name_of(cluster, region, node_class), node_class.spec.role.rpartition("/")[2]
    profile = await _get(ec2, name)
    if profile is None:
        if missing.has(role, now):
            raise RoleMissing(_text(role))
        wanted = tags.of_class(cluster, node_class.name, node_class.spec.tags or {})
        request = api.CreateInstanceProfile(
            instance_profile_name=name,
            path=path(region, cluster, node_class.metadata.uid),
            tags=tags.as_tags({**wanted, "topology.kubernetes.io/region": region}),
        )
        profile = (await retry.call(ec2.create_instance_profile, request)).instance_profile
    held = [r.role_name for r in profile.roles]
    if held == [role]:
        return name
    for other in held:  # somebody else's work: a profile holds one role
        await retry.call(ec2.remove_role_from_instance_profile, api.ProfileRole(instance_profile_name=name, role_name=other))
    try:
        await retry.call(ec2.add_role_to_instance_profile, api.ProfileRole(instance_profile_name=name, role_name=role))
    except AwsError as error:
        if error.code == "NoSuchEntity" and "role" in error.message.lower():
            missing.note(role, now)
            await remove(ec2, name)
            raise RoleMissing(_text(role)) from error
        raise
    return name


def _text(role: str) -> str:
    return f"spec.role: IAM has no role {role!r}; write the name of the nodes' role"


async def _get(ec2: api.Ec2Api, name: str) -> api.InstanceProfileInfo | None:
    try:
        request = api.GetInstanceProfile(instance_profile_name=name)
        return (await retry.call(ec2.get_instance_profile, request)).instance_profile
    except AwsError as error:
        if is_not_found(error):
            return None
        raise


async def remove(ec2: api.Ec2Api, name: str) -> None:
    """Safe to repeat; a profile that is gone is fine."""
    profile = await _get(ec2, name)
    if profile is None:
        return
    try:
        for role in profile.roles:
            request = api.ProfileRole(instance_profile_name=name, role_name=role.role_name)
            await retry.call(ec2.remove_role_from_instance_profile, request)
        await retry.call(ec2.delete_instance_profile, api.DeleteInstanceProfile(instance_profile_name=name))
    except AwsError as error:
        if not is_not_found(error):
            raise


async def under(ec2: api.Ec2Api, prefix: str) -> list[api.InstanceProfileInfo]:
    """Profiles whose path begins so, by name. The answer's own filter is not relied on."""
    found: list[api.InstanceProfileInfo] = []
    marker = ""
    while True:
        page = await retry.call(ec2.list_instance_profiles, api.ListInstanceProfiles(path_prefix=prefix, marker=marker))
        found += page.instance_profiles
        if not page.is_truncated or not page.marker:
            break
        marker = page.marker
    return sorted((p for p in found if p.path.startswith(prefix)), key=lambda p: p.instance_profile_name)


async def remove_all(ec2: api.Ec2Api, cluster: str, region: str, node_class: EC2NodeClass) -> None:
    """Everything that was ever made for the NodeClass."""
    for profile in await under(ec2, path(region, cluster, node_class.metadata.uid)):
        await remove(ec2, profile.instance_profile_name)


async def collect(ec2: api.Ec2Api, cluster: str, region: str, used: Collection[str], now: datetime) -> list[str]:
    """Remove this cluster's profiles that neither a NodeClass nor a NodeClaim names, and that are not new; their names."""
    gone = []
    for profile in await under(ec2, root(region, cluster)):
        name, made = profile.instance_profile_name, profile.create_date
        if name in used or made is None or made + YOUNG > now:
            continue
        await remove(ec2, name)
        gone.append(name)
    return gone
