"""Nodes that exist or are on their way: what is free on them, behind the same kind of masks as instance types.

Source: spec/scheduling 4.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import msgspec

from kubewright.api import labels as names
from kubewright.api.core import CSINode, Pod, Taint
from kubewright.api.karpenter import NodeClaim
from kubewright.api.quantity import ONE, Resources, parse_map
from kubewright.catalogue.columns import Ladder
from kubewright.scheduling.host_ports import HostPort, host_ports
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN, Requirement
from kubewright.scheduling.requirements import Requirements, compatible, of_labels
from kubewright.scheduling.resources import NODES, is_resize_infeasible, pod_requests
from kubewright.scheduling.taints import untolerated, without_startup
from kubewright.scheduling.volumes import Storage, claim_keys, driver_of
from kubewright.solver.classes import Ask
from kubewright.solver.problem import StateNode
from kubewright.solver.running import Running, is_active_on_node

_encode = msgspec.msgpack.Encoder().encode


def registered(place: StateNode) -> bool:
    return _flag(place, names.REGISTERED)


def initialized(place: StateNode) -> bool:
    return _flag(place, names.INITIALIZED)


def _flag(place: StateNode, label: str) -> bool:
    if place.claim is None:
        return True
    return place.node is not None and place.node.metadata.labels.get(label) == "true"


def name_of(place: StateNode) -> str:
    """The NodeClaim's name until the node has registered, then the node's."""
    if place.node is not None and (place.claim is None or registered(place)):
        return place.node.name
    return place.claim.name if place.claim is not None else ""


def labels_of(place: StateNode) -> Mapping[str, str]:
    if place.node is not None and (place.claim is None or registered(place)):
        return place.node.metadata.labels
    return claim_labels(place.claim) if place.claim is not None else {}


def claim_labels(claim: NodeClaim) -> dict[str, str]:
    return claim.metadata.labels


def taints_of(place: StateNode) -> tuple[Taint, ...]:
    """Taints that pods must tolerate; those that go by themselves do not count until the node is initialized."""
    if place.node is None or (place.claim is not None and not registered(place)):
        taints = place.claim.spec.taints if place.claim is not None else ()
    else:
        taints = place.node.spec.taints
    if names.SOON_TAINT in taints:
        taints = tuple(t for t in taints if t != names.SOON_TAINT)
    if place.claim is None or initialized(place):
        return taints
    return without_startup(taints, place.claim.spec.startup_taints)


def capacity_of(place: StateNode) -> dict[str, int]:
    """What the machine has, `nodes: 1` included."""
    found = _status(place, "capacity")
    found[NODES] = ONE
    return found


def allocatable_of(place: StateNode) -> dict[str, int]:
    return _status(place, "allocatable")


def _status(place: StateNode, field: str) -> dict[str, int]:
    own = parse_map(getattr(place.node.status, field)) if place.node is not None else {}
    if place.claim is None or initialized(place):
        return own
    promised = parse_map(getattr(place.claim.status, field))
    return {**own, **{k: v for k, v in promised.items() if not own.get(k)}}


class RequestCache:
    """Requests by what they are computed from; thousands of pods share a few hundred shapes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Resources] = {}

    def of(self, pod: Pod) -> Resources:
        spec, status = pod.spec, pod.status
        shape: tuple[object, ...] = (
            [(c.name, c.resources.requests) for c in spec.containers],
            [(c.name, c.resources.requests, c.restart_policy) for c in spec.init_containers],
            spec.overhead,
        )
        given = (status.container_statuses, status.init_container_statuses)
        if spec.resources is not None or any(given):
            whole = (spec.resources, status.resources, status.allocated_resources)
            shape = (*shape, *given, *whole, is_resize_infeasible(status))
        key = _encode(shape)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = pod_requests(pod)
        return found


