"""The Go programs that the tests need, built once for each machine.

`ensure("kube-apiserver")` answers with a path, at once where the program was built before. The modules under `golang/` and the
oracle fix every version by their `go.sum`; a built program is kept in the cache under a name made from them, so that an
unchanged checkout never builds twice and a changed one never runs yesterday's program.

    python -m tests.plane.binaries             what the tests need
    python -m tests.plane.binaries kwok helm   these
    python -m tests.plane.binaries --all       every one
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_KUBERNETES = "v1.36.3"
_VERSION = "k8s.io/component-base/version."
# Without a version stamped in, the server calls itself v0.0.0, which kubectl refuses to compare itself with.
_STAMP = f"-X {_VERSION}gitVersion={_KUBERNETES} -X {_VERSION}gitMajor=1 -X {_VERSION}gitMinor=36"


class BuildFailed(RuntimeError):
    """Go is missing or could not build a program; the message says which, and ends with what Go said."""


class Program(NamedTuple):
    """What to build and where."""

    folder: str
    """The folder with its go.mod, from the root of the repository."""
    package: str
    linker_flags: str = "-s -w"
    needed_by_tests: bool = True


PROGRAMS = {
    "etcd": Program("golang/etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("golang/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", f"-s -w {_STAMP}"),
    "kube-scheduler": Program("golang/kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", f"-s -w {_STAMP}"),
    "kube-controller-manager": Program("golang/kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", f"-s -w {_STAMP}"),
    "kubectl": Program("golang/kubernetes", "k8s.io/kubernetes/cmd/kubectl", f"-s -w {_STAMP}"),
    "kwok": Program("golang/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "oracle": Program("tests/conformance/oracle", "."),
    "karpenter": Program("golang/karpenter", "sigs.k8s.io/karpenter/kwok"),
    "helm": Program("golang/helm", "helm.sh/helm/v3/cmd/helm", needed_by_tests=False),
}


def ensure(name: str) -> Path:
    """The program `name`, built if this machine has not built it from these sources before.

    Only one process builds a folder's programs at a time; another one waits, and says so.

    Raises:
        BuildFailed: there is no Go, or it failed.
        KeyError: there is no such program.
    """
    program = PROGRAMS[name]
    home = cache() / f"{name}-{_key(program)}"
    built = home / name
    if built.exists():
        return built
    require_go(f"build {name}")
    with _lock(program, name):
        if not built.exists():  # the one we waited for may have built it
            _build(name, program, home)
    return built


def cache() -> Path:
    """Where built programs are kept: `kubewright` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubewright"


def require_go(purpose: str) -> str:
    """The path of the `go` command.

    Raises:
        BuildFailed: it is not on PATH.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildFailed(
            f"Go is needed to {purpose}, and there is no go command on PATH: install Go 1.26.6 or newer,"
            " or leave KUBEWRIGHT_WITH_GO unset to run the checks that need no Go"
        )
    return go


def _key(program: Program) -> str:
    folder = ROOT / program.folder
    digest = hashlib.sha256(repr(program).encode())
    for file in sorted([folder / "go.mod", folder / "go.sum", *folder.glob("*.go")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _lock(program: Program, name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{program.folder.replace('/', '-')}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{name}: another process is building in {program.folder}, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(name: str, program: Program, home: Path) -> None:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{name}-") as scratch:
        _compile(name, program, Path(scratch) / name, start)
        # A folder that a killed move left behind holds no program, or ensure() had returned it.
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        (Path(scratch) / name).rename(home / name)
    _say(f"{name}: built in {time.monotonic() - start:.0f} s")


def _compile(name: str, program: Program, output: Path, start: float) -> None:
    process = subprocess.Popen(
        [
            *("go", "build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly"),
            *("-ldflags", program.linker_flags, "-o", str(output), program.package),
        ],
        cwd=ROOT / program.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    said: list[str] = []
    fetched = compiled = 0
    next_word = start + 2
    line: str | None = ""
    while line is not None:
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=max(0.0, next_word - time.monotonic()))
            if line is not None:
                said.append(line)
                fetched += line.startswith("go: downloading")
                compiled += " " not in line
        if time.monotonic() >= next_word:
            _say(f"{name}: {time.monotonic() - start:.0f} s, {fetched} modules fetched, {compiled} packages compiled")
            next_word = time.monotonic() + 5
    reader.join()
    process.stderr.close()
    if process.wait():
        heard = "\n".join([one for one in said if " " in one][-20:])
        raise BuildFailed(f"go build {program.package} in {program.folder} ended with {process.returncode}:\n{heard}")


def _read(process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.put(line.rstrip())
    lines.put(None)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main() -> int:
    """Build programs from the command line; the exit code is 1 when one could not be built."""
    parser = argparse.ArgumentParser(prog="python -m tests.plane.binaries", description="Build the Go programs that tests need.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(PROGRAMS)}")
    parser.add_argument("--all", action="store_true", help="every program, also those that no test needs yet")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(PROGRAMS))
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    names = arguments.names or [name for name, program in PROGRAMS.items() if arguments.all or program.needed_by_tests]
    try:
        for name in names:
            sys.stdout.write(f"{name}\t{ensure(name)}\n")
            sys.stdout.flush()
    except BuildFailed as failure:
        _say(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
