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
_DECIMAL = "kMGTPE"
_BINARY = "KMGTPE"
_SCALE = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_SCALE |= {letter: Fraction(1000**power) for power, letter in enumerate(_DECIMAL, 1)}
_SCALE |= {letter + "i": Fraction(1024**power) for power, letter in enumerate(_BINARY, 1)}
_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: ""} | {3 * power: letter for power, letter in enumerate(_DECIMAL, 1)}
_LARGEST_EXPONENT = 64
"""The API server would take any; nothing real needs more, and the power must not take for ever."""
_BINARY_CAP = (2**63 - 1) * ONE


@lru_cache(maxsize=16384)
def parse(text: str | int) -> Nano:
    """Read `text` as the API server would; what is finer than a billionth rounds away from zero.

    Raises:
        ValueError: the API server would refuse it; the message quotes the text.

    Source: k8s.io/apimachinery resource.ParseQuantity (rounds at the Nano scale, caps binary amounts at 2⁶³-1).
    """
    if isinstance(text, int):
        return Nano(text * ONE)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(f"not a quantity: {text!r}")
    sign, digits, exponent, suffix = shape.groups()
    exact = Fraction(digits) * (_power(text, int(exponent)) if exponent else _SCALE[suffix or ""]) * ONE
    size = -(-exact.numerator // exact.denominator)
    if suffix is not None and suffix.endswith("i"):
        size = min(size, _BINARY_CAP)
    return Nano(-size if sign == "-" else size)


def parse_map(written: Mapping[str, str | int]) -> dict[str, int]:
    return {name: parse(text) for name, text in written.items()}


def canonical(text: str | int) -> str:
    """`text` as the API server would store it in a core object: `1000m` is `1`, `0.5` is `500m`, `2048Mi` is `2Gi`.

    A binary suffix, or a decimal exponent, stays one where that loses nothing.

    Raises:
        ValueError: the API server would refuse it.

    Source: k8s.io/apimachinery resource.Quantity.CanonicalizeBytes.
    """
    amount = parse(text)
    if isinstance(text, int):
        return show(amount)
    shape = _SHAPE.fullmatch(text)
    if shape is not None and shape[3] is not None:
        return _decimal(amount, exponents=True)
    return show(amount, binary=text.endswith("i"))


def show(amount: int, *, binary: bool = False) -> str:
    """An amount of billionths as the API server prints it, with binary suffixes if `binary` and they lose nothing.

    Cost: O(digits).
    """
    if not binary or abs(amount) < 1024 * ONE or amount % ONE:
        return _decimal(amount, exponents=False)
    units, power = amount // ONE, 0
    while units % 1024 == 0 and power < len(_BINARY):
        units //= 1024
        power += 1
    return f"{units}{_BINARY[power - 1]}i" if power else str(units)


def _decimal(amount: int, *, exponents: bool) -> str:
    if amount == 0:
        return "0"
    exponent = -9
    # 18 is E, the largest suffix; an exponent may grow on
    while amount % 1000 == 0 and (exponents or exponent < 18):
        amount //= 1000
        exponent += 3
    if exponents:
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_SUFFIX[exponent]}"


def _power(text: str, exponent: int) -> Fraction:
    if exponent > _LARGEST_EXPONENT:
        raise ValueError(f"not a quantity: {text!r} (larger than 1e{_LARGEST_EXPONENT})")
    return Fraction(10) ** max(exponent, -_LARGEST_EXPONENT - 400)
