"""What a pod is to somebody who empties a node: terminal, terminating, evictable, drainable, movable.

Source: spec/disruption 0 and 1.4, spec/scheduling 1.2.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.api import duration, labels, selectors
from kubewright.api.core import Pod, PodDisruptionBudget
from kubewright.api.meta import find_condition, owned_by
from kubewright.scheduling import taints
from kubewright.solver.select import is_active, is_disruptable, is_provisionable, is_reschedulable

__all__ = [
    "CRITICAL",
    "STUCK_AFTER",
    "PdbIndex",
    "allowed",
    "is_active",
    "is_critical",
    "is_daemon",
    "is_disruptable",
    "is_drainable",
    "is_evictable",
    "is_mirror",
    "is_provisionable",
    "is_reschedulable",
    "is_stuck",
    "is_terminal",
    "is_terminating",
    "is_waiting_eviction",
    "pin_problem",
    "pinned_until",
    "tolerates_disrupted",
]

STUCK_AFTER = timedelta(seconds=60)
"""A terminating pod that outlives its deletionTimestamp (which includes its grace) this long no longer holds a drain."""
CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


def is_terminal(pod: Pod) -> bool:
    return pod.status.phase in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_daemon(pod: Pod) -> bool:
    return owned_by(pod.metadata, "apps/v1", "DaemonSet")


def is_mirror(pod: Pod) -> bool:
    return owned_by(pod.metadata, "v1", "Node")


def is_critical(pod: Pod) -> bool:
    return pod.spec.priority_class_name in CRITICAL


def is_stuck(pod: Pod, now: datetime) -> bool:
    return pod.metadata.deletion_timestamp is not None and now - pod.metadata.deletion_timestamp > STUCK_AFTER


def pin_problem(pod: Pod) -> str:
    """What is wrong with the pod's do-not-disrupt annotation, or ""."""
    text = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    if text is None or text == "true" or _held_for(text) is not None:
        return ""
    return f'{labels.DO_NOT_DISRUPT} is {text!r}; write "true" or a positive duration such as "4h"'


def tolerates_disrupted(pod: Pod) -> bool:
    """Whether the pod stays through a disruption by its own wish: it tolerates `karpenter.sh/disrupted:NoSchedule`."""
    return any(taints.covers(t, labels.DISRUPTED_TAINT) for t in pod.spec.tolerations)


def is_evictable(pod: Pod, now: datetime) -> bool:
    return is_active(pod) and not tolerates_disrupted(pod) and not is_mirror(pod) and is_disruptable(pod, now)


def is_drainable(pod: Pod, now: datetime) -> bool:
    """Whether a drain concerns itself with the pod. Pinned pods are drainable: the drain waits for them."""
    return not tolerates_disrupted(pod) and not is_stuck(pod, now) and not is_mirror(pod)


def is_waiting_eviction(pod: Pod, now: datetime) -> bool:
    return not is_terminal(pod) and is_drainable(pod, now)


class PdbIndex(msgspec.Struct, frozen=True):
    """PodDisruptionBudgets by namespace, for asking which ones guard a pod."""

    by_namespace: Mapping[str, tuple[PodDisruptionBudget, ...]] = {}

    @classmethod
    def of(cls, budgets: Iterable[PodDisruptionBudget]) -> "PdbIndex":
        found: dict[str, list[PodDisruptionBudget]] = {}
        for budget in sorted(budgets, key=lambda b: b.key):
            found.setdefault(budget.namespace, []).append(budget)
        return cls({namespace: tuple(listed) for namespace, listed in found.items()})

    def guarding(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Those that match and count: one that always lets unhealthy pods go does not guard a pod that is not Ready."""
        unhealthy = (ready := find_condition(pod.status.conditions, "Ready")) is not None and ready.status == "False"
        return tuple(
            b
            for b in self.by_namespace.get(pod.namespace, ())
            if selectors.matches(b.spec.selector, pod.metadata.labels)
            and not (unhealthy and b.spec.unhealthy_pod_eviction_policy == "AlwaysAllow")
        )

    def blocking(self, pod: Pod, now: datetime) -> tuple[PodDisruptionBudget, ...]:
        """Those that would refuse an eviction now; two or more guarding one pod always refuse.

        Source: spec/disruption 1.3, rule 11.
        """
        if not is_evictable(pod, now):
            return ()
        guards = self.guarding(pod)
        if len(guards) > 1:
            return guards
        return tuple(b for b in guards if allowed(b) == 0)


def allowed(budget: PodDisruptionBudget) -> int:
    """Evictions the budget allows now; none while its status is older than its spec."""
    if budget.status.observed_generation < budget.metadata.generation:
        return 0
    return budget.status.disruptions_allowed


def pinned_until(pod: Pod) -> datetime | None:
    """When a do-not-disrupt annotation with a duration runs out; None for one without end, or where there is none."""
    held = _held_for(pod.metadata.annotations.get(labels.DO_NOT_DISRUPT, ""))
    return None if held is None or pod.status.start_time is None else pod.status.start_time + held


def _held_for(text: str) -> timedelta | None:
    try:
        held = duration.parse(text)
    except ValueError:
        return None
    return held if held > timedelta() else None
