"""An operator process that dies at one of its writes, and the next one that finds what it left.

`Process` counts the writes of an operator (to the API server and to the cloud) and, told to, ends it exactly before or exactly
after the n-th: from that moment none of its tasks can write anything more, as if the machine had lost power. `at_every_write`
runs one story once to count the writes and then once more for each of them.
"""

import asyncio
import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec


class Killed(BaseException):
    """The process is no more. A BaseException, so that no handler of errors takes it for one."""


class Side(enum.StrEnum):
    BEFORE = "before"
    """The write never reaches the server."""
    AFTER = "after"
    """It lands, and nobody who asked for it lives to hear."""


class Kill(msgspec.Struct, frozen=True):
    write: int
    """Counted from 1 over all lives: among those attempted for BEFORE, among those that landed for AFTER."""
    side: Side


class Runs(Protocol):
    async def run(self) -> None: ...


class Gate:
    """Where one life's writes pass. Hang `before` and `after` on everything through which that operator writes."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self.is_shut = False

    def before(self, verb: str, kind: str, key: str) -> None:
        """Hook: a write is about to reach a server."""
        if self.is_shut:
            raise Killed
        self._process.writes.append(f"{verb} {kind} {key}")
        self._process.maybe_kill(Side.BEFORE)

    def after(self, verb: str, kind: str, key: str) -> None:
        """Hook: a write has landed. Those that the server refuses never come here."""
        if self.is_shut:
            raise Killed
        self._process.landed.append(f"{verb} {kind} {key}")
        self._process.maybe_kill(Side.AFTER)


class Process:
    """Runs an operator, ends it where it is told to, and starts the next."""

    def __init__(self, kill: Kill | None = None) -> None:
        self._kill = kill
        self._gate = Gate(self)
        self._task: asyncio.Task[None] | None = None
        self.lives = 0
        self.writes: list[str] = []
        """What was sent over all lives, in order: verb, kind and name."""
        self.landed: list[str] = []
        """What of it arrived."""
        self.marked_at = (0, 0)
        """How many writes had been sent, and had landed, when the story called `mark`."""
        self.killed_at = ""
        """The write at which it died, "" while it has not."""

    async def run(self, start: Callable[[Gate], Runs], *, restart_after_s: float = 5.0) -> None:
        """Run what `start` makes, until cancelled; when it is killed, run a fresh one after a while.

        Raises:
            BaseExceptionGroup: the operator failed by itself.
        """
        while True:
            self._gate = Gate(self)
            self.lives += 1
            self._task = asyncio.create_task(start(self._gate).run(), name=f"operator, life {self.lives}")
            try:
                await asyncio.wait((self._task,))
            finally:
                self._gate.is_shut = True
                self._task.cancel()
                await _ended(self._task)
            await asyncio.sleep(restart_after_s)

    def mark(self) -> None:
        """From here on the story is about what is to be killed."""
        self.marked_at = (len(self.writes), len(self.landed))

    def maybe_kill(self, side: Side) -> None:
        """For gates: die here if this is the place."""
        passed = self.writes if side is Side.BEFORE else self.landed
        if self._kill is None or self.killed_at or self._kill.side is not side or len(passed) != self._kill.write:
            return
        self.killed_at = passed[-1]
        self._gate.is_shut = True
        assert self._task is not None
        self._task.cancel()
        raise Killed


async def _ended(task: "asyncio.Task[None]") -> None:
    try:
        await task
    except (Killed, asyncio.CancelledError):
        return
    except BaseExceptionGroup as group:
        _, other = group.split((Killed, asyncio.CancelledError))
        if other is not None:
            raise other from None


class Outcome(msgspec.Struct, frozen=True):
    kill: Kill
    write: str
    problem: str = ""
    """Why the story did not end well, "" if it did."""


def kills(alive: Process, *, since_mark: bool = False) -> Iterator[Kill]:
    """Before each write that a life without a kill attempts, and after each that lands; all, or those after the story's mark."""
    sent, landed = alive.marked_at if since_mark else (0, 0)
    for number in range(sent + 1, len(alive.writes) + 1):
        yield Kill(number, Side.BEFORE)
    for number in range(landed + 1, len(alive.landed) + 1):
        yield Kill(number, Side.AFTER)


def at_every_write(
    story: Callable[[Process], object],
    *,
    chosen: Callable[[Process], Iterable[Kill]] = kills,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run `story` alive once, then once per kill; a story raises AssertionError (or anything) when it does not end well.

    `chosen` picks the kills, given the life without any.
    """
    alive = Process()
    story(alive)
    found: list[Outcome] = []
    for kill in chosen(alive):
        process = Process(kill)
        try:
            story(process)
            problem = "" if process.killed_at else f"it never came to write {kill.write}"
        except Exception as error:  # noqa: BLE001 — a story that fails in whatever way has failed
            problem = f"{type(error).__name__}: {error}"
        outcome = Outcome(kill, process.killed_at, problem)
        found.append(outcome)
        tell(outcome)
    return found
