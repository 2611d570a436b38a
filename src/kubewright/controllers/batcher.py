"""When to start a scheduling pass: a little after the last pod came, but never long after the first.

Source: spec/scheduling 1.3.
"""

import asyncio
from datetime import timedelta


class Batcher:
    """Collects triggers into batches: one ends `idle` after its last new element, or `longest` after its first."""

    def __init__(self, idle: timedelta, longest: timedelta) -> None:
        self._idle_s = idle.total_seconds()
        self._longest_s = longest.total_seconds()
        self._seen: set[str] = set()
        self._news = asyncio.Event()

    def trigger(self, element: str) -> None:
        """Ask for a pass. The same element within one batch counts once, so it does not make the batch longer."""
        if element not in self._seen:
            self._seen.add(element)
            self._news.set()

    async def wait(self) -> int:
        """Until a batch is complete; returns how many elements it had. Cancelling loses nothing."""
        await self._news.wait()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._longest_s
        while True:
            self._news.clear()
            quiet_s = min(self._idle_s, end - loop.time())
            try:
                async with asyncio.timeout(max(quiet_s, 0)):
                    await self._news.wait()
            except TimeoutError:
                break
            if loop.time() >= end:
                break
        size = len(self._seen)
        self._seen.clear()
        self._news.clear()
        return size
