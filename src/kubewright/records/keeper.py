"""Writes the record of every pass beside the passes, which never wait for it."""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from kubewright.clock import Clock
from kubewright.records.directory import Directory
from kubewright.records.record import encode
from kubewright.settings import Settings
from kubewright.solver.problem import Plan, Problem

MOST_WAITING = 4
"""Passes whose records are not written yet; of more, the oldest are let go, with a warning."""


class Keeper:
    """`noting` wraps what decides; `run` writes. A record that cannot be written is told of, and holds nobody up."""

    def __init__(self, directory: Directory, settings: Settings, clock: Clock) -> None:
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._waiting: deque[tuple[Problem, Plan, str]] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lost = 0
        self._log = structlog.get_logger("kubewright.records")

    def noting(self, decide: Callable[[Problem], Plan]) -> Callable[[Problem], Plan]:
        """`decide`, each of its answers noted, and each of its failures; may be called from any thread."""

        def noted(problem: Problem) -> Plan:
            try:
                plan = decide(problem)
            except Exception as error:
                self.note(problem, Plan(), f"{type(error).__name__}: {error}")
                raise
            self.note(problem, plan)
            return plan

        return noted

    def note(self, problem: Problem, plan: Plan, failure: str = "") -> None:
        """Keep it for `run` to write; costs nothing now."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append((problem, plan, failure))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Write what is noted until cancelled, and then what still waits."""
        self._loop = asyncio.get_running_loop()
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await asyncio.to_thread(self._write, *self._waiting.popleft())
        finally:
            self._loop = None
            while self._waiting:
                self._write(*self._waiting.popleft())

    def _write(self, problem: Problem, plan: Plan, failure: str) -> None:
        if self._lost:
            self._log.warning("records were let go: passes come faster than they can be written", records=self._lost)
            self._lost = 0
        try:
            if self._directory.add(problem.now, encode(problem, plan, self._settings, failure)) is None:
                self._log.warning("the record of a pass is larger than --record-bytes allows, and is not kept")
        except OSError as error:
            self._log.error("the record of a pass could not be written", directory=str(self._directory.path), error=str(error))
