"""Kubernetes quantities as whole numbers of billionths, so that sums and ties are exact."""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NewType

Nano = NewType("Nano", int)
"""Billionths of the resource's own unit: nanocores for cpu, nanobytes for memory."""

Resources = Mapping[str, int]
"""Resource name → amount in billionths."""

ONE = Nano(10**9)

_SHAPE = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_SCALE = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_SCALE |= {letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)}
_SCALE |= {letter + "i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}


@lru_cache(maxsize=16384)
def parse(text: str | int) -> Nano:
    """Read `text` as the API server would; what is finer than a billionth rounds away from zero.

    Raises:
        ValueError: the API server would refuse it; the message quotes the text.

    Source: k8s.io/apimachinery resource.ParseQuantity (rounds at the Nano scale).
    """
    if isinstance(text, int):
        return Nano(text * ONE)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(f"not a quantity: {text!r}")
    sign, digits, exponent, suffix = shape.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SCALE[suffix or ""]
    exact = Fraction(digits) * scale * ONE
    size = -(-exact.numerator // exact.denominator)
    return Nano(-size if sign == "-" else size)


def parse_map(written: Mapping[str, str | int]) -> dict[str, int]:
    return {name: parse(text) for name, text in written.items()}
