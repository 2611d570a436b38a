"""Repeating calls that AWS throttled or failed to answer, and walking calls that page.

boto3's own retries are switched off, so that the fake and AWS behave alike.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from kubewright.cloud.aws.api import Page, PagedRequest
from kubewright.cloud.aws.errors import AwsError, is_retryable

R = TypeVar("R")
A = TypeVar("A")
Q = TypeVar("Q", bound=PagedRequest)
P = TypeVar("P", bound=Page)

ATTEMPTS = 5
FIRST_DELAY = timedelta(milliseconds=200)


async def pages(do: Callable[[Q], Awaitable[P]], request: Q) -> AsyncIterator[P]:
    """Every page of `request`, each repeated as `call` does. An error is raised: a part never passes for the whole."""
    while True:
        page = await call(do, request)
        yield page
        if not page.next_token:
            return
        request = replace(request, next_token=page.next_token)


async def call(do: Callable[[R], Awaitable[A]], request: R, attempts: int = ATTEMPTS) -> A:
    """Do it, again after 0.2, 0.4, 0.8, 1.6 s while the error is one that passes.

    Raises:
        AwsError: the last one, or the first that repeating does not mend.
    """
    delay = FIRST_DELAY
    for attempt in range(1, attempts + 1):
        try:
            return await do(request)
        except AwsError as error:
            if attempt == attempts or not is_retryable(error):
                raise
        await asyncio.sleep(delay.total_seconds())
        delay *= 2
    raise AssertionError("unreachable")
