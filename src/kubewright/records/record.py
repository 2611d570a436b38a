"""What a record holds, and its bytes, which are the same for the same values on every machine."""

import gzip
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kubewright import VERSION
from kubewright.catalogue.types import InstanceType
from kubewright.errors import ManifestError
from kubewright.records.scrub import scrubbed
from kubewright.settings import Settings
from kubewright.solver.problem import Plan, Problem

FORMAT = 2
"""Of the file; another one is refused by name."""
_encoder = msgspec.json.Encoder(order="sorted")


class Record(msgspec.Struct, frozen=True):
    version: int
    """Of the format."""
    problem: Problem
    """Without what scheduling does not read (`records.scrub`). In the file its pools hold no types; see `catalogues`."""
    catalogues: tuple[tuple[InstanceType, ...], ...]
    catalogue_of_pool: tuple[int, ...]
    """For each pool of the problem the index of its catalogue."""
    plan: Plan
    settings: Settings
    made_by: str = ""
    """kubewright's version."""
    failure: str = ""
    """What the solver raised instead of making the plan; "" when it made one."""


def encode(problem: Problem, plan: Plan, settings: Settings, failure: str = "") -> bytes:
    """The record's bytes: gzip of sorted JSON, without a time stamp.

    Cost: about a tenth of a second for 10,000 pods; call it off the event loop.
    """
    catalogues: list[tuple[InstanceType, ...]] = []
    which: list[int] = []
    for pool in problem.pools:
        index = next((i for i, known in enumerate(catalogues) if known is pool.instance_types), -1)
        if index < 0:
            index = len(catalogues)
            catalogues.append(pool.instance_types)
        which.append(index)
    bare = replace(problem, pools=tuple(replace(p, instance_types=()) for p in problem.pools))
    record = Record(FORMAT, scrubbed(bare), tuple(catalogues), tuple(which), scrubbed(plan), settings, VERSION, failure)
    return gzip.compress(_encoder.encode(record), mtime=0)


def decode(data: bytes, name: str = "record") -> Record:
    """The record, its pools holding their types again.

    Raises:
        ManifestError: not a record, or one of another format.
    """
    try:
        raw = gzip.decompress(data)
        version = msgspec.json.decode(raw, type=_Version).version
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise ManifestError(
            [f"{name}: not a record of kubewright ({error}); use a file that `kubewright run --record` wrote"]
        ) from error
    if version != FORMAT:
        raise ManifestError([f"{name}: format is {version}; kubewright {VERSION} reads format {FORMAT}"])
    try:
        record = msgspec.json.decode(raw, type=Record)
    except msgspec.DecodeError as error:
        raise ManifestError([f"{name}: a damaged record ({error}); make it again with `kubewright run --record`"]) from error
    pools = zip(record.problem.pools, record.catalogue_of_pool, strict=True)
    whole = tuple(replace(pool, instance_types=record.catalogues[index]) for pool, index in pools)
    return replace(record, problem=replace(record.problem, pools=whole))


class _Version(msgspec.Struct):
    version: int


def save(path: Path, problem: Problem, plan: Plan, settings: Settings) -> None:
    write(path, encode(problem, plan, settings))


def write(path: Path, data: bytes) -> None:
    """The file whole or not at all, whatever happens meanwhile; readable by its owner only."""
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


UNFINISHED = ".unfinished"


def load(path: Path) -> Record:
    """Raises ManifestError (see `decode`) or OSError."""
    return decode(path.read_bytes(), str(path))
