"""What every Kubernetes object has in common, and how a struct says which resource it is.

Structs here keep only the fields that kubewright reads, so an object that was decoded must never be written back whole:
create whole objects, change by patch.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

import msgspec
from msgspec import field

Quantities = dict[str, str | int]
"""Resource name → quantity as written on the wire; `api.quantity` reads it."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all wire structs: camelCase names, unknown fields dropped, defaults left out when encoding."""


class Resource(msgspec.Struct, frozen=True):
    """Where the API server serves a kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class OwnerReference(Wire, frozen=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Object(Wire, frozen=True, kw_only=True):
    """A whole Kubernetes object. Each subclass names its resource in `RESOURCE`."""

    RESOURCE: ClassVar[Resource]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for cluster-scoped kinds."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


class Condition(Wire, frozen=True, kw_only=True):
    """A status condition; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class SelectorRequirement(Wire, frozen=True, kw_only=True):
    """One expression of a label selector or a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True, kw_only=True):
    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()


def find_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((c for c in conditions if c.type == kind), None)


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    found = find_condition(conditions, kind)
    return found is not None and found.status == "True"


def owned_by(meta: ObjectMeta, api_version: str, kind: str) -> bool:
    """Whether any ownerReference (not only the controller) has exactly this apiVersion and kind. Source: spec/disruption 0."""
    return any(o.api_version == api_version and o.kind == kind for o in meta.owner_references)


Labels = Mapping[str, str]
