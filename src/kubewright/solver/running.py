"""Pods that run, as topology counts them: by namespace and labels, and those that keep others away.

Looked through once for all passes over the same nodes. Source: spec/scheduling 6.4, 6.8.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kubewright.api.core import Pod
from kubewright.solver.problem import StateNode

if TYPE_CHECKING:
    from kubewright.solver.nodes import ExistingNode

_FINISHED = ("Succeeded", "Failed")


class Alike(NamedTuple):
    """Running pods of the same namespace and labels."""

    namespace: str
    labels: Mapping[str, str]
    on: Sequence[tuple[int, int]]
    """(index of a node of the table, pods), by index."""
    elsewhere: Mapping[str, int]
    """Name of a node that is leaving → pods."""


class Running:
    """What runs on `nodes`, which stand in the table's order, and on `leaving` ones; pods in `scheduled` (UIDs) do not count.

    Each answer is found when it is first asked for.
    """

    def __init__(self, nodes: Sequence["ExistingNode"], leaving: Sequence[StateNode], scheduled: Collection[str]) -> None:
        self._nodes = nodes
        self._leaving = leaving
        self._scheduled = scheduled
        self._alike: list[Alike] | None = None
        self._shy: list[tuple[Pod, int | None, str]] | None = None
        self._owned: Mapping[str, int] | None = None

    def alike(self) -> Sequence[Alike]:
        """All that count, in the order in which the first of each kind was met."""
        if self._alike is None:
            self._alike = self._by_labels()
        return self._alike

    def shy(self) -> Sequence[tuple[Pod, int | None, str]]:
        """Those with required anti-affinity: (pod, index of its node or None where that is leaving, name of the node)."""
        if self._shy is None:
            self._shy = [found for found in self._pods() if _is_shy(found[0]) and counts(found[0], self._scheduled)]
        return self._shy

    def owned(self) -> Mapping[str, int]:
        """UID of a controller → its pods on the nodes of the table, whether they count for topology or not."""
        if self._owned is None:
            found: dict[str, int] = {}
            for node in self._nodes:
                for pod in node.source.pods:
                    if owner := controller_of(pod):
                        found[owner] = found.get(owner, 0) + 1
            self._owned = found
        return self._owned

    def _by_labels(self) -> list[Alike]:
        encode = msgspec.msgpack.Encoder().encode
        scheduled = self._scheduled
        found: dict[bytes, tuple[Mapping[str, str], str, dict[int, int], dict[str, int]]] = {}
        for pod, index, host in self._pods():
            if not counts(pod, scheduled):
                continue
            meta = pod.metadata
            key = encode((meta.namespace, meta.labels))
            entry = found.get(key)
            if entry is None:
                entry = found[key] = (meta.labels, meta.namespace, {}, {})
            if index is not None:
                entry[2][index] = entry[2].get(index, 0) + 1
            else:
                entry[3][host] = entry[3].get(host, 0) + 1
        return [Alike(namespace, labels, sorted(on.items()), off) for labels, namespace, on, off in found.values()]

    def _pods(self) -> Iterable[tuple[Pod, int | None, str]]:
        for node in self._nodes:
            if node.source.node is not None:
                for pod in node.source.pods:
                    yield pod, node.index, node.name
        for place in self._leaving:
            if place.node is not None:
                for pod in place.pods:
                    yield pod, None, place.node.name


def is_active_on_node(pod: Pod) -> bool:
    """Whether the pod takes room on its node: it has not finished (it may be terminating)."""
    return pod.status.phase not in _FINISHED


def controller_of(pod: Pod) -> str:
    """UID of the pod's controller, "" if it has none; pods of one class have the same."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return ""


def counts(pod: Pod, scheduled: Collection[str]) -> bool:
    """Whether a bound pod counts for topology: it runs, is not ending, and is not itself being placed."""
    meta = pod.metadata
    return pod.status.phase not in _FINISHED and meta.deletion_timestamp is None and (meta.uid or pod.key) not in scheduled


def _is_shy(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)
