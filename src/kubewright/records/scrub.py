"""What of a decision's input is written down: everything that the decision depends on, and nothing else that people wrote.

The structs hold no environment, commands, images or Secrets to begin with. What they do hold beyond need is annotations, the
messages of conditions, and the insides of volume sources, wherever they stand: in templates, on claims and pods, in a plan. Those
go.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from kubewright.api import labels
from kubewright.api.core import PersistentVolumeSpec, TemplateMeta
from kubewright.api.karpenter import TemplateMetadata
from kubewright.api.meta import Condition, ObjectMeta
from kubewright.scheduling.volumes import BIND_COMPLETED
from kubewright.solver.problem import PlannedClaim

T = TypeVar("T")
Change = Callable[[Any], Any]

KEPT = frozenset(
    {
        labels.DO_NOT_DISRUPT,
        labels.NODEPOOL_HASH,
        labels.NODEPOOL_HASH_VERSION,
        labels.TERMINATION_TIMESTAMP,
        labels.MIN_VALUES_RELAXED,
        labels.REQUESTED_DRA_DRIVERS,
        labels.PRICE_OVERLAY_APPLIED,
        labels.CAPACITY_OVERLAY_APPLIED,
        labels.BUFFER_POD,
        labels.BUFFER_NAME,
        labels.BUFFER_NAMESPACE,
        BIND_COMPLETED,
        "controller.kubernetes.io/pod-deletion-cost",
    }
)
"""Annotations that decisions read, beside our own."""
OURS = "kubewright.sh/"
"""Settings on NodePools and notes on NodeClaims; they are read, too."""


def scrubbed(value: T) -> T:
    """The same value without what must not be written down; equal parts are shared, not copied.

    Cost: O(objects): types that cannot hold anything of the kind are not looked into.
    """
    change = _change_of(type(value)) if isinstance(value, msgspec.Struct) else None
    return cast("T", change(value)) if change is not None else value


def _kept(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if annotations is None:
        return None
    return {key: text for key, text in annotations.items() if key in KEPT or key.startswith(OURS)}


def _annotated(value: Any) -> Any:
    return msgspec.structs.replace(value, annotations=_kept(value.annotations)) if value.annotations else value


def _quiet(value: Condition) -> Condition:
    return msgspec.structs.replace(value, message="") if value.message else value


def _hollow(value: PersistentVolumeSpec) -> PersistentVolumeSpec:
    """Whether a volume has one of these sources is read, what stands inside is not."""
    inside = ("aws_elastic_block_store", "local", "host_path")
    return msgspec.structs.replace(value, **{name: {} for name in inside if getattr(value, name)})


_LEAVES: Mapping[type, Change] = {
    ObjectMeta: _annotated,
    TemplateMeta: _annotated,
    TemplateMetadata: _annotated,
    PlannedClaim: _annotated,
    Condition: _quiet,
    PersistentVolumeSpec: _hollow,
}


@cache
def _change_of(kind: Any) -> Change | None:
    """How to scrub a struct of this type; None when there is nothing in it to scrub."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    inner: dict[str, Change] = {}
    for field in msgspec.structs.fields(kind):
        found = _within(inspect.type_info(field.type))
        if found is not None:
            inner[field.name] = found
    if not inner:
        return None

    def change(value: Any) -> Any:
        new: dict[str, Any] = {}
        for name, scrub in inner.items():
            was = getattr(value, name)
            if was is not None and was != () and (now := scrub(was)) is not was:
                new[name] = now
        return msgspec.structs.replace(value, **new) if new else value

    return change


def _within(info: inspect.Type) -> Change | None:
    """The same for a field of this type: a struct, something optional, or a collection of structs."""
    match info:
        case inspect.StructType(cls=cls):
            return _change_of(cls)
        case inspect.UnionType(types=types):
            return scrubbed if any(_within(one) is not None for one in types) else None
        case inspect.VarTupleType(item_type=item) if _within(item) is not None:
            return lambda values: tuple(map(scrubbed, values))
        case inspect.DictType(value_type=item) if _within(item) is not None:
            return lambda values: {key: scrubbed(value) for key, value in values.items()}
        case _:
            return None
