"""A token bucket on the event loop's time."""

import asyncio


class TokenBucket:
    """At most `burst` at once and `rate_per_s` in the long run; full at the start."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a positive rate and a burst of at least 1, got {rate_per_s} and {burst}")
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        """Negative when takers wait: they have booked tokens that are still to come."""
        self._at: float | None = None

    def try_take(self) -> bool:
        """Take a token if there is one now."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def take(self) -> float:
        """Take a token, waiting for it in the order of the calls; returns the seconds waited."""
        self._refill()
        self._tokens -= 1
        if self._tokens >= 0:
            return 0.0
        wait_s = -self._tokens / self._rate_per_s
        try:
            await asyncio.sleep(wait_s)
        except BaseException:
            self._tokens += 1
            raise
        return wait_s

    def _refill(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate_per_s)
        self._at = now
