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

_SHAPE = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_DECIMAL = "kMGTPE"
_BINARY = "KMGTPE"
_SCALE = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_SCALE |= {letter: Fraction(1000**power) for power, letter in enumerate(_DECIMAL, 1)}
_SCALE |= {letter + "i": Fraction(1024**power) for power, letter in enumerate(_BINARY, 1)}
_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: ""} | {3 * power: letter for power, letter in enumerate(_DECIMAL, 1)}
_TENS = {suffix: tens for tens, suffix in _SUFFIX.items()}
_LARGEST_EXPONENT = 64
"""The API server would take any; nothing real needs more, and the power must not take for ever."""
_BINARY_CAP = (2**63 - 1) * ONE


@lru_cache(maxsize=16384)
def parse(text: str | int) -> Nano:
    """Read `text` as the API server would; what is finer than a billionth rounds away from zero.

    A text without digits, such as `Gi`, is zero, as it is there.

    Raises:
        ValueError: the API server would refuse it; the message quotes the text.

    Source: k8s.io/apimachinery resource.ParseQuantity (rounds at the Nano scale, caps binary amounts at 2⁶³-1).
    """
    if isinstance(text, int):
        return Nano(text * ONE)
    sign, whole, fraction, exponent, suffix = _parts(text)
    digits = Fraction(int(whole + fraction or "0"), 10 ** len(fraction))
    exact = digits * (_power(text, int(exponent)) if exponent else _SCALE[suffix]) * ONE
    size = -(-exact.numerator // exact.denominator)
    if suffix.endswith("i"):
        size = min(size, _BINARY_CAP)
    return Nano(-size if sign == "-" else size)


def parse_map(written: Mapping[str, str | int]) -> dict[str, int]:
    return {name: parse(text) for name, text in written.items()}


def canonical(text: str | int) -> str:
    """`text` as the API server would store it in a core object: `1000m` is `1`, `0.5` is `500m`, `2048Mi` is `2Gi`.

    A binary suffix, or a decimal exponent, stays one where that loses nothing. Texts that look canonical to the server's quick
    check are kept as they were written, even `+5` or `1.001k`.

    Raises:
        ValueError: the API server would refuse it.

    Source: k8s.io/apimachinery resource.ParseQuantity and Quantity.CanonicalizeBytes; compared with the real server.
    """
    amount = parse(text)
    if isinstance(text, int):
        return show(amount)
    _, whole, fraction, exponent, suffix = _parts(text)
    if _looks_canonical(whole or "0", fraction, exponent, suffix):
        return text.strip()
    return _decimal(amount, exponents=True) if exponent else show(amount, binary=suffix.endswith("i"))


def _looks_canonical(whole: str, fraction: str, exponent: str, suffix: str) -> bool:
    if suffix.endswith("i"):
        power = _BINARY.index(suffix[0]) + 1
        return not fraction and 14 - len(whole) - 3 * power >= 0 and int(whole) & 7 != 0
    written = whole + fraction
    scale = (int(exponent) if exponent else _TENS[suffix]) - len(fraction)
    return len(written) <= 18 and scale >= -9 and scale % 3 == 0 and not written.endswith("000") and not written.startswith("0")


def _parts(text: str) -> tuple[str, str, str, str, str]:
    """Sign, digits before and after the point, exponent, suffix; each "" where there is none."""
    shape = _SHAPE.fullmatch(text.strip())
    if shape is None or not text.strip():
        raise ValueError(f"not a quantity: {text!r}")
    sign, whole, fraction, exponent, suffix = shape.groups(default="")
    has_digits = any(ch.isdigit() for ch in text.partition("e")[0].partition("E")[0])
    if not has_digits and (suffix in ("Pi", "Ei") or (exponent and int(exponent) < -9)):
        # the server's quick way takes no digits for 0; its slow way, for the widest scales, does not
        raise ValueError(f"not a quantity: {text!r}")
    return sign, whole, fraction, exponent, suffix


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
