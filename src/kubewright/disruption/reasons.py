"""Why and how nodes are disrupted: the closed lists that budgets, events and metrics share.

Source: spec/disruption 0, 1.2.
"""

import enum


class Reason(enum.StrEnum):
    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"

    @property
    def metric(self) -> str:
        """The value of a `reason` label."""
        return self.value.lower()


class Class(enum.StrEnum):
    """How much a method respects pods that do not want to move."""

    GRACEFUL = "graceful"
    """Always."""
    EVENTUAL = "eventual"
    """Unless the NodeClaim has a terminationGracePeriod, which bounds the wait."""


class Decision(enum.StrEnum):
    DELETE = "delete"
    REPLACE = "replace"
    NO_OP = "no-op"
