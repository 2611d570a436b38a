"""Series of metrics that are read off the cluster when somebody scrapes: one for each pod, node or condition.

Nothing of them is kept between scrapes but what the pods of a node ask for together, which is added up anew only when the node
changed. Source: spec/scheduling 12.1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from kubewright.api import labels, quantity
from kubewright.api.core import Node, Pod, PodSpec
from kubewright.api.meta import Condition, Labels, Object
from kubewright.lifecycle import pods, state
from kubewright.metrics.table import NODE_LABELS
from kubewright.scheduling import resources
from kubewright.solver.problem import StateNode

Series = tuple[tuple[str, ...], float]
Amounts = Mapping[str, int]

_NODE_KEYS = {
    "nodepool": labels.NODEPOOL,
    "zone": labels.ZONE,
    "region": labels.REGION,
    "instance_type": labels.INSTANCE_TYPE,
    "arch": labels.ARCH,
    "os": labels.OS,
    "capacity_type": labels.CAPACITY_TYPE,
    "windows_build": labels.WINDOWS_BUILD,
}
KINDS = (
    "allocatable",
    "total_pod_requests",
    "total_pod_limits",
    "total_daemon_requests",
    "total_daemon_limits",
    "system_overhead",
)
_POD_LABELS = (labels.NODEPOOL, labels.ZONE, labels.ARCH, labels.CAPACITY_TYPE, labels.INSTANCE_TYPE)


def snake(label: str) -> str:
    """The name part of a label key as a metric's label: `karpenter.k8s.aws/instance-cpu` is `instance_cpu`."""
    return label.rpartition("/")[2].replace("-", "_").replace(".", "_")


class Nodes:
    """What nodes have and what their pods ask for, by node; `more` are the provider's labels that go onto every series."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        named = {snake(key): key for key in more}
        self._keys = (
            *(_NODE_KEYS[name] for name in NODE_LABELS),
            *(named[name] for name in sorted(named) if name not in NODE_LABELS),
        )
        self._known: dict[str, tuple[StateNode, tuple[str, ...], Mapping[str, Amounts]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The provider's labels, as the metrics have them."""
        return tuple(snake(key) for key in self._keys[len(NODE_LABELS) :])

    def update(self, nodes: Iterable[StateNode]) -> None:
        """Read these nodes, and forget all others."""
        before, self._known = self._known, {}
        for known in nodes:
            if known.node is None:
                continue
            name = known.node.name
            old = before.get(name)
            self._known[name] = old if old is not None and old[0] is known else (known, self._labels(known.node), _amounts(known))

    def amounts(self, kind: str) -> Iterator[Series]:
        """Series of nodes_<kind>: resource type first, then the node's own labels."""
        for _, named, amounts in list(self._known.values()):
            for resource, amount in amounts[kind].items():
                yield (resource, *named), _plain(amount)

    def lifetimes(self, now: datetime) -> Iterator[Series]:
        for known, named, _ in list(self._known.values()):
            assert known.node is not None
            if known.node.metadata.creation_timestamp is not None:
                yield named, (now - known.node.metadata.creation_timestamp).total_seconds()

    def utilization(self) -> Mapping[str, float]:
        """Resource → what pods ask for, of what all nodes have, in percent."""
        asked: dict[str, int] = {}
        there: dict[str, int] = {}
        for _, _, amounts in self._known.values():
            for into, kinds in ((asked, KINDS[1:4:2]), (there, KINDS[:1])):
                for kind in kinds:
                    for resource, amount in amounts[kind].items():
                        into[resource] = into.get(resource, 0) + amount
        return {resource: 100 * asked.get(resource, 0) / amount for resource, amount in there.items() if amount}

    def _labels(self, node: Node) -> tuple[str, ...]:
        carried = node.metadata.labels
        managed = "true" if labels.NODEPOOL in carried else "false"
        return (node.name, "", managed, *(carried.get(key, "") for key in self._keys))


def _amounts(known: StateNode) -> Mapping[str, Amounts]:
    assert known.node is not None
    has, can = quantity.parse_map(known.node.status.capacity), quantity.parse_map(known.node.status.allocatable)
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    found["allocatable"] = dict(can)
    found["system_overhead"] = {name: amount - can.get(name, 0) for name, amount in has.items()}
    for pod in known.pods:
        whose = "daemon" if pods.is_daemon(pod) else "pod"
        _add(found[f"total_{whose}_requests"], resources.pod_requests(pod))
        _add(found[f"total_{whose}_limits"], limits(pod.spec))
    return found


