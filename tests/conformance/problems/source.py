"""Where a generator's choices come from: a seed, hypothesis, or a list of choices that is being made smaller.

Every choice is a number below a bound, and 0 is always the plainest, so that smaller choices make plainer problems.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Numbers(Protocol):
    def below(self, bound: int) -> int: ...


class Seeded:
    """The same choices for the same seed; `made` is what was chosen so far."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.made: list[int] = []

    def below(self, bound: int) -> int:
        self.made.append(self._rng.randrange(bound))
        return self.made[-1]


class Replayed:
    """Choices from a list, the plainest once it is used up."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = choices
        self.used = 0

    def below(self, bound: int) -> int:
        self.used += 1
        return min(self._choices[self.used - 1], bound - 1) if self.used <= len(self._choices) else 0


class Drawn:
    """Choices by hypothesis; `draw` takes the bound."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.below = draw


class Source:
    """The choices a generator makes."""

    def __init__(self, numbers: Numbers) -> None:
        self.below = numbers.below

    def one(self, *options: T) -> T:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different ones."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]


def smaller(choices: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 600) -> list[int]:
    """Fewer and smaller choices that still fail, within `tries`."""
    best = list(choices)

    def better(candidate: list[int]) -> bool:
        nonlocal best, tries
        if tries <= 0 or candidate == best:
            return False
        tries -= 1
        if not fails(candidate):
            return False
        best = candidate
        return True

    while tries > 0:
        before = list(best)
        size = max(1, len(best) // 2)
        while size and tries > 0:
            at = 0
            while at < len(best) and tries > 0:
                if not better(best[:at] + best[at + size :]) and not better(
                    best[:at] + [0] * len(best[at : at + size]) + best[at + size :]
                ):
                    at += size
            size //= 2
        for at in range(len(best)):
            for lower in (best[at] // 2 if at < len(best) else 0, best[at] - 1 if at < len(best) else 0):
                if at < len(best) and 0 <= lower < best[at]:
                    better([*best[:at], lower, *best[at + 1 :]])
        if best == before:
            break
    return best
