"""Pod classes: pods that no rule can tell apart, grouped so that the solver places counts.

Source: design, "The solver's shape"; spec/scheduling 1.10, 5.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kubewright.api.core import Pod, PodSpec, Toleration
from kubewright.api.labels import BUFFER_POD, HOSTNAME
from kubewright.api.quantity import Resources
from kubewright.scheduling.host_ports import HostPort, host_ports
from kubewright.scheduling.refusal import Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import Requirements, both, of_pod
from kubewright.scheduling.resources import pod_requests
from kubewright.scheduling.volumes import Storage, alternatives, claim_keys, dying_keys
from kubewright.solver.relax import relaxations

if TYPE_CHECKING:
    from kubewright.solver.topology import Group, Rules

NO_SPREAD = 1 << 31
BUFFER_PRIORITY = -(1 << 31)
"""Of pods that stand in for CapacityBuffers. Source: spec/scheduling 9.2."""
_EPOCH = datetime.min.replace(tzinfo=UTC)


class Ask:
    """What a try wants of a node's labels and taints; asks with the same content are the same object."""

    __slots__ = ("id", "requirements", "tolerations")

    def __init__(self, index: int, requirements: Requirements, tolerations: tuple[Toleration, ...]) -> None:
        self.id = index
        self.requirements = requirements
        self.tolerations = tolerations


class Variant:
    """One form of a pod class: as written, or with some preferences given up."""

    __slots__ = ("asks", "given_up", "requirements", "rules", "spec", "strict")

    def __init__(self, spec: PodSpec, given_up: tuple[str, ...]) -> None:
        self.spec = spec
        self.given_up = given_up
        self.requirements: Requirements = {}
        self.strict: Requirements = {}
        self.asks: tuple[Ask, ...] = ()
        """One per way in which the pod's volumes may lie."""
        self.rules: Rules | None = None

    def reach(self, key: str) -> Requirement | None:
        """The values of `key` where the pod and its volumes could be, whichever way the volumes lie; None when that is open."""
        found: Requirement | None = None
        for ask in self.asks:
            one = ask.requirements.get(key)
            if one is None or one.complement:
                return self.strict.get(key)
            found = one if found is None else Requirement(key, found.values | one.values)
        return found


class PodClass:
    """`pods` are in queue order: oldest first, then by UID."""

    __slots__ = (
        "claims",
        "counted_in",
        "drivers",
        "index",
        "labels",
        "namespace",
        "oldest",
        "pods",
        "ports",
        "priority",
        "refusal",
        "requests",
        "spec",
        "stands_in",
        "variants",
    )

    def __init__(self, pods: list[Pod]) -> None:
        pods.sort(key=_queue_order)
        first = pods[0]
        self.pods = pods
        self.index = 0
        self.spec = first.spec
        self.namespace = first.namespace
        self.labels = first.metadata.labels
        self.requests: Resources = pod_requests(first)
        self.ports: tuple[HostPort, ...] = host_ports(first.spec)
        self.claims = claim_keys(first)
        self.drivers: Mapping[str, frozenset[str]] = {}
        """CSI driver → claims that take one of its attachment slots."""
        self.priority = first.spec.priority or 0
        self.oldest = _queue_order(first)
        self.stands_in = stands_in(first)
        """Whether its pods stand in for a CapacityBuffer: they take only what all real pods leave."""
        self.variants: list[Variant] = []
        self.counted_in: tuple[Group, ...] = ()
        """Topology groups in which a placed pod of this class counts."""
        self.refusal: Refusal | None = None
        """Why the class cannot be placed anywhere, whatever the places."""

    @property
    def size(self) -> tuple[int, int]:
        return self.requests.get("cpu", 0), self.requests.get("memory", 0)