def limits(spec: PodSpec) -> dict[str, int]:
    """Limits of a pod's containers together; those that run before them count where they are larger."""
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, quantity.parse_map(container.resources.limits))
    for container in spec.init_containers:
        for name, amount in quantity.parse_map(container.resources.limits).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def _add(into: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def _plain(amount: int) -> float:
    return amount / quantity.ONE


def pod_states(all_pods: Iterable[Pod], nodes: Mapping[str, Node]) -> Iterator[Series]:
    """Series of pods_state, 1 each."""
    carried: dict[str, tuple[str, ...]] = {}
    nowhere = ("",) * len(_POD_LABELS)
    for pod in all_pods:
        name = pod.spec.node_name
        on = carried.get(name)
        if on is None:
            node = nodes.get(name)
            on = carried[name] = nowhere if node is None else tuple(node.metadata.labels.get(key, "") for key in _POD_LABELS)
        pool, zone, arch, capacity_type, instance_type = on
        yield (
            (
                pod.name,
                pod.namespace,
                _owner(pod),
                name,
                _flag(name),
                pool,
                zone,
                arch,
                capacity_type,
                instance_type,
                pod.status.phase,
                _flag(any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)),
                _flag(pool),
            ),
            1.0,
        )


def _flag(value: object) -> str:
    return "true" if value else "false"


def _owner(pod: Pod) -> str:
    """Where the first owner is served, as the reference writes it."""
    if not pod.metadata.owner_references:
        return ""
    owner = pod.metadata.owner_references[0]
    return f"/apis/{owner.api_version}/namespaces/{pod.namespace}/{owner.kind.lower()}s/{owner.name}"


def waiting_pods(
    all_pods: Iterable[Pod], seen: Mapping[str, datetime], decided: Mapping[str, datetime], now: datetime
) -> Mapping[str, list[Series]]:
    """Series of the five gauges of pods that do not run yet, by the metric's name without its prefix.

    `seen` is when we first knew of a pod that needed a node, `decided` when a pass said something about it, by UID.
    """
    found: dict[str, list[Series]] = {
        name: []
        for name in (
            "pods_unstarted_time_seconds",
            "pods_unbound_time_seconds",
            "pods_provisioning_unbound_time_seconds",
            "pods_provisioning_unstarted_time_seconds",
            "pods_provisioning_scheduling_undecided_time_seconds",
        )
    }
    for pod in all_pods:
        if pods.is_terminal(pod) or pod.status.phase == "Running":
            continue
        named = (pod.name, pod.namespace)
        known = seen.get(pod.metadata.uid)
        for began, prefix in ((pod.metadata.creation_timestamp, "pods_"), (known, "pods_provisioning_")):
            if began is not None:
                age = (now - began).total_seconds()
                found[f"{prefix}unstarted_time_seconds"].append((named, age))
                if not pod.spec.node_name:
                    found[f"{prefix}unbound_time_seconds"].append((named, age))
        if known is not None and pod.metadata.uid not in decided and not pod.spec.node_name:
            found["pods_provisioning_scheduling_undecided_time_seconds"].append((named, (now - known).total_seconds()))
    return found


def conditions_of(obj: Object) -> tuple[Condition, ...]:
    found: tuple[Condition, ...] = getattr(getattr(obj, "status", None), "conditions", ())
    return found


def condition_counts(objects: Iterable[Object]) -> Iterator[Series]:
    """Series of operator_<kind>_status_condition_count, 1 each."""
    for obj in objects:
        for one in conditions_of(obj):
            yield (obj.namespace, obj.name, one.type, one.status, one.reason), 1.0


def condition_ages(objects: Iterable[Object], now: datetime) -> Iterator[Series]:
    """Series of operator_<kind>_status_condition_current_status_seconds."""
    for obj in objects:
        for one in conditions_of(obj):
            if one.last_transition_time is not None:
                age = (now - one.last_transition_time).total_seconds()
                yield (obj.namespace, obj.name, one.type, one.status, one.reason), age


def deletion_ages(objects: Iterable[Object], now: datetime) -> Iterator[Series]:
    """Series of operator_<kind>_termination_current_time_seconds."""
    for obj in objects:
        if obj.metadata.deletion_timestamp is not None:
            yield (obj.namespace, obj.name), (now - obj.metadata.deletion_timestamp).total_seconds()


def usd_per_hour(priced: Iterable[tuple[StateNode, float]]) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """NodePool → price of its nodes together; and NodeClaim → NodePool for those whose price is not known."""
    cost: dict[str, float] = {}
    unknown: dict[str, str] = {}
    for known, price in priced:
        pool = labels_of(known).get(labels.NODEPOOL)
        if pool is not None and known.claim is not None:
            cost[pool] = cost.get(pool, 0.0) + price
            if not price:
                unknown[known.claim.metadata.uid] = pool
    return cost, unknown


def labels_of(known: StateNode) -> Labels:
    return state.labels_of(known)
