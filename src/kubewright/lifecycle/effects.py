"""What the rules of a node's life ask the world for: plain values, carried out elsewhere (`controllers.actor`).

A rule never acts. It returns effects in the order in which they must be done; whoever carries them out may be killed between
any two of them, and the rule, asked again about what it then finds, gives the rest.
"""

import enum
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from kubewright.api.meta import Object


class EventKind(enum.StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class Update(msgspec.Struct, frozen=True):
    """Make the object that was read as `before` equal `after`, provided nobody changed it meanwhile.

    Metadata (labels, annotations, finalizers, owners), a Node's taints, and status are compared; nothing else is written.
    """

    before: Object
    after: Object
    locked: bool = True
    """Whether the write must fail if the object changed in any way since `before` was read. Without it, it fails if what it would
    replace has changed, and other people's writes to the rest do not matter."""


class Delete(msgspec.Struct, frozen=True):
    """Delete exactly this object (its UID is a precondition); one that is gone already is a success."""

    target: Object
    grace_period_s: int | None = None


class Evict(msgspec.Struct, frozen=True):
    """Ask the eviction API for the end of a pod; a PodDisruptionBudget may refuse."""

    target: Object


class Publish(msgspec.Struct, frozen=True):
    """Tell the people who watch `about`; `dedupe` are the values that make two events of one reason different."""

    about: Object
    kind: EventKind
    reason: str
    message: str
    dedupe: tuple[str, ...] = ()
    window: timedelta = timedelta(minutes=2)
    """Equal events within it are told once. Source: spec/scheduling 12.2."""


class Count(msgspec.Struct, frozen=True):
    """Add one to a counter, `name` without the `karpenter_` prefix."""

    name: str
    labels: Mapping[str, str] = {}
    amount: int = 1


Effect = Update | Delete | Evict | Publish | Count


class Step(msgspec.Struct, frozen=True):
    """What a rule answers: effects in order, and when to be asked again even if nothing changes.

    `again` None means: only when something changes.
    """

    effects: tuple[Effect, ...] = ()
    again: timedelta | None = None

    def then(self, other: "Step") -> "Step":
        """Both, this one first; the sooner of the two times."""
        return Step(self.effects + other.effects, sooner(self.again, other.again))


NOTHING = Step()


def sooner(a: timedelta | None, b: timedelta | None) -> timedelta | None:
    return b if a is None else a if b is None else min(a, b)
