"""Time as the event loop tells it, so that a virtual loop moves everything at once.

Controllers sleep with `asyncio.sleep` and ask this clock for the date; both follow the same loop.
"""

import asyncio
from datetime import UTC, datetime, timedelta


class Clock:
    """The date, derived from the running loop's time.

    `epoch` is the date at loop time zero; without it the clock is set by the wall clock when first asked.
    """

    def __init__(self, epoch: datetime | None = None) -> None:
        self._epoch = epoch

    def now(self) -> datetime:
        """The current moment in UTC."""
        elapsed = timedelta(seconds=asyncio.get_running_loop().time())
        if self._epoch is None:
            self._epoch = datetime.now(UTC) - elapsed
        return self._epoch + elapsed
