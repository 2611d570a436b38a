"""Records: the same bytes for the same values, the same plan when solved again, and a directory that does not grow for ever."""

import asyncio
import importlib
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import kubewright
from kubewright import records
from kubewright.api import labels
from kubewright.clock import Clock
from kubewright.errors import ConfigError, ManifestError
from kubewright.packing import plan
from kubewright.records import decode, encode
from kubewright.records.directory import Directory
from kubewright.records.keeper import MOST_WAITING, Keeper
from kubewright.records.replay import replay
from kubewright.records.scrub import KEPT, OURS
from kubewright.settings import Packing, Settings
from kubewright.sim import loop
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import ask, node_pool, pod
from tests.conformance.adapter import read
from tests.conformance.problems import problem

NOW = datetime.fromisoformat("2026-01-01T00:00:00Z")


def asked_of(seed: int) -> Problem:
    return select(*read(problem(seed)[0])).problem


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5000), st.sampled_from(Packing))
def test_a_record_solved_again_is_identical(seed: int, packing: Packing) -> None:
    asked, how = asked_of(seed), Settings(packing=packing, packing_steps=200)
    data = encode(asked, plan(asked, how), how)
    again = decode(data)
    assert encode(again.problem, plan(again.problem, again.settings), again.settings) == data
    told = replay(again)
    assert (told.identical, told.differences) == (True, ())


SOLVING = """
import sys
from pathlib import Path
import kubewright
from kubewright import records
from kubewright.api import labels
from kubewright.settings import Settings
from kubewright.packing import plan
from kubewright.solver.select import select
from tests.conformance.adapter import read
from tests.conformance.problems import problem
for seed in range(12):
    asked = select(*read(problem(seed)[0])).problem
    records.save(Path(sys.argv[1]) / f"{seed}.record", asked, plan(asked, Settings()), Settings())
"""


def test_another_process_with_other_hashes_writes_the_same_bytes_and_replays_them(tmp_path: Path) -> None:
    for seed in ("1", "4242"):
        (tmp_path / seed).mkdir()
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        subprocess.run([sys.executable, "-c", SOLVING, tmp_path / seed], env=env, check=True)
    for one in sorted((tmp_path / "1").iterdir()):
        assert one.read_bytes() == (tmp_path / "4242" / one.name).read_bytes()
        assert replay(records.load(one)).identical


def test_every_difference_is_told() -> None:
    asked = ask([pod("a"), pod("b", cpu="99")], [node_pool()])
    made = solve(asked)
    (claim,) = made.claims
    fewer = claim.instance_types[1:]
    changes = (
        (replace(made, usd_per_hour=made.usd_per_hour * (1 + 1e-15)), "plan", "usd_per_hour"),
        (
            replace(made, claims=(replace(claim, instance_types=fewer),)),
            f"claim {claim.name}",
            "instance_types",
        ),
        (replace(made, claims=(replace(claim, requests={}),)), f"claim {claim.name}", "requests"),
        (replace(made, claims=()), "pod default/a", "place"),
        (replace(made, unplaced={}), "pod default/b", "place"),
        (replace(made, unplaced={"default/b": ()}), "pod default/b", "refusals"),
    )
    for changed, about, field in changes:
        told = replay(decode(encode(asked, changed, Settings())), lambda problem, _: solve(problem))
        assert not told.identical
        assert (about, field) in {(d.about, d.field) for d in told.differences}
        assert all(d.then != d.now for d in told.differences)


def test_a_failure_of_the_solver_is_recorded_and_replayed() -> None:
    def fails(problem: Problem, settings: Settings) -> Plan:
        raise ZeroDivisionError("no")

    record = decode(encode(ask([pod()]), Plan(), Settings(), "ZeroDivisionError: no"))
    assert replay(record, fails).identical
    mended = replay(record)
    assert ("plan", "failure", "ZeroDivisionError: no", "none") in {msgspec.structs.astuple(d) for d in mended.differences}


def test_pools_that_share_types_share_them_in_the_record() -> None:
    asked = ask([pod()], [node_pool("a"), node_pool("b")])
    record = decode(encode(asked, solve(asked), Settings()))
    assert len(record.catalogues) == 1
    assert record.problem.pools[0].instance_types is record.problem.pools[1].instance_types


def test_what_is_not_a_record_is_refused_by_name() -> None:
    with pytest.raises(ManifestError, match=r"x\.rec: not a record"):
        decode(b"hello", "x.rec")
    import gzip

    with pytest.raises(ManifestError, match=r"x\.rec: format is 99; kubewright .* reads format"):
        decode(gzip.compress(b'{"version": 99, "shape": "of tomorrow"}'), "x.rec")
    with pytest.raises(ManifestError, match=r"x\.rec: a damaged record"):
        decode(gzip.compress(b'{"version": 2}'), "x.rec")


