"""A node as the scheduler weighs it: its facts, and the pods that stand on it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubewright.api import quantity
from kubewright.api.core import Node, Taint
from kubewright.sim.scheduler.pods import Amounts, PodFacts, rounded


class Alike:
    """Pods on one node that no rule can tell apart."""

    __slots__ = ("count", "example", "staying")

    def __init__(self, example: PodFacts) -> None:
        self.example = example
        self.count = 0
        self.staying = 0
        """Those that are not being deleted; topology spread counts only them."""


class NodeState:
    """Changes as pods come and go; whoever changes `node` makes a new one and moves the pods over."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        node = msgspec.convert(obj, Node)
        self.name = node.metadata.name
        self.labels: Mapping[str, str] = node.metadata.labels
        self.taints: tuple[Taint, ...] = node.spec.taints
        self.unschedulable = node.spec.unschedulable
        self.allocatable: Amounts = rounded(quantity.parse_map(node.status.allocatable))
        self.used: Amounts = {}
        self.scored: Amounts = {"cpu": 0, "memory": 0}
        self.pods: dict[str, PodFacts] = {}
        self.ports: dict[tuple[str, str, int], int] = {}
        self.alike: dict[bytes, Alike] = {}
        self.wishing = 0
        """How many of the pods have a say about pods near them."""

    def add(self, pod: PodFacts) -> None:
        if pod.uid in self.pods:
            self.remove(pod.uid)
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)

    def _count(self, pod: PodFacts, sign: int) -> None:
        for name, amount in pod.requests.items():
            self.used[name] = self.used.get(name, 0) + sign * amount
        for name, amount in pod.scored.items():
            self.scored[name] += sign * amount
        for port in pod.ports:
            self.ports[port] = self.ports.get(port, 0) + sign
            if not self.ports[port]:
                del self.ports[port]
        if pod.affinity or pod.anti_affinity or pod.preferred_terms:
            self.wishing += sign
        alike = self.alike.setdefault(pod.look, Alike(pod))
        alike.count += sign
        alike.staying += 0 if pod.terminating else sign
        if not alike.count:
            del self.alike[pod.look]
