"""Programs that run beside a test and never outlive it."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_REAPER = Path(__file__).with_name("reaper.py")


class ProgramFailed(RuntimeError):
    """A program ended by itself, or was not ready in time; the message ends with the last lines of its log."""


class Reaper:
    """A small process that kills what is still registered once this process is gone, however it went."""

    def __init__(self, directory: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_REAPER), str(directory)], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, pid: int) -> None:
        self._say(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        self._say(f"-{pid}\n")

    def close(self) -> None:
        """Let the reaper go; it kills what is still registered."""
        if self._process is not None:
            process, self._process = self._process, None
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=10)

    def _say(self, line: str) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


class Process:
    """One program, in a process group of its own, with its output in a file that grows over restarts."""

    def __init__(self, name: str, argv: Sequence[str], *, log: Path, reaper: Reaper, env: Mapping[str, str]) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._env = dict(env)
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process number. Raises ProgramFailed if it does not run."""
        if self._process is None:
            raise ProgramFailed(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program; no effect while it runs."""
        if self.running:
            return
        self._clear()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._env, start_new_session=True
            )
        self._reaper.watch(self._process.pid)

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Ask the program to end (SIGTERM), kill it after `grace_s`; returns when it is gone."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=grace_s)
        self.kill()

    def terminate(self) -> None:
        """Ask the program to end (SIGTERM) and return at once; `wait` tells how it ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the program and its children at once (SIGKILL), as a power cut would; returns when it is gone."""
        self._signal(signal.SIGKILL)
        self._clear()

    def wait(self, *, timeout_s: float) -> int:
        """The exit code of a program that ends by itself. Raises ProgramFailed if it still runs after `timeout_s`."""
        if self._process is None:
            raise ProgramFailed(f"{self.name} does not run")
        try:
            code = self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{self.name} still runs after {timeout_s:g} s\n{self.tail()}") from None
        self._clear()
        return code

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log, for messages."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(it wrote nothing)"

    def _signal(self, number: signal.Signals) -> None:
        # Only while the program is unreaped is its number certain to be its own.
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _clear(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._reaper.forget(self._process.pid)
            self._process = None


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, below the range from which outgoing connections take theirs.

    A program that is killed and started again on its port must not find it taken by somebody's outgoing connection.
    """
    chosen: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(chosen) < count:
            port = random.SystemRandom().randrange(20_000, 32_000)
            candidate = socket.socket()
            held.append(candidate)
            with contextlib.suppress(OSError):
                candidate.bind(("127.0.0.1", port))
                chosen.append(port)
    finally:
        for one in held:
            one.close()
    return chosen


def wait_until(ready: Callable[[], bool], *, of: Process, timeout_s: float) -> None:
    """Return once `ready()` is true, asking 20 times a second.

    Raises:
        ProgramFailed: the program ended meanwhile, or was not ready after `timeout_s`.
    """
    end = time.monotonic() + timeout_s
    while not ready():
        if not of.running:
            raise ProgramFailed(f"{of.name} ended while it was starting\n{of.tail()}")
        if time.monotonic() > end:
            raise ProgramFailed(f"{of.name} was not ready after {timeout_s:g} s\n{of.tail()}")
        time.sleep(0.05)


def run(argv: Sequence[str], *, env: Mapping[str, str], stdin: str | None, timeout_s: float) -> str:
    """What a short program prints.

    Raises:
        ProgramFailed: it ended with an error or took too long; the message has what it wrote.
    """
    name = Path(argv[0]).name
    try:
        done = subprocess.run(argv, env=dict(env), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{name} {' '.join(argv[1:])} took more than {timeout_s:g} s") from None
    if done.returncode:
        raise ProgramFailed(f"{name} {' '.join(argv[1:])} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
