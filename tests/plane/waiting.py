"""Waiting for a cluster, which only ever becomes something eventually."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T], *, within_s: float = 60.0) -> T:
    """The first true answer of `ask`, which is asked ten times a second.

    `within_s` ends a wait for what will never come; it is no claim about speed.

    Raises:
        AssertionError: there was none; the message has the last answer.
    """
    end = time.monotonic() + within_s
    while not (answer := ask()):
        if time.monotonic() > end:
            raise AssertionError(f"still {answer!r} after {within_s:g} s")
        time.sleep(0.1)
    return answer
