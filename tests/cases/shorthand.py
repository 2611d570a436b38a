"""Reads the YAML shorthand of docs/cases.md into a Snapshot, so that the document itself is the input of its tests.

Words it does not know are refused: nothing that a case says may be ignored in silence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    DaemonSet,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodTemplateSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    TemplateMeta,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
    WorkloadSpec,
)
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus
from kubewright.api.meta import LabelSelector, ObjectMeta, OwnerReference, SelectorRequirement
from kubewright.catalogue.types import InstanceType
from kubewright.solver.problem import Pool, Snapshot, SolverSettings, StateNode, Surroundings
from tests.builders import NOW, instance_type, needs, node_pool, one_of
from tests.builders import pod as plain_pod
from tests.cases.storage import DRIVER, Volumes

DOCUMENT = Path(__file__).parents[2] / "docs" / "cases.md"
FAMILY = "instance-family"
SETTINGS = SolverSettings(well_known_labels=frozenset({FAMILY}))
SHORT = {
    "zone": names.ZONE,
    "type": names.INSTANCE_TYPE,
    "hostname": names.HOSTNAME,
    "capacity-type": names.CAPACITY_TYPE,
}
SIZES: Mapping[str, tuple[int, int, float]] = {
    "s2": (2, 4, 0.10),
    "s4": (4, 8, 0.20),
    "s8": (8, 16, 0.40),
    "s16": (16, 32, 0.80),
    "s32": (32, 64, 1.60),
    "g8": (8, 32, 1.00),
    "m4": (4, 16, 0.24),
    "m8": (8, 32, 0.48),
}
_NOT_INPUT = ("expect", "negative", "from")
_POOL = ("name", "weight", "labels", "taints", "req", "limits", "replicas", "nodeClassReady", "message")
_NODE = ("name", "pool", "type", "zone", "used", "pods", "count", "spread", "labels", "taints")
_POD = (
    "app", "n", "cpu", "memory", "gpu", "labels", "affinity", "nodeSelector", "preferred", "preferredAntiAffinity", "tsc",
    "hostPort", "hostIP", "pvc", "pvcs", "ephemeral", "tolerate", "revision", "priority", "on", "spec", "status",
)  # fmt: skip
_DAEMON = ("name", "cpu", "memory", "limits", "labels", "affinity", "affinityTermsOR", "tolerate")
_TOP = ("pools", "nodes", "pods", "daemonsets", "catalogue", "storageClasses", "nodeclaims")


def case(number: str, *, without: Sequence[str] = (), **instead: Any) -> dict[str, Any]:
    """The input of a case as the document has it; `without` drops top-level words and `instead` replaces them."""
    text = DOCUMENT.read_text()
    found = re.search(rf"^### {number}\b.*?^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"{DOCUMENT.name} has no case {number}"
    # YAML 1.1 reads the word "on" as true.
    written: dict[str, Any] = yaml.safe_load(re.sub(r"\bon: ", "'on': ", found[1]))
    for word in without:
        del written[word]
    return {**written, **instead}


def world(written: Mapping[str, Any]) -> Snapshot:
    """The cluster that a case describes."""
    given = {k: v for k, v in written.items() if k not in _NOT_INPUT and not k.startswith("variant")}
    _known("case", given, _TOP)
    types = catalogue(given.get("catalogue"))
    by_name = {t.name: t for t in types}
    volumes = Volumes()
    for kind in given.get("storageClasses", ()):
        volumes.add_class(kind)
    pools = [_pool(p, types) for p in given.get("pools", [{"name": "default"}])]
    first = pools[0].node_pool.name if pools else ""
    daemons = [_daemon(d, i) for i, d in enumerate(given.get("daemonsets", ()))]
    nodes = _nodes(given.get("nodes", ()), first, by_name, daemons)
    nodes += [_claim(c, i, by_name) for i, c in enumerate(given.get("nodeclaims", ()))]
    pending: list[Pod] = []
    for line in given.get("pods", ()):
        for pod in _pods(line, volumes):
            if "on" in line:
                nodes = [_with(place, pod) if _called(place, line["on"]) else place for place in nodes]
            else:
                pending.append(pod)
    around = Surroundings(
        daemon_sets=tuple(daemons),
        claims=tuple(sorted(volumes.claims, key=lambda c: c.key)),
        volumes=tuple(sorted(volumes.volumes, key=lambda v: v.name)),
        storage_classes=tuple(sorted(volumes.classes.values(), key=lambda c: c.name)),
    )
    return Snapshot(NOW, tuple(nodes), tuple(sorted(pending, key=lambda p: p.key)), tuple(pools), around)


def catalogue(written: Any = None) -> tuple[InstanceType, ...]:
    """The fake types; `{s32: volumeLimit 10}` or `every type volumeLimit 25` adds attachment limits."""
    limits: dict[str, int] = {}
    if isinstance(written, str):
        every = re.fullmatch(r"every type volumeLimit (\d+)", written)
        assert every, f"catalogue: {written!r} is not 'every type volumeLimit N'"
        limits = dict.fromkeys(SIZES, int(every[1]))
    for name, text in (written or {}).items() if isinstance(written, dict) else ():
        limits[name] = int(text.removeprefix("volumeLimit "))
    return tuple(_type(name, limits.get(name)) for name in SIZES)


def _type(name: str, volume_limit: int | None) -> InstanceType:
    cpu, memory, usd = SIZES[name]
    more = {"nvidia.com/gpu": "1"} if name.startswith("g") else {}
    made = instance_type(name, cpu, memory, usd, more=more)
    made = replace(made, attach_limits={} if volume_limit is None else {DRIVER: volume_limit})
    return replace(made, requirements={**made.requirements, FAMILY: one_of(FAMILY, name[0])})


def requirement(text: str) -> tuple[str, str, tuple[str, ...], int | None]:
    """`key op [values] minValues N` in its parts."""
    found = re.fullmatch(r"(\S+) (In|NotIn|Exists|DoesNotExist|Gt|Lt)(?: \[([^]]*)\])?(?: minValues (\d+))?", text)
    assert found, f"requirement {text!r} is not 'key operator [values]'"
    key, operator, values, least = found.groups()
    return (
        SHORT.get(key, key),
        operator,
        tuple((values or "").replace(" ", "").split(",")) if values else (),
        (int(least) if least else None),
    )


def _pool(line: Mapping[str, Any], types: tuple[InstanceType, ...]) -> Pool:
    _known("pool", line, _POOL)
    asked = tuple(
        needs(key, *values, operator=op, min_values=least) for key, op, values, least in map(requirement, line.get("req", ()))
    )
    pool = node_pool(
        line["name"],
        labels=line.get("labels"),
        requirements=asked,
        taints=tuple(_taint(t) for t in line.get("taints", ())),
        weight=line.get("weight"),
        limits=line.get("limits"),
        replicas=line.get("replicas"),
    )
    if line.get("nodeClassReady", True):
        return Pool(pool, types)
    return Pool(pool, (), line["message"])


def _taint(text: str) -> Taint:
    pair, effect = text.split(":")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)


def _nodes(
    lines: Iterable[Mapping[str, Any]], first_pool: str, types: Mapping[str, InstanceType], daemons: Sequence[DaemonSet]
) -> list[StateNode]:
    found: list[StateNode] = []
    for line in lines:
        _known("node", line, _NODE)
        for _ in range(line.get("count", 1)):
            name = line.get("name", f"n{len(found) + 1}")
            found.append(_node(line, name, first_pool, types[line["type"]], daemons))
    return found


def _node(line: Mapping[str, Any], name: str, first_pool: str, kind: InstanceType, daemons: Sequence[DaemonSet]) -> StateNode:
    amounts: dict[str, str | int] = {key: f"{amount}n" for key, amount in kind.capacity.items()}
    labels = {
        names.NODEPOOL: line.get("pool", first_pool),
        names.ZONE: line.get("zone", "a"),
        names.INSTANCE_TYPE: kind.name,
        names.CAPACITY_TYPE: "on-demand",
        names.ARCH: "amd64",
        names.OS: "linux",
        names.HOSTNAME: name,
        **{k: str(line[k]) for k in ("spread",) if k in line},
        **line.get("labels", {}),
    }
    pods = [_running(f"{name}-{app}-{i}", app, {}, name, daemons) for i, app in enumerate(line.get("pods", ()))]
    if "used" in line:
        pods.append(_running(f"{name}-used", "other", line["used"], name, ()))
    return StateNode(
        Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(provider_id=name, taints=tuple(_taint(t) for t in line.get("taints", ()))),
            status=NodeStatus(capacity=amounts, allocatable=amounts),
        ),
        None,
        tuple(pods),
    )


def _running(name: str, app: str, used: Mapping[str, Any], node: str, daemons: Sequence[DaemonSet]) -> Pod:
    pod = Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", labels={"app": app}),
        spec=replace(plain_pod().spec, containers=(_container(used),), node_name=node),
    )
    owner = next((d for d in daemons if d.name == app), None)
    if owner is None:
        return pod
    owners = (OwnerReference(api_version="apps/v1", kind="DaemonSet", name=app, uid=f"uid-{app}", controller=True),)
    meta = replace(pod.metadata, owner_references=owners, labels=dict(owner.spec.template.metadata.labels))
    return replace(pod, metadata=meta, spec=replace(owner.spec.template.spec, node_name=node))


def _claim(line: Mapping[str, Any], index: int, types: Mapping[str, InstanceType]) -> StateNode:
    _known("nodeclaim", line, ("pool", "type", "registered", "zone"))
    assert not line["registered"], "a registered claim is written under nodes"
    kind = types[line["type"]]
    amounts: dict[str, str | int] = {key: f"{amount}n" for key, amount in kind.capacity.items()}
    labels = {
        names.NODEPOOL: line["pool"],
        names.INSTANCE_TYPE: kind.name,
        names.ZONE: line.get("zone", "a"),
        names.CAPACITY_TYPE: "on-demand",
        names.ARCH: "amd64",
        names.OS: "linux",
    }
    name = f"{line['pool']}-{index}"
    meta = ObjectMeta(name=name, labels=labels)
    return StateNode(
        None, NodeClaim(metadata=meta, status=NodeClaimStatus(provider_id=name, capacity=amounts, allocatable=amounts))
    )


def _daemon(line: Mapping[str, Any], index: int) -> DaemonSet:
    _known("daemonset", line, _DAEMON)
    affinity: Affinity | None = None
    terms = line.get("affinityTermsOR") or ([line["affinity"]] if "affinity" in line else [])
    if terms:
        affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=tuple(map(_term, terms)))))
    name = line.get("name", f"daemon-{index}")
    spec = replace(
        plain_pod().spec,
        containers=(_container(line, line.get("limits")),),
        affinity=affinity,
        tolerations=_tolerations(line),
    )
    labels = line.get("labels", {"daemon": name})
    template = PodTemplateSpec(metadata=TemplateMeta(labels=labels), spec=spec)
    return DaemonSet(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), spec=WorkloadSpec(template=template))


def _container(
    amounts: Mapping[str, Any], limits: Mapping[str, Any] | None = None, ports: tuple[ContainerPort, ...] = ()
) -> Container:
    named = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
    requests = {named[k]: str(amounts[k]) for k in named if k in amounts}
    written = {named[k]: str(v) for k, v in (limits or {}).items()}
    return Container(name="main", resources=ResourceRequirements(requests=requests, limits=written), ports=ports)


def _pods(line: Mapping[str, Any], volumes: Volumes) -> list[Pod]:
    _known("pod", line, _POD)
    count = line.get("n", 1)
    made = []
    for i in range(count):
        name = line["app"] if count == 1 else f"{line['app']}-{i:03}"
        labels = {"app": line["app"], **line.get("labels", {})}
        if "revision" in line:
            labels["pod-template-hash"] = line["revision"]
        spec = replace(
            plain_pod().spec,
            containers=(_container(line.get("spec", line), ports=_ports(line)),),
            node_selector={SHORT.get(k, k): v for k, v in line.get("nodeSelector", {}).items()},
            affinity=_affinity(line),
            tolerations=_tolerations(line),
            topology_spread_constraints=tuple(_spread(t, labels) for t in _listed(line.get("tsc"))),
            priority=line.get("priority"),
        )
        pod = replace(plain_pod(name), spec=spec)
        pod = replace(pod, metadata=replace(pod.metadata, labels=labels), spec=volumes.mounted(pod, line))
        made.append(_placed(pod, line) if "on" in line else pod)
    return made


def _placed(pod: Pod, line: Mapping[str, Any]) -> Pod:
    status = replace(pod.status, phase="Running", conditions=())
    if "status" in line:
        held = {k: str(v) for k, v in line["status"]["allocated"].items()}
        given = ContainerStatus(name="main", allocated_resources=held, resources=ResourceRequirements(requests=held))
        status = replace(status, container_statuses=(given,))
    return replace(pod, spec=replace(pod.spec, node_name=line["on"]), status=status)


def _listed(one: Any) -> list[Any]:
    return [] if one is None else one if isinstance(one, list) else [one]


def _ports(line: Mapping[str, Any]) -> tuple[ContainerPort, ...]:
    found = []
    for text in _listed(line.get("hostPort")):
        number, _, protocol = str(text).partition("/")
        port = int(number)
        found.append(
            ContainerPort(container_port=port, host_port=port, protocol=protocol or "TCP", host_ip=line.get("hostIP", ""))
        )
    return tuple(found)


def _tolerations(line: Mapping[str, Any]) -> tuple[Toleration, ...]:
    return (Toleration(key=line["tolerate"], operator="Exists"),) if "tolerate" in line else ()


def _term(text: str) -> NodeSelectorTerm:
    key, operator, values, _ = requirement(text)
    return NodeSelectorTerm(match_expressions=(SelectorRequirement(key=key, operator=operator, values=values),))


def _affinity(line: Mapping[str, Any]) -> Affinity | None:
    required = preferred = None
    pod_affinity = anti = None
    written = line.get("affinity")
    if isinstance(written, str):
        required = NodeSelector(node_selector_terms=(_term(written),))
    elif written is not None:
        _known("affinity", written, ("podAffinity",))
        one = dict(written["podAffinity"])
        key = one.pop("key")
        selector = LabelSelector(match_labels=one)
        pod_affinity = PodAffinity(required=(PodAffinityTerm(topology_key=SHORT.get(key, key), label_selector=selector),))
    if "preferred" in line:
        found = re.fullmatch(r"(.*) \(weight (\d+)\)", line["preferred"])
        assert found, f"preferred: {line['preferred']!r} is not 'requirement (weight N)'"
        preferred = (PreferredSchedulingTerm(weight=int(found[2]), preference=_term(found[1])),)
    if "preferredAntiAffinity" in line:
        key = line["preferredAntiAffinity"]["self"]
        selector = LabelSelector(match_labels={"app": line["app"]})
        term = PodAffinityTerm(topology_key=SHORT.get(key, key), label_selector=selector)
        anti = PodAffinity(preferred=(WeightedPodAffinityTerm(weight=1, pod_affinity_term=term),))
    node = NodeAffinity(required=required, preferred=preferred or ()) if required or preferred else None
    if node is None and pod_affinity is None and anti is None:
        return None
    return Affinity(node_affinity=node, pod_affinity=pod_affinity, pod_anti_affinity=anti)


def _spread(written: Mapping[str, Any], labels: Mapping[str, str]) -> TopologySpreadConstraint:
    _known(
        "tsc",
        written,
        ("key", "maxSkew", "when", "minDomains", "matchLabelKeys", "nodeAffinityPolicy", "nodeTaintsPolicy", "selector"),
    )
    return TopologySpreadConstraint(
        topology_key=SHORT.get(written["key"], written["key"]),
        max_skew=written["maxSkew"],
        when_unsatisfiable=written["when"],
        min_domains=written.get("minDomains"),
        match_label_keys=tuple(written.get("matchLabelKeys", ())),
        node_affinity_policy=written.get("nodeAffinityPolicy"),
        node_taints_policy=written.get("nodeTaintsPolicy"),
        label_selector=LabelSelector(match_labels=written.get("selector", {"app": labels["app"]})),
    )


def _called(place: StateNode, name: str) -> bool:
    return place.node is not None and place.node.name == name


def _with(place: StateNode, pod: Pod) -> StateNode:
    return replace(place, pods=(*place.pods, pod))


def _known(what: str, written: Mapping[str, Any], words: Sequence[str]) -> None:
    odd = sorted(set(written) - set(words))
    assert not odd, f"{what} {written}: unknown words {odd}; known are {list(words)}"
