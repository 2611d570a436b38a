"""Requirements that no machine can ever meet, found before a cluster meets them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from kubewright.api import labels
from kubewright.api.validation import AWS, Vocabulary

_BOUNDS = {"Gt": 1, "Gte": 0, "Lt": -1, "Lte": 0}


def contradictions(
    requirements: Sequence[Mapping[str, Any]], node_labels: Mapping[str, str], vocabulary: Vocabulary = AWS
) -> Iterable[tuple[int, str]]:
    """(index of the requirement that makes it impossible, why) for each key that cannot be satisfied.

    `node_labels` are what the pool puts on its nodes; they count as requirements of one value each.
    """
    for key, group in sorted(_by_key(requirements, vocabulary).items()):
        label = next((v for k, v in sorted(node_labels.items()) if labels.normalize(k, vocabulary.aliases) == key), None)
        so_far: list[str] = [] if label is None else [f"the label {key}: {label}"]
        left = _Possible() if label is None else _Possible().narrowed("In", [label])
        for index, requirement in group:
            left = left.narrowed(str(requirement["operator"]), [str(v) for v in requirement.get("values") or ()])
            so_far.append(_text(requirement))
            if left.is_empty:
                yield index, f"{' and '.join(so_far)} {'leave' if len(so_far) > 1 else 'leaves'} no value for {key}"
                break


class _Possible(msgspec.Struct, frozen=True):
    """What one label may still be: one of `listed` (None: anything), not `excluded`, within bounds; there, or absent."""

    listed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    low: int | None = None
    high: int | None = None
    absent: bool = False
    present: bool = False

    def narrowed(self, operator: str, values: list[str]) -> "_Possible":
        if operator == "DoesNotExist":
            return structs.replace(self, absent=True)
        if operator == "NotIn":
            return structs.replace(self, excluded=self.excluded | frozenset(values))
        if operator == "In":
            listed = frozenset(values) if self.listed is None else self.listed & frozenset(values)
            return structs.replace(self, listed=listed, present=True)
        if operator in _BOUNDS and len(values) == 1 and values[0].isdigit():
            bound = int(values[0]) + _BOUNDS[operator]
            if operator.startswith("G"):
                return structs.replace(self, low=bound if self.low is None else max(self.low, bound), present=True)
            return structs.replace(self, high=bound if self.high is None else min(self.high, bound), present=True)
        return structs.replace(self, present=True)

    @property
    def is_empty(self) -> bool:
        if self.absent and self.present:
            return True
        # no label of a machine is a negative number
        if self.high is not None and self.high < (self.low or 0):
            return True
        if self.listed is not None:
            return not any(self._allows(value) for value in self.listed)
        low, high = self.low or 0, self.high
        # more numbers in the bounds than there are excluded values: one is left
        return self.present and high is not None and high - low < len(self.excluded) and not self._any_between(low, high)

    def _any_between(self, low: int, high: int) -> bool:
        return any(self._allows(str(number)) for number in range(low, high + 1))

    def _allows(self, value: str) -> bool:
        if value in self.excluded:
            return False
        if self.low is None and self.high is None:
            return True
        if not value.isdigit():
            return False
        return (self.low is None or int(value) >= self.low) and (self.high is None or int(value) <= self.high)


def _by_key(requirements: Sequence[Mapping[str, Any]], vocabulary: Vocabulary) -> dict[str, list[tuple[int, Mapping[str, Any]]]]:
    groups: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for index, requirement in enumerate(requirements):
        groups.setdefault(labels.normalize(str(requirement["key"]), vocabulary.aliases), []).append((index, requirement))
    return groups


def _text(requirement: Mapping[str, Any]) -> str:
    values = requirement.get("values") or ()
    return f"{requirement['operator']} [{' '.join(map(str, values))}]" if values else str(requirement["operator"])
