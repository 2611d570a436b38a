"""What nodes must know of their cluster: endpoint, CA, version, service range."""

import msgspec

from kubewright.cloud.aws import api, retry
from kubewright.cloud.aws.settings import AwsSettings


class Cluster(msgspec.Struct, frozen=True):
    name: str
    endpoint: str
    ca_bundle: str
    """Base64."""
    version: str
    """ "1.36"."""
    service_cidr: str
    arn: str = ""
    uid: str = ""
    """Of the namespace kube-system: what tells this cluster from another one of the same name."""

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.service_cidr


async def describe(ec2: api.Ec2Api, name: str, settings: AwsSettings, uid: str = "") -> Cluster:
    """From EKS, with what the settings say instead.

    Raises:
        AwsError: EKS does not know the cluster, or may not be asked.
    """
    found = (await retry.call(ec2.describe_cluster, api.DescribeCluster(name=name))).cluster
    network = found.kubernetes_network_config
    return Cluster(
        name,
        settings.cluster_endpoint or found.endpoint,
        settings.cluster_ca_bundle or found.certificate_authority.data,
        found.version,
        network.service_ipv4_cidr or network.service_ipv6_cidr,
        found.arn,
        uid,
    )
