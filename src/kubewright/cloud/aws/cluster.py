"""What nodes must know of their cluster: endpoint, CA, version, service range, DNS address."""

import msgspec
import structlog

from kubewright.api.core import Namespace, Service
from kubewright.cloud.aws import api, retry
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.settings import AwsSettings
from kubewright.errors import KubeError, NotFound
from kubewright.kube.client import KubeClient


class Cluster(msgspec.Struct, frozen=True):
    name: str
    endpoint: str
    ca_bundle: str
    """Base64."""
    version: str
    """ "1.36"; "" if EKS could not be asked."""
    service_cidr: str
    arn: str = ""
    uid: str = ""
    """Of the namespace kube-system: what tells this cluster from another one of the same name."""
    dns: str = ""
    """ClusterIP of kube-dns, "" if unknown."""

    @property
    def is_ipv6(self) -> bool:
        return ":" in (self.service_cidr or self.dns)


async def describe(ec2: api.Ec2Api, kube: KubeClient, name: str, settings: AwsSettings) -> Cluster:
    """From EKS and the cluster itself, with what the settings say instead.

    Where endpoint and CA are set, EKS need not answer: what only it knows is then left empty, and whoever needs it says so.

    Raises:
        AwsError: EKS does not know the cluster, or may not be asked.
        KubeError: the API server does not answer.
    """
    try:
        found = (await retry.call(ec2.describe_cluster, api.DescribeCluster(name=name))).cluster
    except AwsError as error:
        if not (settings.cluster_endpoint and settings.cluster_ca_bundle):
            raise
        structlog.get_logger("kubewright.aws").warning("EKS does not describe the cluster, going on with flags", error=str(error))
        found = api.EksCluster(name=name)
    network = found.kubernetes_network_config
    return Cluster(
        name,
        settings.cluster_endpoint or found.endpoint,
        settings.cluster_ca_bundle or found.certificate_authority.data,
        found.version,
        network.service_ipv4_cidr or network.service_ipv6_cidr,
        found.arn,
        await _uid(kube),
        settings.cluster_dns or await _dns(kube),
    )


async def _uid(kube: KubeClient) -> str:
    try:
        return (await kube.get(Namespace, "kube-system")).metadata.uid
    except NotFound:
        return ""


async def _dns(kube: KubeClient) -> str:
    """Without it the image's own default holds. Source: spec/aws 12 (not fatal)."""
    try:
        found = (await kube.get(Service, "kube-dns", "kube-system")).spec.cluster_ip
    except KubeError:
        return ""
    return "" if found == "None" else found
