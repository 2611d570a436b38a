"""A 'no' that knows why: the value every constraint returns instead of raising."""

import enum
from collections.abc import Mapping

import msgspec


class Because(enum.StrEnum):
    """The closed list of reasons; metrics, docs and explanations share it."""

    TAINT = "untolerated-taint"
    LABEL = "label-mismatch"
    UNKNOWN_LABEL = "label-nobody-offers"
    RESOURCES = "does-not-fit"
    INSTANCE_TYPE = "no-instance-type"
    OFFERING = "no-offering"
    SPREAD = "topology-spread"
    AFFINITY = "pod-affinity"
    ANTI_AFFINITY = "pod-anti-affinity"
    HOST_PORT = "host-port"
    VOLUME = "volume"
    VOLUME_LIMIT = "volume-limit"
    LIMITS = "pool-limits"
    MIN_VALUES = "min-values"
    RESERVED = "reserved-capacity"
    NO_POOL = "no-pool"
    UNSUPPORTED = "not-supported"
    INVALID = "invalid-pod"


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why one pod may not go to one place.

    Facts only; sentences are built when somebody reads them, since most refusals are thrown away unread.
    """

    because: Because
    where: str
    """The place that said no: a node, an open claim or a NodePool; "" when the pod itself cannot be scheduled at all."""
    wanted: str = ""
    found: str = ""
    facts: Mapping[str, str] = {}
    """More for the explanation: key, pod field, object to blame, counts."""
    curable: bool = True
    """False when no eviction, scale-up or wait could turn this into a yes."""
