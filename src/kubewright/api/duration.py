"""Durations as Go writes them (`720h`, `1h30m`), and `Never`."""

import re
from datetime import timedelta

NEVER = "Never"
MAX_NS = 2**63 - 1

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)  # Go takes both micro signs
_NS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def parse_ns(text: str) -> int:
    """Whole nanoseconds of a Go duration; fractions below a nanosecond are cut off.

    Raises:
        ValueError: Go would refuse it; the message quotes the text.

    Source: Go time.ParseDuration.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            break
        whole, _, fraction = part[1].partition(".")
        unit = _NS[part[2]]
        total += int(whole or "0") * unit
        total += int(fraction or "0") * unit // 10 ** len(fraction)
        at = part.end()
    if at == 0 or at != len(rest) or total > MAX_NS:
        raise ValueError(f"not a duration: {text!r}")
    return sign * total


def parse(text: str) -> timedelta:
    """A Go duration, to the microsecond.

    Raises:
        ValueError: Go would refuse it; the message quotes the text.
    """
    return timedelta(microseconds=parse_ns(text) // 1000)


def parse_nillable(text: str | None) -> timedelta | None:
    """A duration that may be off: None for `Never` and for nothing written.

    Raises:
        ValueError: neither `Never` nor a duration.
    """
    return None if text is None or text == NEVER else parse(text)


def show(duration: timedelta) -> str:
    """The duration as Go prints it: `720h0m0s`, `1m30s`, `1.5s`, `250ms`, `0s`."""
    micros = duration // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{sign}{micros}\u00b5s"
    if micros < 10**6:
        return f"{sign}{_decimal(micros, 3)}ms"
    minutes, rest = divmod(micros, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(rest, 6) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(amount: int, places: int) -> str:
    whole, fraction = divmod(amount, 10**places)
    return f"{whole}.{fraction:0{places}d}".rstrip("0").rstrip(".")
