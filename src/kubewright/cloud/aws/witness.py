"""Hears what registered nodes tell of their memory, for `observed`."""

from kubewright.api import labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import drift
from kubewright.cloud.aws.observed import Observed
from kubewright.kube.client import KubeClient
from kubewright.kube.informer import Informer


class Witness:
    """The informers of NodeClasses and NodeClaims are run by others."""

    def __init__(
        self,
        kube: KubeClient,
        clock: Clock,
        classes: Informer[EC2NodeClass],
        claims: Informer[NodeClaim],
        observed: Observed,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._classes = classes
        self._observed = observed
        self._claims: dict[str, NodeClaim] = {}
        """By provider id."""
        claims.subscribe(self._heard)

    async def run(self) -> None:
        """Until cancelled."""
        nodes = Informer(self._kube, Node)
        nodes.subscribe(lambda _, new: self._saw(new) if new is not None else None)
        await nodes.run()

    def _heard(self, old: NodeClaim | None, new: NodeClaim | None) -> None:
        if old is not None:
            self._claims.pop(old.status.provider_id, None)
        if new is not None and new.status.provider_id:
            self._claims[new.status.provider_id] = new

    def _saw(self, node: Node) -> None:
        found = node.metadata.labels
        if found.get(labels.REGISTERED) != "true" or not node.spec.provider_id.startswith("aws:///"):
            return
        claim = self._claims.get(node.spec.provider_id)
        node_class = self._classes.get(claim.spec.node_class_ref.name) if claim is not None else None
        if claim is None or node_class is None or drift.of_hash(claim, node_class):
            return  # not ours, or made from another kubelet configuration
        self._observed.saw(
            found.get(labels.INSTANCE_TYPE, ""),
            claim.status.image_id,
            node_class,
            node.status.capacity,
            node.status.allocatable,
            self._clock.now(),
        )
