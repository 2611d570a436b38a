"""Instance profiles for NodeClasses that name a role. Source: spec/aws 3.

Different from the reference on purpose: the name follows from cluster, NodeClass and role instead of chance, so that a crash
between creating a profile and writing the status leaves nothing behind.
"""

import hashlib

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws import api, retry, tags
from kubewright.cloud.aws.errors import AwsError, is_not_found


def path(region: str, cluster: str, uid: str) -> str:
    return f"/karpenter/{region}/{cluster}/{uid}/"


def name_of(cluster: str, region: str, node_class: EC2NodeClass) -> str:
    text = f"{region}\n{node_class.metadata.uid}\n{node_class.spec.role}"
    return f"{cluster}_{int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big')}"[:128]


async def ensure(ec2: api.Ec2Api, cluster: str, region: str, node_class: EC2NodeClass) -> str:
    """The name of a profile that holds the NodeClass's role. Safe to repeat.

    Raises:
        AwsError: the role does not exist, or IAM refuses.
    """
    name, role = name_of(cluster, region, node_class), node_class.spec.role.rpartition("/")[2]
    try:
        profile = (
            await retry.call(ec2.get_instance_profile, api.GetInstanceProfile(instance_profile_name=name))
        ).instance_profile
    except AwsError as error:
        if not is_not_found(error):
            raise
        wanted = tags.of_class(cluster, node_class.name, node_class.spec.tags or {})
        request = api.CreateInstanceProfile(
            instance_profile_name=name,
            path=path(region, cluster, node_class.metadata.uid),
            tags=tags.as_tags({**wanted, "topology.kubernetes.io/region": region}),
        )
        profile = (await retry.call(ec2.create_instance_profile, request)).instance_profile
    if not profile.roles:
        await retry.call(ec2.add_role_to_instance_profile, api.ProfileRole(instance_profile_name=name, role_name=role))
    return name


async def remove(ec2: api.Ec2Api, name: str) -> None:
    """Safe to repeat; a profile that is gone is fine."""
    try:
        profile = (
            await retry.call(ec2.get_instance_profile, api.GetInstanceProfile(instance_profile_name=name))
        ).instance_profile
        for role in profile.roles:
            request = api.ProfileRole(instance_profile_name=name, role_name=role.role_name)
            await retry.call(ec2.remove_role_from_instance_profile, request)
        await retry.call(ec2.delete_instance_profile, api.DeleteInstanceProfile(instance_profile_name=name))
    except AwsError as error:
        if not is_not_found(error):
            raise
