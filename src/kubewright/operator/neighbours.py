"""Who else runs the cluster's machines: nobody starts beside them by accident.

One Lease alone keeps two from acting at the same time, but would let a restart of the one hand the cluster to the other unasked.
"""

import structlog

from kubewright.api.core import Deployment, Node
from kubewright.errors import ConfigError, Forbidden, KubeError
from kubewright.kube.client import KubeClient

KARPENTER = "app.kubernetes.io/name=karpenter"
"""The label of Karpenter's Deployment, whatever its release is called."""
AUTO_MODE = "eks.amazonaws.com/compute-type=auto"
"""The label of Nodes that EKS Auto Mode manages."""


async def refuse_company(client: KubeClient) -> None:
    """Return if nobody else manages machines here.

    Raises:
        ConfigError: a Karpenter is scaled up, EKS Auto Mode manages Nodes, or it cannot be found out.
    """
    try:
        deployments = (await client.list(Deployment, labels=KARPENTER)).items
        nodes = (await client.list(Node, labels=AUTO_MODE)).items
    except Forbidden as error:
        raise ConfigError(
            f"whether a Karpenter runs here cannot be found out ({error}): allow it, as the chart does, or add --take-over if you"
            " know that none does"
        ) from error
    running = sorted(f"{d.namespace}/{d.name}" for d in deployments if d.spec.replicas is None or d.spec.replicas > 0)
    if running:
        namespace, _, name = running[0].partition("/")
        raise ConfigError(
            f"Karpenter is scaled up ({', '.join(running)}), and two must not manage the same machines: scale it down (kubectl"
            f" -n {namespace} scale deployment/{name} --replicas=0), see `kubewright takeover check`, or add --take-over to wait"
            " for its lease and then take over; --shadow only looks"
        )
    if nodes:
        first = min(node.name for node in nodes)
        raise ConfigError(
            f"EKS Auto Mode manages {len(nodes)} Nodes of this cluster ({first}, ...): turn it off, or add --take-over to run"
            " beside it; its NodePools (of other NodeClasses) are left alone either way"
        )


async def look_out(client: KubeClient) -> None:
    """As `refuse_company`, on becoming the leader; a server that cannot answer now is no reason to stay out.

    Raises:
        ConfigError: somebody else is there.
    """
    try:
        await refuse_company(client)
    except KubeError as error:
        structlog.get_logger("kubewright.operator").warning("whether a Karpenter runs cannot be asked now", error=str(error))
