"""What a pod asks for, in billionths, as kube-scheduler counts it.

Source: spec/scheduling 1.10; k8s.io/component-helpers resource.PodRequests.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kubewright.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements
from kubewright.api.quantity import ONE, Resources, parse_map

PODS = "pods"
NODES = "nodes"
_POD_LEVEL = ("cpu", "memory")


def pod_requests(pod: Pod) -> dict[str, int]:
    """Requests of the whole pod: containers, sidecars, init containers, pod level, overhead, a running resize, and `pods: 1`.

    A container's request while it is being resized is the larger of wanted and given, unless the resize is infeasible.
    """
    spec, status = pod.spec, pod.status
    infeasible = is_resize_infeasible(status)
    given = {s.name: s for s in status.container_statuses} if status.container_statuses else {}
    given_init = {s.name: s for s in status.init_container_statuses} if status.init_container_statuses else {}
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container(container, given.get(container.name), infeasible))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        own = _container(container, given_init.get(container.name), infeasible)
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = sidecars
        else:
            own = plus(own, sidecars)
        _raise_to(peak, own)
    _raise_to(total, peak)
    if spec.resources is not None:
        whole = _resized(parse_map(spec.resources.requests), status.resources, parse_map(status.allocated_resources), infeasible)
        total.update((k, v) for k, v in whole.items() if k in _POD_LEVEL or k.startswith("hugepages-"))
    if spec.overhead:
        _add(total, parse_map(spec.overhead))
    total[PODS] = total.get(PODS, 0) + ONE
    return total


def with_limits_as_requests(spec: PodSpec) -> PodSpec:
    """A pod template as the API server would default it: a request that is missing is its limit. Source: spec/scheduling 3.7."""
    return replace(
        spec,
        containers=tuple(map(_defaulted, spec.containers)),
        init_containers=tuple(map(_defaulted, spec.init_containers)),
    )


def plus(a: Resources, b: Resources) -> dict[str, int]:
    total = dict(a)
    _add(total, b)
    return total


def total_of(many: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in many:
        _add(total, one)
    return total


def minus(a: Resources, b: Resources) -> dict[str, int]:
    """`a - b` for every key of either."""
    left = dict(a)
    for name, amount in b.items():
        left[name] = left.get(name, 0) - amount
    return left


def fits(requests: Resources, available: Resources) -> bool:
    """Whether the requests fit; nothing fits where something is overdrawn already. Source: spec/scheduling 4.5."""
    if any(amount < 0 for amount in available.values()):
        return False
    return all(amount <= available.get(name, 0) for name, amount in requests.items())


def least(many: Sequence[Resources]) -> dict[str, int]:
    """Per resource the least of all, over the resources that all name."""
    if not many:
        return {}
    shared = set(many[0]).intersection(*many[1:])
    return {name: min(one[name] for one in many) for name in sorted(shared)}


def has_claims(spec: PodSpec) -> bool:
    """Whether the pod asks for devices by Dynamic Resource Allocation. Source: spec/scheduling 5.3."""
    return bool(spec.resource_claims) or any(c.resources.claims for c in (*spec.containers, *spec.init_containers))


def _add(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def _raise_to(into: dict[str, int], other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > into.get(name, 0):
            into[name] = amount
        else:
            into.setdefault(name, 0)


def _container(container: Container, status: ContainerStatus | None, infeasible: bool) -> dict[str, int]:
    wanted = parse_map(container.resources.requests)
    if status is None:
        return wanted
    return _resized(wanted, status.resources, parse_map(status.allocated_resources), infeasible)


def _resized(
    wanted: dict[str, int], actual: ResourceRequirements | None, allocated: Mapping[str, int], infeasible: bool
) -> dict[str, int]:
    if actual is None:
        return wanted
    held = parse_map(actual.requests)
    _raise_to(held, allocated)
    if infeasible:
        return held
    _raise_to(held, wanted)
    return held


def is_resize_infeasible(status: PodStatus) -> bool:
    """Whether the kubelet said that the node will never have room for what the pod is to become."""
    if status.resize == "Infeasible":
        return True
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions)


def _defaulted(container: Container) -> Container:
    resources = container.resources
    missing = {k: v for k, v in resources.limits.items() if k not in resources.requests}
    if not missing:
        return container
    return replace(container, resources=replace(resources, requests={**resources.requests, **missing}))
