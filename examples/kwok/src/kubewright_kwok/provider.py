"""NodeClaims in, Nodes out. The Node is the machine: while it is there, the machine runs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from kubewright.api import duration, labels, quantity
from kubewright.api.core import Node, NodeSpec
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object, ObjectMeta, find_condition
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.cloud.plugins import Startup
from kubewright.cloud.provider import Background, Instance, NodeClassKind, RepairPolicy
from kubewright.errors import InstanceNotFound, InsufficientCapacity, LaunchFailed, NodeClassNotReady, NotFound
from kubewright.kube.client import KubeClient
from kubewright.scheduling import requirements
from kubewright_kwok import catalogue
from kubewright_kwok.kubelets import FullNode, FullNodeStatus, Kubelets, NodeInfo
from kubewright_kwok.nodeclass import KwokNodeClass

PREFIX = "kwok://"
KWOK = {"kwok.x-k8s.io/node": "fake"}
"""How kwok, and Karpenter's kwok provider, know a Node of theirs."""
PRICE, PARTITION = "eks-node-viewer/instance-price", "kwok-partition"
_CHOSEN = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)
"""Labels by which a NodeClaim says what was bought for it."""
UNWELL_FOR = timedelta(minutes=10)


async def make(startup: Startup) -> "KwokProvider":
    """The entry point `kwok`. Raises ConfigError: the file of instance types cannot be read."""
    return KwokProvider(startup.client, catalogue.load(startup.environment.get("INSTANCE_TYPES_FILE_PATH", "")))