class ExistingNode:
    """A place that is there already, with what is left on it."""

    __slots__ = (
        "aliases",
        "as_requirements",
        "attached",
        "free",
        "host",
        "index",
        "labels",
        "limits",
        "name",
        "pods",
        "ports",
        "source",
        "taints",
    )

    def __init__(self, source: StateNode, aliases: Mapping[str, str], cache: RequestCache) -> None:
        self.source = source
        self.index = 0
        self.name = name_of(source)
        self.labels = {aliases.get(k, k): v for k, v in labels_of(source).items()}
        self.host = self.labels.setdefault(names.HOSTNAME, self.name)
        self.aliases = aliases
        self.as_requirements: list[Requirements] = []
        """`requirements`, once they were asked for; shared with twins."""
        self.taints = taints_of(source)
        self.free = allocatable_of(source)
        self.ports: list[HostPort] = []
        self.attached: dict[str, set[str]] = {}
        self.limits: Mapping[str, int] = {}
        self.pods: list[str] = []
        """Keys of pods that this pass puts here."""
        free = self.free
        for pod in source.pods:
            if is_active_on_node(pod):
                for name, amount in cache.of(pod).items():
                    free[name] = free.get(name, 0) - amount
                for container in (*pod.spec.containers, *pod.spec.init_containers):
                    if container.ports:
                        self.ports += host_ports(pod.spec)
                        break

    @property
    def requirements(self) -> Requirements:
        """The labels as requirements; found when first asked for, and then by all twins."""
        if not self.as_requirements:
            self.as_requirements.append(of_labels(self.labels, self.aliases))
        return self.as_requirements[0]

    def twin(self) -> "ExistingNode":
        """The same node, to be filled apart from this one."""
        made = ExistingNode.__new__(ExistingNode)
        made.source = self.source
        made.index = self.index
        made.name = self.name
        made.labels = self.labels
        made.host = self.host
        made.aliases = self.aliases
        made.as_requirements = self.as_requirements
        made.taints = self.taints
        made.free = self.free.copy()
        made.ports = self.ports.copy()
        made.attached = {driver: set(keys) for driver, keys in self.attached.items()} if self.attached else {}
        made.limits = self.limits
        made.pods = self.pods.copy()
        return made

    def expect(self, daemons: Sequence[tuple[Pod, Requirements, Resources]], cache: RequestCache) -> None:
        """Keep room for daemons that will come: pod, the labels it wants, its requests. Source: spec/scheduling 4.4."""
        expected: dict[str, int] = {}
        for pod, wanted, requests in daemons:
            if not untolerated(self.taints, pod.spec.tolerations) and compatible(self.requirements, wanted) is None:
                for name, amount in requests.items():
                    expected[name] = expected.get(name, 0) + amount
        if not expected:
            return
        for pod in self.source.pods:
            if is_active_on_node(pod) and is_daemon(pod):
                for name, amount in cache.of(pod).items():
                    expected[name] = expected.get(name, 0) - amount
        for name, amount in expected.items():
            if amount > 0:
                self.free[name] = self.free.get(name, 0) - amount

    def count_volumes(self, storage: Storage, csi: CSINode | None, promised: Mapping[str, int]) -> None:
        """`promised` are the attach limits of its instance type, which hold until the drivers have said theirs."""
        self.limits = dict(promised) if not initialized(self.source) else {}
        for pod in self.source.pods:
            if pod.spec.volumes and is_active_on_node(pod):
                for key in claim_keys(pod):
                    driver = driver_of(key, storage)
                    if driver:
                        self.attached.setdefault(driver, set()).add(key)
        if csi is not None:
            drivers = csi.spec.drivers
            self.limits |= {d.name: d.allocatable.count for d in drivers if d.allocatable and d.allocatable.count is not None}

    def attachable(self, drivers: Mapping[str, frozenset[str]]) -> str:
        """The driver whose limit these claims would exceed, "" when they can be attached."""
        for driver, keys in drivers.items():
            limit = self.limits.get(driver)
            if limit is not None and len(self.attached.get(driver, set()) | keys) > limit:
                return driver
        return ""


