"""Schedules of disruption budgets: cron as the reference reads it, in UTC.

cronsim finds the moments; this module turns what the reference's parser accepts into what cronsim reads the same way, and refuses
what only cronsim would accept (`L`, `#`, Sunday as 7, seconds).
Source: dependencies.md row cron (robfig/cron ParseStandard); spec/scheduling 10.1.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from cronsim import CronSim, CronSimError

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
_DAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule that was read; `normal` is five fields of numbers, lists, ranges and steps."""

    normal: str

    def next_after(self, moment: datetime) -> datetime:
        """The first hit strictly after `moment`, in UTC."""
        return next(CronSim(self.normal, moment.astimezone(UTC)))


@lru_cache(maxsize=1024)
def parse(text: str) -> Schedule:
    """Read a schedule: five cron fields, or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.

    Raises:
        ValueError: the reference would refuse it, or no such day ever comes; the message names the field.
    """
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ValueError(f"schedule {text!r}: unknown word; use one of {', '.join(sorted(_DESCRIPTORS))}")
        return Schedule(_DESCRIPTORS[text])
    written = text.split()
    if len(written) != len(_FIELDS):
        raise ValueError(
            f"schedule {text!r}: expected 5 fields (minute hour day-of-month month day-of-week), found {len(written)}"
        )
    normal = " ".join(_field(text, value, *field) for value, field in zip(written, _FIELDS, strict=True))
    try:
        next(CronSim(normal, datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration):
        raise ValueError(f"schedule {text!r}: no such day ever comes") from None
    return Schedule(normal)


def _field(text: str, value: str, name: str, low: int, high: int, names: dict[str, int]) -> str:
    parts: list[str] = []
    for term in value.split(","):
        try:
            part = _term(term.lower(), low, high, names)
        except ValueError as problem:
            raise ValueError(f"schedule {text!r}: {name} {value!r}: {problem}") from None
        if part == "*":
            # one star in a list opens the whole field, and days then have to match both day fields
            return "*"
        parts.append(part)
    return ",".join(parts)


def _term(term: str, low: int, high: int, names: dict[str, int]) -> str:
    shape = re.fullmatch(r"(\*|\?|([^-/*?]+)(?:-([^-/*?]+))?)(?:/(\d+))?", term, re.ASCII)
    if shape is None:
        raise ValueError(f"cannot read {term!r}; write a number, a range a-b, a list, * or */n")
    whole, first, last, step = shape.groups()
    if step is not None and int(step) == 0:
        raise ValueError("a step must be at least 1")
    if whole in ("*", "?"):
        # with a real step the field no longer counts as open
        return "*" if step is None or int(step) == 1 else f"{low}-{high}/{step}"
    start = _number(first, low, high, names)
    if last is None and step is None:
        return str(start)
    end = high if last is None else _number(last, low, high, names)
    if end < start:
        raise ValueError(f"the range {term!r} runs backwards")
    if start == end:
        # cronsim reads the step of a single value as reaching to the end of the field
        return str(start)
    return f"{start}-{end}" + (f"/{step}" if step is not None else "")


def _number(word: str, low: int, high: int, names: dict[str, int]) -> int:
    number = names.get(word)
    if number is None:
        if not re.fullmatch(r"\d+", word, re.ASCII):
            raise ValueError(f"{word!r} is not a number" + (" or a name" if names else ""))
        number = int(word)
    if not low <= number <= high:
        raise ValueError(f"{number} is not between {low} and {high}")
    return number
