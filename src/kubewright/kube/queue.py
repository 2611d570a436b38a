"""The work queue under every controller: keys, not events, so that a burst about one object is one piece of work.

A key is in at most one of two places: waiting, or being worked on. A key added while it is worked on runs once more
afterwards. First come, first served; time is the event loop's, so a virtual loop moves the delays too.
"""

import asyncio
import heapq
from datetime import timedelta

BASE_DELAY = timedelta(seconds=1)
MAX_DELAY = timedelta(minutes=1)


class QueueHooks:
    """What a queue tells a listener; override what you want to hear."""

    def added(self, key: str, depth: int) -> None:
        """Called when `key` starts to wait; `depth` keys wait now."""

    def taken(self, key: str, depth: int, waited_s: float) -> None:
        """Called when a worker takes `key`; `depth` keys still wait."""

    def finished(self, key: str, worked_s: float) -> None:
        """Called when the work on `key` ends, well or badly."""

    def retried(self, key: str, delay: timedelta) -> None:
        """Called when `key` goes back after a failure."""


class WorkQueue:
    """Keys waiting for a worker, each at most once.

    `base_delay`, `max_delay`: the back-off of `retry`, per key: base · 2ⁿ for the n-th failure in a row, at most max.
    """

    def __init__(
        self, *, base_delay: timedelta = BASE_DELAY, max_delay: timedelta = MAX_DELAY, hooks: QueueHooks | None = None
    ) -> None:
        self._base_delay = base_delay
        self._max_delay = max_delay
        self.hooks = hooks or QueueHooks()
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: dict[str, float] = {}
        """Keys in `_ready`, or in work and dirty → when they were added."""
        self._working: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._later: list[tuple[float, int, str]] = []
        """Heap of (due, serial, key); an entry that disagrees with `_due` is dead."""
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Keys that could be worked on now; delayed ones are not counted."""
        return self._ready.qsize()

    def add(self, key: str) -> None:
        """Let `key` be worked on as soon as a worker is free; once more after the present run if it is being worked on."""
        if key in self._waiting:
            return
        self._waiting[key] = _time()
        if key not in self._working:
            self._ready.put_nowait(key)
        self.hooks.added(key, len(self._waiting))

    def add_after(self, key: str, delay: timedelta) -> None:
        """Add `key` when `delay` is over. Of several delays for one key the earliest wins; a plain `add` takes none away."""
        if delay <= timedelta(0):
            self.add(key)
            return
        due = _time() + delay.total_seconds()
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._serial += 1
        heapq.heappush(self._later, (due, self._serial, key))
        self._arm()

    def retry(self, key: str, *, base_delay: timedelta | None = None) -> timedelta:
        """Add `key` after its back-off, which is returned. `base_delay` overrides the queue's for this failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # Past every cap; without the limit the power would grow for ever.
        factor: int = 2 ** min(failures, 30)
        delay = min((base_delay or self._base_delay) * factor, self._max_delay)
        self.hooks.retried(key, delay)
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """Let the next failure of `key` be its first again."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """Failures of `key` in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> str:
        """The key that waited longest; the caller works on it and then calls `done`. Cancelling loses nothing."""
        key = await self._ready.get()
        now = _time()
        added = self._waiting.pop(key)
        self._working[key] = now
        self.hooks.taken(key, len(self._waiting), now - added)
        return key

    def done(self, key: str) -> None:
        """The work on `key` is over; if it was added meanwhile, it waits again, behind the others."""
        started = self._working.pop(key)
        self.hooks.finished(key, _time() - started)
        if key in self._waiting:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Stop the timer; delayed keys are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._later.clear()
        self._due.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        if self._later:
            due = self._later[0][0]
            self._timer = asyncio.get_running_loop().call_at(due, self._ring, due)

    def _ring(self, due: float) -> None:
        self._timer = None
        # A loop may ring up to its clock's resolution early.
        now = max(_time(), due)
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._arm()


def _time() -> float:
    return asyncio.get_running_loop().time()
