"""Repeating calls that AWS throttled or failed to answer, and walking calls that page.

boto3's own retries are switched off, so that the fake and AWS behave alike. How fast calls go out at all is `calls`' matter.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kubewright.cloud.aws.api import Page, PagedRequest
from kubewright.cloud.aws.calls import Caller
from kubewright.cloud.aws.errors import AwsError, is_retryable, is_throttling

R = TypeVar("R")
A = TypeVar("A")
Q = TypeVar("Q", bound=PagedRequest)
P = TypeVar("P", bound=Page)

ATTEMPTS = 5
THROTTLED_ATTEMPTS = 10
"""A call that AWS refused because there were too many has done nothing and will pass; it is worth more patience."""
FIRST_DELAY = timedelta(milliseconds=200)
LONGEST_DELAY = timedelta(seconds=5)


async def pages(do: Callable[[Q], Awaitable[P]], request: Q) -> AsyncIterator[P]:
    """Every page of `request`, each repeated as `call` does. An error is raised: a part never passes for the whole."""
    while True:
        page = await call(do, request)
        yield page
        if not page.next_token:
            return
        request = replace(request, next_token=page.next_token)


async def call(do: Callable[[R], Awaitable[A]], request: R, attempts: int = ATTEMPTS) -> A:
    """Do it, again after about 0.2, 0.4, 0.8, … s while the error is one that passes.

    Raises:
        AwsError: the last one, or the first that repeating does not mend.
    """
    loop = asyncio.get_running_loop()
    began, failed, throttled = loop.time(), 0, 0
    delay = FIRST_DELAY
    while True:
        try:
            answer = await do(request)
        except AwsError as error:
            if is_throttling(error):
                throttled += 1
            else:
                failed += 1
            if not is_retryable(error) or failed >= attempts or throttled >= max(THROTTLED_ATTEMPTS, attempts):
                _tell(do, str(error.status), failed + throttled - 1, loop.time() - began)
                raise
        else:
            _tell(do, "200", failed + throttled, loop.time() - began)
            return answer
        # Spread evenly, not by chance: callers that failed together must not come back together, and runs must repeat.
        await asyncio.sleep(delay.total_seconds() * (0.75 + 0.5 * _place(request, failed + throttled)))
        delay = min(delay * 2, LONGEST_DELAY)


def _place(request: Any, attempt: int) -> float:
    """Between 0 and 1, by what is asked."""
    return zlib.crc32(msgspec.json.encode((request, attempt))) / 2**32


def _tell(do: object, status: str, retries: int, took_s: float) -> None:
    if isinstance(do, Caller):
        do.finished(status, retries, took_s)
