"""What a cloud must do for kubewright. Third parties offer one by the entry point group `kubewright.cloud`.

Source: spec/scheduling 0.6.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import msgspec

from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import Object
from kubewright.catalogue.types import InstanceType
from kubewright.metrics import Registry


class NodeClassKind(msgspec.Struct, frozen=True):
    group: str
    kind: str


class Instance(msgspec.Struct, frozen=True):
    """A machine as the cloud reports it, in NodeClaim terms."""

    provider_id: str
    labels: Mapping[str, str] = {}
    """instance-type, zone, capacity-type, arch, … and the NodePool and NodeClaim it was bought for, from tags."""
    annotations: Mapping[str, str] = {}
    capacity: Mapping[str, str] = {}
    """Quantities as text, as NodeClaim status shows them."""
    allocatable: Mapping[str, str] = {}
    image_id: str = ""
    node_claim: str = ""
    """Name of the NodeClaim it was bought for, "" if unknown."""
    terminating: bool = False


class RepairPolicy(msgspec.Struct, frozen=True):
    condition_type: str
    condition_status: str
    toleration: timedelta


class CloudProvider(Protocol):
    name: str
    node_class_kinds: Sequence[NodeClassKind]
    """The first is the default kind."""
    well_known_labels: frozenset[str]
    """Labels this cloud's nodes carry beyond the core's well-known ones."""
    label_aliases: Mapping[str, str]

    async def create(self, claim: NodeClaim) -> Instance:
        """Buy a machine for `claim`. Safe to repeat for the same claim UID: the same machine is returned.

        Raises:
            InsufficientCapacity: nothing the claim allows can be bought now.
            NodeClassNotReady: the NodeClass cannot serve launches.
            LaunchFailed: carries what to show on the Launched condition.
        """
        ...

    async def delete(self, provider_id: str) -> None:
        """Ask for the end of a machine. Raises InstanceNotFound once it is gone, which is how the caller learns it."""
        ...

    async def get(self, provider_id: str) -> Instance:
        """Raises InstanceNotFound."""
        ...

    async def list(self) -> Sequence[Instance]:
        """All machines this cluster owns. Raises rather than answering with a part."""
        ...

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        """All types for the pool's NodeClass, unavailable ones too; the same object while nothing changed.

        Raises:
            NodeClassNotReady: the NodeClass is missing or not ready.
        """
        ...

    async def drift_reason(self, claim: NodeClaim) -> str:
        """Why the machine no longer matches its NodeClass, or ""."""
        ...

    def repair_policies(self) -> Sequence[RepairPolicy]: ...

    async def close(self) -> None:
        """Let go of connections and background work."""
        ...


class Background(Protocol):
    """Work of a provider that the operator runs beside its own controllers, while it leads: it is cancelled at the end."""

    name: str

    async def run(self) -> None: ...


@runtime_checkable
class HasNodeClasses(Protocol):
    """A provider whose NodeClasses are objects in the cluster."""

    node_class_types: Sequence[type[Object]]
    """Each has `status.conditions`; its Ready decides whether NodePools may use it."""


@runtime_checkable
class HasBackground(Protocol):
    """A provider with controllers of its own: its NodeClass reconciler, interruptions, collection of orphaned machines."""

    def background(self) -> Sequence[Background]: ...


@runtime_checkable
class LooksOnce(Protocol):
    """A provider whose background learns what is not for sale at present: commands that explain run none, and ask for it once."""

    async def look(self) -> None:
        """Learn it now; nothing is bought, changed or told.

        Raises:
            CloudError: it cannot be learned.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """A provider that counts on the operator's metrics."""

    def measure(self, registry: Registry) -> None:
        """Count on `registry` from now on."""
        ...


Correct = Callable[[str, tuple[InstanceType, ...]], tuple[InstanceType, ...]]
"""(NodePool's name, types) → the types as that pool sees them, behind own prices and NodeOverlays."""


@runtime_checkable
class HeedsCorrections(Protocol):
    """A provider that chooses by corrected prices when it launches, and reports corrected capacity of what it launched.

    One that does not still launches what was planned; it only chooses among the claim's types by its own prices.
    """

    def correct_with(self, correct: Correct) -> None: ...


def node_class_types(provider: CloudProvider) -> Sequence[type[Object]]:
    return provider.node_class_types if isinstance(provider, HasNodeClasses) else ()


def background(provider: CloudProvider) -> Sequence[Background]:
    return provider.background() if isinstance(provider, HasBackground) else ()