class Asks:
    """The distinct asks of a pass."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Ask] = {}

    def get(self, requirements: Requirements, tolerations: tuple[Toleration, ...]) -> Ask:
        identity = (tuple(requirements[k] for k in sorted(requirements)), msgspec.msgpack.encode(tolerations))
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = Ask(len(self._known), requirements, tolerations)
        return found


def group(pods: Iterable[Pod]) -> list[PodClass]:
    """Classes of `pods`, largest first: by cpu, then memory, then age and UID of the oldest pod.

    Cost: one encoding and one look-up a pod.
    """
    encode = msgspec.msgpack.Encoder().encode
    found: dict[bytes, list[Pod]] = {}
    for pod in pods:
        spec = pod.spec
        meta = pod.metadata
        seen: tuple[object, ...] = (meta.namespace, meta.labels, spec)
        if spec.node_name:
            seen = (meta.namespace, meta.labels, replace(spec, node_name=""), pod.status.container_statuses)
        if spec.volumes and any(v.ephemeral is not None for v in spec.volumes):
            seen = (*seen, meta.name)
        if stands_in(pod):
            seen = (*seen, BUFFER_POD)
        key = encode(seen)
        members = found.get(key)
        if members is None:
            found[key] = [pod]
        else:
            members.append(pod)
    classes = [PodClass(members) for members in found.values()]
    classes.sort(key=by_size)
    for index, one in enumerate(classes):
        one.index = index
    return classes


def stands_in(pod: Pod) -> bool:
    """Whether the pod is a CapacityBuffer's, which will never come."""
    return pod.spec.priority == BUFFER_PRIORITY and pod.metadata.annotations.get(BUFFER_POD) == "true"


def by_size(one: PodClass) -> tuple[object, ...]:
    cpu, memory = one.size
    return (one.stands_in, -cpu, -memory, one.oldest)


def by_priority(one: PodClass) -> tuple[object, ...]:
    """The order for a second try, where limits or dry offerings left pods out."""
    return (one.stands_in, -one.priority, *by_size(one))


def by_constraint(one: PodClass) -> tuple[object, ...]:
    """The order for another try, where topology left pods out: most rules that cannot be relaxed first, then any rules."""
    bound = any(v.rules is not None and v.rules.any for v in one.variants)
    return (one.stands_in, -hard_rules(one), not bound, *by_size(one))


def hard_rules(one: PodClass) -> int:
    """How many topology rules of its own bind the class even when it has given up all that it may."""
    last = one.variants[-1].rules if one.variants else None
    if last is None:
        return 0
    return sum(not r.group.inverse for r in (*last.host, *(r for _, keyed in last.keyed for r in keyed)))


def by_tightness(one: PodClass) -> tuple[object, ...]:
    """The order for another try, where topology left pods out: the narrowest spread over domains first."""
    hard = [c for c in one.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    narrowest = min((c.max_skew for c in hard if c.topology_key != HOSTNAME), default=NO_SPREAD)
    return (one.stands_in, narrowest, *by_size(one))


def add_variants(
    one: PodClass, asks: Asks, storage: Storage, *, preferences: bool, prefer_taints: bool, known: Mapping[str, str]
) -> None:
    """Fill in `one.variants`, the written form first; `known` are label aliases.

    A volume that cannot be looked up refuses the whole class.
    """
    options = alternatives(one.claims, storage, dying_keys(one.pods[0]))
    if isinstance(options, Refusal):
        one.refusal = options
        return
    forms: list[tuple[tuple[str, ...], PodSpec]] = [((), one.spec)]
    for what, spec in relaxations(one.spec, preferences=preferences, prefer_taints=prefer_taints):
        forms.append(((*forms[-1][0], what), spec))
    for given_up, spec in forms:
        variant = Variant(spec, given_up)
        variant.requirements = of_pod(spec, preferences=preferences, aliases=known)
        variant.strict = of_pod(spec, preferences=False, aliases=known)
        variant.asks = _asks(variant, options, asks)
        one.variants.append(variant)


def _asks(variant: Variant, options: Sequence[Requirements], asks: Asks) -> tuple[Ask, ...]:
    tolerations = variant.spec.tolerations
    return tuple(
        asks.get(both(variant.requirements, option) if option else variant.requirements, tolerations) for option in options
    )


def _queue_order(pod: Pod) -> tuple[datetime, str, str]:
    return pod.metadata.creation_timestamp or _EPOCH, pod.metadata.uid, pod.key
