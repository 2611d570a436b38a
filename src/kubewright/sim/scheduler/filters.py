"""The filters that ask one pod and one node: pure, in kube-scheduler's order and with its texts.

Each returns the reasons why not, none when the pod may stand there.

Source: k8s.io/kubernetes v1.36 pkg/scheduler/framework/plugins, one function a plugin.
"""

from collections.abc import Iterable, Sequence

from kubewright.api.core import NodeSelector, NodeSelectorTerm, Taint, Toleration
from kubewright.api.meta import Labels, SelectorRequirement
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts

Reasons = tuple[str, ...]

UNSCHEDULABLE = "node(s) were unschedulable"
NODE_NAME = "node(s) didn't match the requested node name"
TAINTS = "node(s) had untolerated taint(s)"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NODE_AFFINITY_PREFILTER = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def unmoving(pod: PodFacts, node: NodeState) -> Reasons:
    """The filters whose answer depends on no other pod; the first that says no."""
    if node.unschedulable and not tolerated(UNSCHEDULABLE_TAINT, pod.tolerations):
        return (UNSCHEDULABLE,)
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return (NODE_NAME,)
    if not tolerates(pod, node):
        return (TAINTS,)
    if not matches_affinity(pod, node):
        return (NODE_AFFINITY,)
    return ()


def moving(pod: PodFacts, node: NodeState) -> Reasons:
    """The filters that ask what stands on the node now: host ports, then resources."""
    if pod.ports and not ports_free(pod, node):
        return (PORTS,)
    return shortages(pod, node)


def tolerates(pod: PodFacts, node: NodeState) -> bool:
    """Whether every taint that keeps pods away is tolerated."""
    return all(t.effect not in ("NoSchedule", "NoExecute") or tolerated(t, pod.tolerations) for t in node.taints)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_covers(t, taint) for t in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            return False  # comparison operators are behind a feature gate that is off in 1.36


def matches_affinity(pod: PodFacts, node: NodeState) -> bool:
    """Whether nodeSelector and required node affinity both hold."""
    if any(node.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    return pod.required is None or selects(pod.required, node)


def selects(selector: NodeSelector, node: NodeState) -> bool:
    """Whether any term picks the node."""
    return any(term_selects(term, node) for term in selector.node_selector_terms)


def term_selects(term: NodeSelectorTerm, node: NodeState) -> bool:
    """Whether all of the term's expressions and fields hold; an empty term picks nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(e, node.labels) for e in term.match_expressions) and all(_holds(f, fields) for f in term.match_fields)


def _holds(wanted: SelectorRequirement, labels: Labels) -> bool:
    found = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return found is not None and found in wanted.values
        case "NotIn":
            return found is None or found not in wanted.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            have, bound = _integer(found), _integer(wanted.values[0])
            if have is None or bound is None:
                return False
            return have > bound if wanted.operator == "Gt" else have < bound
        case _:
            return False  # the API server refuses others


def _integer(text: str | None) -> int | None:
    """As Go's strconv.ParseInt reads it."""
    if text is None or not text.isascii() or not text.lstrip("+-").isdigit() or len(text) - len(text.lstrip("+-")) > 1:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def pinned(pod: PodFacts) -> frozenset[str] | None:
    """The only nodes that the pod's matchFields leave, as for a DaemonSet's pod; None when it is not so pinned."""
    if pod.required is None:
        return None
    names: set[str] = set()
    for term in pod.required.node_selector_terms:
        own = [set(f.values) for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        if not own:
            return None
        names |= set.intersection(*own)
    return frozenset(names)


def ports_free(pod: PodFacts, node: NodeState) -> bool:
    anywhere = "0.0.0.0"  # noqa: S104 - it is a comparison, not a bind
    for address, protocol, number in pod.ports:
        for used_address, used_protocol, used_number in node.ports:
            if (protocol, number) == (used_protocol, used_number) and (
                address == used_address or anywhere in (address, used_address)
            ):
                return False
    return True


def shortages(pod: PodFacts, node: NodeState) -> Reasons:
    """Every resource that is short, not only the first."""
    short: list[str] = []
    allocatable, used = node.allocatable, node.used
    if len(node.pods) + 1 > allocatable.get("pods", 0):
        short.append(TOO_MANY_PODS)
    for name, wanted in pod.requests.items():
        if wanted > 0 and wanted > allocatable.get(name, 0) - used.get(name, 0):
            short.append(f"Insufficient {name}")
    return tuple(short)


def sentence(nodes: int, reasons: Sequence[Reasons], before: str = "") -> str:
    """kube-scheduler's one sentence. `before` is the reason that ended the attempt before any node was asked."""
    if before:
        return f"0/{nodes} nodes are available: {before}."
    if not nodes:
        return "no nodes available to schedule pods"
    counts: dict[str, int] = {}
    for several in reasons:
        for reason in several:
            counts[reason] = counts.get(reason, 0) + 1
    return f"0/{nodes} nodes are available: " + ", ".join(sorted(f"{n} {reason}" for reason, n in counts.items())) + "."