def is_daemon(pod: Pod) -> bool:
    return any(o.api_version == "apps/v1" and o.kind == "DaemonSet" for o in pod.metadata.owner_references)


class NodeTable:
    """Existing nodes in the order in which they are tried, with a mask per label value."""

    def __init__(self, nodes: Sequence[ExistingNode], order: Callable[[ExistingNode], tuple[object, ...]] | None = None) -> None:
        """In the given order, else initialized ones first, then by name."""
        self.nodes = sorted(nodes, key=order or (lambda n: (not initialized(n.source), n.name)))
        self.every = (1 << len(self.nodes)) - 1
        self._by_value: dict[str, dict[str, int]] = {}
        self._by_taints: dict[tuple[Taint, ...], int] = {}
        self._allowed: dict[int, int] = {}
        self._room: dict[str, Ladder] = {}
        self._taken = 0
        taint_sets: dict[bytes, tuple[tuple[Taint, ...], int]] = {}
        self.open = 0
        """Nodes on which nothing is overdrawn."""
        for i, node in enumerate(self.nodes):
            node.index = i
            bit = 1 << i
            for key, value in node.labels.items():
                column = self._by_value.setdefault(key, {})
                column[value] = column.get(value, 0) | bit
            written = _encode(node.taints)
            known = taint_sets.get(written)
            taint_sets[written] = (node.taints, (known[1] if known else 0) | bit)
            if all(amount >= 0 for amount in node.free.values()):
                self.open |= bit
        self._taint_sets = tuple(taint_sets.values())
        self.running: Running | None = None
        """Who runs on these nodes, where that is known."""

    def twin(self) -> "NodeTable":
        """The same nodes in the same order, to be filled apart from these; only before anything was put on these."""
        made = copy(self)
        made.fill_anew()
        return made

    def fill_anew(self) -> None:
        """Take nodes of its own, filled as they are now, and forget what was found out about asks and room."""
        self.nodes = [node.twin() for node in self.nodes]
        self._allowed = {}
        self._room = {}

    def values(self, key: str) -> Mapping[str, int]:
        return self._by_value.get(key, {})

    def having(self, key: str) -> int:
        mask = 0
        for nodes in self.values(key).values():
            mask |= nodes
        return mask

    def perhaps_roomy(self, requests: Iterable[tuple[str, int]]) -> int:
        """Nodes that had room for `requests` a while ago; as room only shrinks, all others have none.

        Cost: a bisection a resource, and sorting the nodes anew once many have been filled.
        """
        if self._taken > len(self.nodes) >> 3:
            self._room.clear()
            self._taken = 0
        mask = self.every
        for name, amount in requests:
            if amount:
                ladder = self._room.get(name)
                if ladder is None:
                    free = ((node.free.get(name, 0), i) for i, node in enumerate(self.nodes))
                    ladder = self._room[name] = Ladder(free)
                mask &= ladder.at_least(amount)
        return mask

    def take(self, index: int, requests: Iterable[tuple[str, int]], pods: int) -> None:
        """Give room on a node to `pods` pods of one kind."""
        free = self.nodes[index].free
        for name, amount in requests:
            free[name] = free.get(name, 0) - amount * pods
        self._taken += 1

    def allowed(self, ask: Ask) -> int:
        """Nodes whose labels and taints the ask accepts. Source: spec/scheduling 4.5 steps 1 and 5."""
        mask = self._allowed.get(ask.id)
        if mask is None:
            mask = self.open
            for one in ask.requirements.values():
                mask &= self.matching(one)
            for taints, nodes in self._taint_sets:
                if taints and mask & nodes and untolerated(taints, ask.tolerations):
                    mask &= ~nodes
            self._allowed[ask.id] = mask
        return mask

    def matching(self, wanted: Requirement) -> int:
        mask = 0
        for value, nodes in self.values(wanted.key).items():
            if wanted.has(value):
                mask |= nodes
        if wanted.operator in (NOT_IN, DOES_NOT_EXIST):
            mask |= self.every & ~self.having(wanted.key)
        return mask
