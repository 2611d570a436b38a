"""What kubewright asks of an API server: the lightkube client and the in-memory server's direct door both speak it.

Objects are decoded into only the fields we use, so there is no PUT: create whole objects, change by patch.
Every method raises from the `KubeError` branch of `kubewright.errors`, and nothing else of a library's.
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kubewright.api.meta import Object

T = TypeVar("T", bound=Object)


class Listing(msgspec.Struct, Generic[T], frozen=True):
    items: Sequence[T]
    resource_version: str
    """Where a watch goes on from."""


class EventType(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    type: EventType
    object: T
    """For a bookmark only metadata.resourceVersion means something."""


class MergePatch(msgspec.Struct, frozen=True):
    """RFC 7386; None removes. Put metadata.resourceVersion into it to lock optimistically."""

    body: Mapping[str, Any]


class JsonPatch(msgspec.Struct, frozen=True):
    """RFC 6902 operations; a failed `test` raises Invalid or Conflict as the server says."""

    operations: Sequence[Mapping[str, Any]]


Patch = MergePatch | JsonPatch


class KubeClient(Protocol):
    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """Raises NotFound."""
        ...

    async def list(self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        """Every object (all namespaces when `namespace` is ""), read in pages. `labels`, `fields`: selectors in wire form."""
        ...

    def watch(
        self, kind: type[T], namespace: str = "", *, resource_version: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes after `resource_version`, bookmarks included, until the server ends the watch.

        Raises:
            Gone: the version is too old; list again.
        """
        ...

    async def create(self, obj: T) -> T:
        """Create a whole object and return what the server made of it. Raises AlreadyExists, Invalid."""
        ...

    async def patch(self, kind: type[T], name: str, patch: Patch, namespace: str = "", *, subresource: str = "") -> T:
        """Change an object, or its subresource ("status", "scale"), and return it whole. Raises NotFound, Conflict, Invalid."""
        ...

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete, with preconditions where given. Raises NotFound, Conflict (another UID or version is there)."""
        ...

    async def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """POST the eviction subresource of a pod.

        Raises:
            TooManyRequests: a PodDisruptionBudget refuses it now.
            NotFound, Conflict: the pod is gone, or another one has its name.
        """
        ...

    async def close(self) -> None: ...
