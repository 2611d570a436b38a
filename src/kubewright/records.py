"""A record: a Problem with its Plan and settings, on disk, so that a decision can be looked at and made again.

Bytes are the same for the same values. Records hold only what the narrow structs hold (no environment, no commands, no Secrets),
and of annotations only those that scheduling reads.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kubewright.api.meta import Object
from kubewright.catalogue.types import InstanceType
from kubewright.errors import ManifestError
from kubewright.settings import Settings
from kubewright.solver.problem import Plan, Problem, StateNode, Surroundings

VERSION = 1
_KEPT = ("karpenter.sh/", "pv.kubernetes.io/bind-completed", "controller.kubernetes.io/pod-deletion-cost")
_encoder = msgspec.json.Encoder(order="sorted")
O = TypeVar("O", bound=Object)  # noqa: E741 - an object


class Record(msgspec.Struct, frozen=True):
    version: int
    problem: Problem
    """Its pools hold no types; see `catalogues`."""
    catalogues: tuple[tuple[InstanceType, ...], ...]
    catalogue_of_pool: tuple[int, ...]
    """For each pool of the problem the index of its catalogue."""
    plan: Plan
    settings: Settings


def encode(problem: Problem, plan: Plan, settings: Settings) -> bytes:
    """The record's bytes: gzip of sorted JSON, without a time stamp."""
    catalogues: list[tuple[InstanceType, ...]] = []
    which: list[int] = []
    for pool in problem.pools:
        index = next((i for i, known in enumerate(catalogues) if known is pool.instance_types), -1)
        if index < 0:
            index = len(catalogues)
            catalogues.append(pool.instance_types)
        which.append(index)
    bare = replace(
        _stripped(problem),
        pools=tuple(replace(p, node_pool=_plain(p.node_pool), instance_types=()) for p in problem.pools),
    )
    record = Record(VERSION, bare, tuple(catalogues), tuple(which), plan, settings)
    return gzip.compress(_encoder.encode(record), mtime=0)


def decode(data: bytes, name: str = "record") -> Record:
    """The record, its pools holding their types again.

    Raises:
        ManifestError: not a record, or one of another version.
    """
    try:
        record = msgspec.json.decode(gzip.decompress(data), type=Record)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise ManifestError(
            [f"{name}: not a record of kubewright ({error}); use a file that `kubewright run --record` wrote"]
        ) from error
    if record.version != VERSION:
        raise ManifestError([f"{name}: version is {record.version}; this kubewright reads version {VERSION}"])
    pools = zip(record.problem.pools, record.catalogue_of_pool, strict=True)
    whole = tuple(replace(pool, instance_types=record.catalogues[index]) for pool, index in pools)
    return replace(record, problem=replace(record.problem, pools=whole))


def save(path: Path, problem: Problem, plan: Plan, settings: Settings) -> None:
    path.write_bytes(encode(problem, plan, settings))


def load(path: Path) -> Record:
    """Raises ManifestError (see `decode`) or OSError."""
    return decode(path.read_bytes(), str(path))


def _stripped(problem: Problem) -> Problem:
    return replace(
        problem,
        pods=tuple(map(_plain, problem.pods)),
        nodes=tuple(map(_node, problem.nodes)),
        leaving=tuple(map(_node, problem.leaving)),
        surroundings=_surroundings(problem.surroundings),
    )


def _surroundings(around: Surroundings) -> Surroundings:
    fields: dict[str, Any] = {name: _each(getattr(around, name)) for name in around.__struct_fields__}
    return replace(around, **fields)


def _each(objects: Iterable[O]) -> tuple[O, ...]:
    return tuple(map(_plain, objects))


def _node(place: StateNode) -> StateNode:
    return replace(
        place,
        node=_plain(place.node) if place.node is not None else None,
        claim=_plain(place.claim) if place.claim is not None else None,
        pods=_each(place.pods),
    )


def _plain(one: O) -> O:
    written = one.metadata.annotations
    if not written:
        return one
    return replace(one, metadata=replace(one.metadata, annotations={k: v for k, v in written.items() if k.startswith(_KEPT)}))
