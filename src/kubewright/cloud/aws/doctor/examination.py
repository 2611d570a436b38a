"""The whole examination, in the order in which things depend on each other."""

from collections.abc import Sequence

from kubewright.api.aws import EC2NodeClass
from kubewright.clock import Clock
from kubewright.cloud.aws import api
from kubewright.cloud.aws.doctor import account, network, pods
from kubewright.cloud.aws.doctor.findings import Finding
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.kube.client import KubeClient


async def examine(
    ec2: api.DoctorApi, kube: KubeClient | None, clock: Clock, cluster: str, settings: AwsSettings
) -> list[Finding]:
    """Everything that could be looked at; without `kube` only what AWS tells.

    Raises:
        KubeError: the API server does not answer.
    """
    classes: Sequence[EC2NodeClass] = ()
    if kube is not None:
        classes = sorted((await kube.list(EC2NodeClass)).items, key=lambda c: c.name)
    found = await account.caller(ec2)
    found += await account.cluster(ec2, cluster)
    found += await account.permissions(ec2, cluster, settings, clock.now())
    found += await account.queue(ec2, settings)
    found += await account.quotas(ec2, cluster)
    for node_class in classes:
        found += await account.node_class(ec2, node_class)
        found += await network.of_class(ec2, node_class, settings.region)
    if kube is not None:
        found += await pods.stuck(kube, clock.now(), found)
    return found
