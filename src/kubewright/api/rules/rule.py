"""What a CRD rule is: one CEL expression for the API server, one Python function for us, one message for both."""

from collections.abc import Callable

import msgspec

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

Check = Callable[["Json", "Json"], bool]
"""(self, oldSelf) → whether the rule holds. `oldSelf` is None unless the rule is a transition rule."""


class EvaluationError(Exception):
    """A rule could not be evaluated, which the API server treats as a refusal; the text is the CEL runtime's own."""


class Rule(msgspec.Struct, frozen=True):
    """A validation rule of a schema node. A rule that reads `oldSelf` is asked only when there is an old value."""

    cel: str
    message: str
    check: Check

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.cel

    @property
    def wire(self) -> dict[str, "Json"]:
        """The rule as it stands in a CRD."""
        return {"rule": self.cel, "message": self.message}


def get(value: "Json", field: str) -> "Json":
    """A field that the rule reads without asking first whether it is there.

    Raises:
        EvaluationError: it is not.
    """
    assert isinstance(value, dict), "schema types are checked before rules are asked"
    if field not in value:
        raise EvaluationError(f"no such key: {field}")
    return value[field]


def has(value: "Json", field: str) -> bool:
    return isinstance(value, dict) and field in value


def items(value: "Json") -> list["Json"]:
    assert isinstance(value, list), "schema types are checked before rules are asked"
    return value


def mapping(value: "Json") -> dict[str, "Json"]:
    assert isinstance(value, dict), "schema types are checked before rules are asked"
    return value


def text(value: "Json") -> str:
    assert isinstance(value, str), "schema types are checked before rules are asked"
    return value


def every(values: list["Json"], check: Callable[["Json"], bool]) -> bool:
    """CEL's `all`: one false decides, whatever failed to evaluate elsewhere."""
    error: EvaluationError | None = None
    for value in values:
        try:
            if not check(value):
                return False
        except EvaluationError as problem:
            error = error or problem
    if error is not None:
        raise error
    return True
