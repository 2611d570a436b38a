"""One label key and the values it may take.

Source: spec/scheduling 2.1 to 2.4, 2.8. `Gt n` and `Lt n` become inclusive bounds at the door, so the rest of the code knows two
operators fewer.
"""

from collections.abc import Iterable

import msgspec

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
DOES_NOT_EXIST = "DoesNotExist"
MAX_INT = 2**63 - 1


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """What one label may be: a listed set, or everything but a listed set (`complement`) within inclusive bounds.

    Bounds only stand on complements: on a listed set they have been applied.
    """

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    at_least: int | None = None
    at_most: int | None = None
    min_values: int | None = None

    def has(self, value: str) -> bool:
        return (value in self.values) != self.complement and self._in_bounds(value)

    @property
    def operator(self) -> str:
        if self.complement:
            return NOT_IN if self.values else EXISTS
        return IN if self.values else DOES_NOT_EXIST

    @property
    def is_empty(self) -> bool:
        """True when no value at all would do (the operator is DoesNotExist)."""
        return not self.complement and not self.values

    def __and__(self, other: "Requirement") -> "Requirement":
        """The values that both sides allow.

        Cost: O(values of both); never enumerates an open set.
        """
        floor = _most(self.min_values, other.min_values)
        low = _most(self.at_least, other.at_least)
        high = _least(self.at_most, other.at_most)
        if low is not None and high is not None and low > high:
            return Requirement(self.key, min_values=floor)
        if self.complement and other.complement:
            kept = frozenset(v for v in self.values | other.values if within(v, low, high))
            return Requirement(self.key, kept, True, low, high, floor)
        closed, rest = (self, other) if not self.complement else (other, self)
        kept = frozenset(v for v in closed.values if (v in rest.values) != rest.complement and within(v, low, high))
        return Requirement(self.key, kept, min_values=floor)

    def intersects(self, other: "Requirement") -> bool:
        """Whether some value satisfies both; the same answer as `not (self & other).is_empty`, without building it."""
        low = _most(self.at_least, other.at_least)
        high = _least(self.at_most, other.at_most)
        if low is not None and high is not None and low > high:
            return False
        if self.complement and other.complement:
            return True
        closed, rest = (self, other) if not self.complement else (other, self)
        return any((v in rest.values) != rest.complement and within(v, low, high) for v in closed.values)

    def any(self) -> str:
        """One allowed value, the same every time: the least listed one, or the least allowed number; "" when nothing is allowed.

        Differs from the reference on purpose: it draws a random number, which may be an excluded one (spec/scheduling 2.4 [Q]).
        """
        if not self.complement:
            return min(self.values, default="")
        number = self.at_least if self.at_least is not None else 0
        while str(number) in self.values:
            number += 1
        return str(number) if self.at_most is None or number <= self.at_most else ""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal requirements, and orderable in text: for keys of caches and for sorting."""
        return (self.key, self.complement, tuple(sorted(self.values)), self.at_least, self.at_most, self.min_values)

    def _in_bounds(self, value: str) -> bool:
        return within(value, self.at_least, self.at_most)

    def __str__(self) -> str:
        text = f"{self.key} {self.operator}"
        if self.values:
            shown = sorted(self.values)
            more = f" and {len(shown) - 5} others" if len(shown) > 5 else ""
            text += f" [{' '.join(shown[:5])}{more}]"
        if self.at_least is not None:
            text += f" >={self.at_least}"
        if self.at_most is not None:
            text += f" <={self.at_most}"
        return text + (f" minValues {self.min_values}" if self.min_values is not None else "")


def requirement(key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Requirement:
    """A requirement from its written form; the key is taken as it is (see `api.labels.normalize`).

    Raises:
        ValueError: the operator is unknown, or a numeric operator has no single integer.
    """
    listed = tuple(values)
    if operator == IN:
        return Requirement(key, frozenset(listed), min_values=min_values)
    if operator == NOT_IN:
        return Requirement(key, frozenset(listed), True, min_values=min_values)
    if operator == EXISTS:
        return Requirement(key, complement=True, min_values=min_values)
    if operator == DOES_NOT_EXIST:
        return Requirement(key, min_values=min_values)
    if operator not in ("Gt", "Lt", "Gte", "Lte") or len(listed) != 1:
        raise ValueError(f"key {key}: operator {operator} with values {list(listed)}")
    number = integer(listed[0])
    if number is None:
        raise ValueError(f"key {key}: {listed[0]!r} is not a whole number")
    if operator == "Gt" and number >= MAX_INT:
        return Requirement(key)
    if operator in ("Gt", "Gte"):
        return Requirement(key, complement=True, at_least=number + (operator == "Gt"), min_values=min_values)
    return Requirement(key, complement=True, at_most=number - (operator == "Lt"), min_values=min_values)


def nowhere(key: str) -> Requirement:
    """What no label can meet, a missing one neither."""
    return Requirement(key, complement=True, at_least=1, at_most=0)


def integer(text: str) -> int | None:
    """A whole number as Go reads one (digits of ASCII with a sign at most, 64 bits); None when it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -MAX_INT - 1 <= number <= MAX_INT else None


def within(value: str, low: int | None, high: int | None) -> bool:
    """Whether `value` is an integer inside the bounds; without bounds anything is."""
    if low is None and high is None:
        return True
    number = integer(value)
    if number is None:
        return False
    return (low is None or number >= low) and (high is None or number <= high)


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