class KwokProvider:
    """`cloud.provider.CloudProvider`, with a catalogue that never changes."""

    name = "kwok"
    node_class_kinds: Sequence[NodeClassKind] = (NodeClassKind(catalogue.GROUP, "KWOKNodeClass"),)
    node_class_types: Sequence[type[Object]] = (KwokNodeClass,)
    well_known_labels = catalogue.WELL_KNOWN
    label_aliases = labels.ALIASES

    def __init__(self, client: KubeClient, types: tuple[InstanceType, ...]) -> None:
        self._client = client
        self._types = types
        self._by_name = {one.name: one for one in types}
        self._kubelets = Kubelets(client, self._missing)

    def background(self) -> Sequence[Background]:
        return (self._kubelets,)

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        await self._node_class(pool.spec.template.spec.node_class_ref.name)
        return self._types

    async def create(self, claim: NodeClaim) -> Instance:
        node_class = await self._node_class(claim.spec.node_class_ref.name)
        node = self.node(claim)
        try:
            return self._instance(await self._client.get(Node, node.name))
        except NotFound:
            pass
        written = node_class.spec.node_registration_delay
        self._kubelets.start(node, duration.parse(written) if written else timedelta())
        return self._instance(node)

    async def delete(self, provider_id: str) -> None:
        node = await self._node(provider_id)
        if node.metadata.deletion_timestamp is not None:
            # The operator's own finalizer holds it: it has been drained, and nothing runs any more.
            raise InstanceNotFound(f"{provider_id} is gone")
        await self._client.delete(Node, node.name, uid=node.metadata.uid)

    async def get(self, provider_id: str) -> Instance:
        node = await self._node(provider_id)
        if node.metadata.deletion_timestamp is not None:
            raise InstanceNotFound(f"{provider_id} is going")
        return self._instance(node)

    async def list(self) -> Sequence[Instance]:
        found = (await self._client.list(Node)).items
        return [self._instance(node) for node in found if node.spec.provider_id.startswith(PREFIX)]

    async def drift_reason(self, claim: NodeClaim) -> str:
        del claim
        return ""

    def repair_policies(self) -> Sequence[RepairPolicy]:
        return tuple(RepairPolicy("Ready", status, UNWELL_FOR) for status in ("False", "Unknown"))

    async def close(self) -> None:
        return

    # --- how a claim becomes a Node --------------------------------------------------------------------------------------

    def node(self, claim: NodeClaim) -> FullNode:
        """The claim's machine, the same one whenever it is asked for.

        Raises:
            InsufficientCapacity: nothing that is sold suits the claim.
        """
        kind, offering = self._cheapest(claim)
        # Another operator may have bought it, and have ended before its Node was there.
        name = claim.status.provider_id.removeprefix(PREFIX) or f"kwok-{claim.name}-{claim.metadata.uid[:8]}"
        allocatable = {**claim.spec.resources.requests, **_shown(kind.allocatable(offering))}
        return FullNode(
            metadata=ObjectMeta(
                name=name, labels=_labels(claim, kind, offering), annotations={**claim.metadata.annotations, **KWOK}
            ),
            spec=NodeSpec(provider_id=PREFIX + name, taints=(labels.UNREGISTERED_TAINT,)),
            status=FullNodeStatus(
                capacity={**claim.spec.resources.requests, **_shown(kind.capacity)},
                allocatable=allocatable,
                node_info=NodeInfo(
                    architecture=kind.requirements[labels.ARCH].any(), operating_system=kind.requirements[labels.OS].any()
                ),
            ),
        )

    def _cheapest(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        wanted = requirements.of_expressions(claim.spec.requirements)
        if claim.status.provider_id:
            bought = {key: claim.metadata.labels[key] for key in _CHOSEN if key in claim.metadata.labels}
            wanted = requirements.both(wanted, requirements.of_labels(bought))
        named = wanted.get(labels.INSTANCE_TYPE)
        if named is None:
            raise LaunchFailed("NoInstanceTypes", f"NodeClaim {claim.name} names no instance types")
        found = [
            (offering.price, kind.name, offering.zone, index, kind, offering)
            for kind in (self._by_name[name] for name in named.values if name in self._by_name)
            for index, offering in enumerate(kind.offerings)
            if requirements.conflict({**kind.requirements, **offering.requirements}, wanted) is None
        ]
        if not found:
            raise InsufficientCapacity(f"none of {len(named.values)} instance types is sold as NodeClaim {claim.name} wants it")
        *_, kind, offering = min(found, key=lambda one: one[:4])
        return kind, offering

    async def _missing(self) -> Sequence[FullNode]:
        """Nodes of machines that were bought and have not joined: an operator before this one may have ended meanwhile."""
        here = {node.spec.provider_id for node in (await self._client.list(Node)).items}
        claims = (await self._client.list(NodeClaim)).items
        return [self.node(claim) for claim in sorted(claims, key=lambda c: c.name) if self._is_late(claim, here)]

    def _is_late(self, claim: NodeClaim, here: set[str]) -> bool:
        registered = find_condition(claim.status.conditions, "Registered")
        return (
            claim.spec.node_class_ref.group == catalogue.GROUP
            and claim.metadata.deletion_timestamp is None
            and claim.status.provider_id.startswith(PREFIX)
            and claim.status.provider_id not in here
            and (registered is None or registered.status != "True")
        )

    async def _node(self, provider_id: str) -> Node:
        try:
            return await self._client.get(Node, provider_id.removeprefix(PREFIX))
        except NotFound as error:
            raise InstanceNotFound(f"{provider_id} is gone") from error

    async def _node_class(self, name: str) -> KwokNodeClass:
        try:
            found = await self._client.get(KwokNodeClass, name)
        except NotFound as error:
            raise NodeClassNotReady(f"KWOKNodeClass {name!r} is not there") from error
        ready = find_condition(found.status.conditions, "Ready")
        if ready is not None and ready.status == "False":
            raise NodeClassNotReady(ready.message or f"KWOKNodeClass {name!r} is not ready")
        return found

    def _instance(self, node: Node) -> Instance:
        return Instance(
            provider_id=node.spec.provider_id,
            labels=dict(node.metadata.labels),
            annotations=KWOK,
            capacity={name: str(amount) for name, amount in node.status.capacity.items()},
            allocatable={name: str(amount) for name, amount in node.status.allocatable.items()},
            terminating=node.metadata.deletion_timestamp is not None,
        )


def _labels(claim: NodeClaim, kind: InstanceType, offering: Offering) -> dict[str, str]:
    """Those of the claim, then whatever claim, type and offering leave no choice about."""
    single = {r.key: r.values[0] for r in claim.spec.requirements if r.operator == "In" and len(r.values) == 1}
    fixed = {
        key: one.any()
        for key, one in {**kind.requirements, **offering.requirements}.items()
        if not one.complement and len(one.values) == 1
    }
    own = {PRICE: f"{offering.price:f}", PARTITION: "a", labels.HOSTNAME: claim.name, **KWOK}
    return {**claim.metadata.labels, **single, **fixed, **own}


def _shown(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity.show(amount) for name, amount in amounts.items()}
