"""Taints and what tolerates them.

Source: spec/scheduling 3.6, 4.1; k8s.io/component-helpers ToleratesTaint.
"""

import re
from collections.abc import Iterable

from kubewright.api.core import Taint, Toleration
from kubewright.api.labels import UNREGISTERED_TAINT

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"

TOLERATES_PREFERENCES = Toleration(operator="Exists", effect=PREFER_NO_SCHEDULE)
"""What relaxing adds at last, and what DaemonSet pods are always given."""

EPHEMERAL: frozenset[tuple[str, str]] = frozenset(
    {
        ("node.kubernetes.io/not-ready", NO_SCHEDULE),
        ("node.kubernetes.io/not-ready", NO_EXECUTE),
        ("node.kubernetes.io/unreachable", NO_SCHEDULE),
        ("node.cloudprovider.kubernetes.io/uninitialized", NO_SCHEDULE),
        (UNREGISTERED_TAINT.key, UNREGISTERED_TAINT.effect),
    }
)
"""Taints (key, effect) that go by themselves while a node comes up."""

_READINESS = "readiness.k8s.io/"
_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
    """The taints that nothing tolerates, in their order; PreferNoSchedule counts like any other."""
    allowed = tuple(tolerations)
    return tuple(t for t in taints if not any(covers(a, t) for a in allowed))


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether `toleration` tolerates `taint`, numeric operators included."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Lt" | "Gt":
            if not _INTEGER.fullmatch(toleration.value) or not _INTEGER.fullmatch(taint.value):
                return False
            mine, its = int(toleration.value), int(taint.value)
            return its < mine if toleration.operator == "Lt" else its > mine
    return False


def is_ephemeral(taint: Taint) -> bool:
    return (taint.key, taint.effect) in EPHEMERAL or taint.key.startswith(_READINESS)


def without_startup(taints: Iterable[Taint], startup: Iterable[Taint]) -> tuple[Taint, ...]:
    """`taints` less those that go by themselves and those that the NodePool calls startup taints (key and effect match)."""
    expected = {(t.key, t.effect) for t in startup}
    return tuple(t for t in taints if not is_ephemeral(t) and (t.key, t.effect) not in expected)
