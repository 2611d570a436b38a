"""Building once: with a stand-in for the go command, which writes down each call and makes the file it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plane import binaries

GO = """#!/bin/sh
echo "$@" >> "{calls}"
while [ "$1" != -o ]; do shift; done
echo example.com/a/package >&2
sleep 0.2
echo "{words}" >&2
[ {code} = 0 ] && echo program > "$2"
exit {code}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the calls of a stand-in for go are written down; it is the only go on PATH, and the cache is empty."""
    calls = tmp_path / "calls"
    calls.touch()
    make_go(tmp_path, calls)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def make_go(folder: Path, calls: Path, *, words: str = "", code: int = 0) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    go = folder / "bin/go"
    go.write_text(GO.format(calls=calls, words=words, code=code), encoding="utf-8")
    go.chmod(0o755)


def test_a_program_is_built_once(calls: Path) -> None:
    first = binaries.ensure("kwok")
    assert first.read_text(encoding="utf-8") == "program\n"
    assert binaries.ensure("kwok") == first
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 1


def test_another_go_sum_is_another_program(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "root/golang/kwok"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module m\n", encoding="utf-8")
    (folder / "go.sum").write_text("one\n", encoding="utf-8")
    monkeypatch.setattr(binaries, "ROOT", tmp_path / "root")
    first = binaries.ensure("kwok")
    (folder / "go.sum").write_text("two\n", encoding="utf-8")
    assert binaries.ensure("kwok") != first
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 2


def test_two_processes_that_want_the_same_program_build_it_once(calls: Path) -> None:
    wanted = [
        subprocess.Popen([sys.executable, "-m", "tests.plane.binaries", "kwok"], cwd=binaries.ROOT, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    answers = {one.communicate(timeout=60)[0] for one in wanted}
    assert len(answers) == 1
    assert [one.returncode for one in wanted] == [0, 0, 0]
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 1


def test_a_failed_build_says_what_go_said_and_leaves_nothing(calls: Path, tmp_path: Path) -> None:
    make_go(tmp_path, calls, words="a.go:1:2: undefined: nonsense", code=1)
    with pytest.raises(
        binaries.BuildFailed, match=r"go build sigs\.k8s\.io/kwok/cmd/kwok in golang/kwok ended with 1:\n.*undefined: nonsense"
    ):
        binaries.ensure("kwok")
    make_go(tmp_path, calls)
    assert binaries.ensure("kwok").exists()


def test_without_go_the_error_says_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(binaries.BuildFailed, match="Go is needed to build etcd, and there is no go command on PATH"):
        binaries.ensure("etcd")


def test_every_program_names_a_module_with_fixed_sums() -> None:
    for program in binaries.PROGRAMS.values():
        folder = binaries.ROOT / program.folder
        assert (folder / "go.mod").is_file()
        assert (folder / "go.sum").is_file()