# the directory


@given(st.lists(st.integers(1, 500), max_size=30), st.integers(1, 8), st.integers(1, 1500))
@settings(max_examples=60, deadline=None)
def test_a_directory_keeps_the_newest_within_its_bounds(tmp_path_factory, sizes: list[int], files: int, most: int) -> None:
    place = tmp_path_factory.mktemp("records")
    stranger = place / "notes.txt"
    stranger.write_bytes(b"x" * 5000)
    directory = Directory(place, most_files=files, most_bytes=most)
    written = [directory.add(NOW + timedelta(seconds=i), bytes([i % 256]) * size) for i, size in enumerate(sizes)]
    there = directory.records()
    assert len(there) <= files
    assert sum(p.stat().st_size for p in there) <= most
    fitting = [p for p in written if p is not None]
    assert [p is None for p in written] == [size > most for size in sizes]
    assert there == fitting[len(fitting) - len(there) :], "the newest, in order"
    assert stranger.exists()
    if fitting:
        assert there, "the last one that fits is always there"


def test_a_half_written_record_is_never_seen_and_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory(tmp_path)

    def killed(self, target) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            directory.add(NOW, b"half")
    assert directory.records() == []
    assert len(list(tmp_path.iterdir())) == 1
    Directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--record: found"):
        Directory(tmp_path / "file")


# the keeper


def test_passes_do_not_wait_for_their_records_and_the_newest_are_kept(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    asked = ask([pod()])

    async def story() -> None:
        keeper = Keeper(directory, Settings(), Clock(loop.EPOCH))
        decide = keeper.noting(solve)
        for i in range(MOST_WAITING + 3):
            decide(replace(asked, now=NOW + timedelta(seconds=i)))
        assert directory.records() == [], "nothing is written where it is decided"
        task = asyncio.create_task(keeper.run())
        await asyncio.sleep(1)
        assert [records.load(p).problem.now.second for p in directory.records()] == [3, 4, 5, 6]
        decide(replace(asked, now=NOW + timedelta(seconds=9)))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(directory.records()) == 5, "what waits at the end is written"

    loop.run(story())


def test_a_full_disk_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory(tmp_path)
    monkeypatch.setattr(directory, "add", lambda now, data: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    async def story() -> None:
        keeper = Keeper(directory, Settings(), Clock(loop.EPOCH))
        task = asyncio.create_task(keeper.run())
        keeper.note(ask([pod()]), Plan())
        await asyncio.sleep(1)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    loop.run(story())


# secrets


def test_an_annotation_is_dropped_wherever_it_stands_unless_scheduling_reads_it() -> None:
    told = {"karpenter.sh/do-not-disrupt": "true", "vault/token": "hunter2", "karpenter.sh/secret": "hunter2"}

    def annotated(value):
        """The same value, every `annotations` in it filled."""
        if isinstance(value, msgspec.Struct):
            fields = {name: annotated(getattr(value, name)) for name in value.__struct_fields__}
            if "annotations" in fields:
                fields["annotations"] = told
            return replace(value, **fields)
        if isinstance(value, tuple):
            return tuple(map(annotated, value))
        return {k: annotated(v) for k, v in value.items()} if isinstance(value, dict) else value

    for seed in range(40):
        asked = annotated(asked_of(seed))
        record = decode(encode(asked, plan(asked, Settings()), Settings()))
        text = msgspec.json.encode(record)
        assert b"hunter2" not in text
        assert b"do-not-disrupt" in text
        assert replay(record).identical


def test_every_annotation_that_decisions_read_is_kept() -> None:
    """Read from the source: an annotation that somebody starts to read must not be missing when a pass is replayed."""
    read_by = re.compile(r"annotations(?:\.get\(|\[)(?:labels\.|names\.)?([A-Z_]+)\b")
    found: dict[str, str] = {}
    for folder in ("scheduling", "catalogue", "solver", "packing", "lifecycle", "disruption"):
        for file in sorted((Path(kubewright.__file__).parent / folder).glob("*.py")):
            module = importlib.import_module(f"kubewright.{folder}.{file.stem}") if file.stem != "__init__" else labels
            for name in read_by.findall(file.read_text()):
                found[name] = getattr(labels, name, None) or getattr(module, name)
    assert len(found) > 5
    assert [key for key in found.values() if key not in KEPT and not key.startswith(OURS)] == []
