"""Nodes as they will be: existing ones, those on their way, and those an answer buys. Imports nothing of kubewright."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from tests.conformance.validator.amounts import Amounts, J, amounts, machine
from tests.conformance.validator.selecting import ANYTHING, OLD_NAMES, key_of, labels_of

HOST = "kubernetes.io/hostname"
POOL = "karpenter.sh/nodepool"
_COMING_UP = {
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
}


class Machine(NamedTuple):
    """One thing that a place may turn out to be."""

    room: Amounts
    attach: Mapping[str, int]
    labels: Mapping[str, str]
    reservation: str = ""


class Place:
    """A node as it would be: for each label the values it might have; the machines it might be."""

    def __init__(self, name: str, labels: dict[str, set[str]], taints: list[J], machines: list[Machine]) -> None:
        self.name = name
        self.labels = {**{old: labels[key] for old, key in OLD_NAMES.items() if key in labels}, **labels}
        self.taints = taints
        self.machines = machines
        self.pods: list[J] = []
        self.put: set[str] = set()
        """Keys of the pods that the answer puts here."""
        self.wrong: list[tuple[str, str]] = []
        self.is_new = False
        self.is_coming = False
        """Whether the DaemonSets' pods are not there yet."""
        self.is_leaving = False

    def value(self, key: str) -> str | None:
        """The one value of a label; None when it is missing or not settled."""
        values = self.labels.get(key, set())
        value = next(iter(values)) if len(values) == 1 else None
        return None if value == ANYTHING else value


class Cluster:
    """The problem's objects by kind, and its places with everybody on them."""

    def __init__(self, problem: J, answer: J) -> None:
        self.problem = problem
        self.by_kind: dict[str, list[J]] = {}
        for one in problem["objects"]:
            self.by_kind.setdefault(one["kind"], []).append(one)
        self.pods = {key_of(p): p for p in self.of("Pod")}
        self.pools = {p["metadata"]["name"]: p for p in self.of("NodePool")}
        self.types = {t["name"]: t for t in problem.get("instanceTypes") or ()}
        self.places = [*self._existing(answer), *self._new(answer)]

    def of(self, kind: str) -> Sequence[J]:
        return self.by_kind.get(kind, ())

    def _promised(self, labels: Mapping[str, str]) -> dict[str, int]:
        """The attach limits of a node's type, until its drivers have said theirs."""
        kind = self.types.get(labels.get("node.kubernetes.io/instance-type", ""), {})
        return dict(kind.get("attachLimits") or {})

    def offered(self, key: str) -> set[str]:
        """Values of a label that some NodePool could buy a node with, for sale now or not."""
        found: set[str] = set()
        for pool in self.pools.values():
            if pool["spec"].get("replicas") is not None:
                continue
            template = pool["spec"]["template"]
            own: dict[str, list[str]] = {}
            for r in template["spec"].get("requirements") or ():
                own[r["key"]] = [r["operator"], *(r.get("values") or ())]
            for kind in self.types.values():
                listed = {r["key"]: r.get("values") or [] for r in kind["requirements"] if r["operator"] == "In"}
                if all(any(allows(own, k, v) for v in values) for k, values in listed.items()):
                    found |= {v for v in listed.get(key, ()) if allows(own, key, v)}
                    if key not in listed and own.get(key, [""])[0] == "In":
                        found |= set(own[key][1:])
        return found

    def _existing(self, answer: J) -> Iterator[Place]:
        put = {n["name"]: n["pods"] for n in answer.get("existingNodes") or ()}
        claims = {c["status"]["providerID"]: c for c in self.of("NodeClaim") if c.get("status", {}).get("providerID")}
        for node in self.of("Node"):
            name = node["metadata"]["name"]
            claim = claims.pop(node.get("spec", {}).get("providerID", ""), None)
            labels = {k: {v} for k, v in labels_of(node).items()}
            labels.setdefault(HOST, {name})
            room = amounts(node["status"].get("allocatable"))
            taints = list(node.get("spec", {}).get("taints") or ())
            if claim is not None and labels.get("karpenter.sh/initialized") != {"true"}:
                starting = claim["spec"].get("startupTaints") or ()
                going = _COMING_UP | {(t["key"], t["effect"]) for t in starting}
                taints = [t for t in taints if (t["key"], t["effect"]) not in going]
                room |= {k: v for k, v in amounts(claim["status"].get("allocatable")).items() if not room.get(k)}
            counts = [c for c in self.of("CSINode") if c["metadata"]["name"] == name]
            ready = claim is None or labels.get("karpenter.sh/initialized") == {"true"}
            attach = {} if ready else self._promised(labels_of(node))
            attach |= {d["name"]: d["allocatable"]["count"] for c in counts for d in c["spec"]["drivers"] if d.get("allocatable")}
            place = Place(name, labels, taints, [Machine(room, attach, labels_of(node))])
            place.is_coming = not ready
            going_away = claim if claim is not None else node
            place.is_leaving = bool(going_away["metadata"].get("deletionTimestamp"))
            place.pods = [p for p in self.pods.values() if p["spec"].get("nodeName") == name and _stays(p, place.is_leaving)]
            known_as = name
            if claim is not None and labels.get("karpenter.sh/registered") != {"true"}:
                known_as = claim["metadata"]["name"]
            self._fill(place, put.pop(known_as, ()))
            yield place
        for claim in claims.values():
            name = claim["metadata"]["name"]
            labels = {k: {v} for k, v in labels_of(claim).items()}
            labels.setdefault(HOST, {name})
            place = Place(
                name,
                labels,
                list(claim["spec"].get("taints") or ()),
                [Machine(amounts(claim["status"].get("allocatable")), self._promised(labels_of(claim)), labels_of(claim))],
            )
            place.is_coming = True
            self._fill(place, put.pop(name, ()))
            yield place
        for name, pods in put.items():
            lost = Place(name, {}, [], [])
            lost.wrong = [(pod, f"no node {name}") for pod in pods]
            yield lost

    def _new(self, answer: J) -> Iterator[Place]:
        for index, new in enumerate(answer.get("newNodes") or ()):
            name = f"new-{index}"
            pool = self.pools.get(new["nodePool"])
            if pool is None:
                lost = Place(name, {}, [], [])
                lost.wrong = [(pod, f"no NodePool {new['nodePool']}") for pod in new["pods"]]
                yield lost
                continue
            template = pool["spec"]["template"]
            machines = [m for t in new["instanceTypes"] for m in _machines(self.types.get(t), new["requirements"])]
            labels: dict[str, set[str]] = {}
            for one in machines:
                for key, value in one.labels.items():
                    labels.setdefault(key, set()).add(value)
            for key, (operator, *values) in new["requirements"].items():
                if operator == "In":
                    labels[key] = labels[key] & set(values) if key in labels else set(values)
                elif operator != "DoesNotExist":
                    labels.setdefault(key, {ANYTHING})
            # An answer may say which value a label that was left open will get.
            for given in (new.get("labels"), template.get("metadata", {}).get("labels")):
                labels |= {k: {v} for k, v in (given or {}).items()}
            labels[HOST] = {name}
            labels[POOL] = {new["nodePool"]}
            place = Place(name, labels, list(template["spec"].get("taints") or ()), machines)
            place.is_new = place.is_coming = True
            self._fill(place, new["pods"])
            yield place

    def _fill(self, place: Place, names: Sequence[str]) -> None:
        for name in names:
            pod = self.pods.get(name)
            if pod is None:
                place.wrong.append((name, "no such pod"))
            elif not _may_be_placed(pod, self):
                place.wrong.append((name, "not a pod that waits for a node"))
            else:
                place.pods.append(pod)
                place.put.add(name)
        if place.is_leaving:
            place.wrong += [(name, "put on a node that is going away") for name in names]


def _machines(kind: J | None, requirements: Mapping[str, list[str]]) -> Iterator[Machine]:
    """Every way in which a type can be bought under the requirements."""
    if kind is None:
        return
    fixed = {r["key"]: list(r.get("values") or ()) for r in kind["requirements"] if r["operator"] == "In"}
    if any(not any(allows(requirements, key, value) for value in values) for key, values in fixed.items()):
        return
    room = machine(kind)
    for offering in kind.get("offerings") or ():
        wanted = {r["key"]: r["values"][0] for r in offering["requirements"] if r.get("values")}
        if not offering["available"] or not all(allows(requirements, k, v) for k, v in wanted.items()):
            continue
        labels = {k: v[0] for k, v in fixed.items() if len(v) == 1} | wanted
        reservation = next((v for k, v in wanted.items() if k.endswith("reservation-id")), "")
        if not reservation:
            labels = {k: v for k, v in labels.items() if not k.endswith("reservation-id")}
        yield Machine(room, kind.get("attachLimits") or {}, labels, reservation)


def allows(requirements: Mapping[str, list[str]], key: str, value: str) -> bool:
    """Whether an answer's requirement lets a label have the value."""
    operator, *values = requirements.get(key, ["Exists"])
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "DoesNotExist":
            return False
        case "Gt" | "Gte" | "Lt" | "Lte":
            if not value.lstrip("-").isdigit():
                return False
            number, bound = int(value), int(values[0])
            return {"Gt": number > bound, "Gte": number >= bound, "Lt": number < bound, "Lte": number <= bound}[operator]
    return True


def _owned(pod: J, kind: str) -> bool:
    return any(o["kind"] == kind for o in pod["metadata"].get("ownerReferences") or ())


def _stays(pod: J, leaving: bool) -> bool:
    """Whether a bound pod takes room: it has not finished, and will not be moved off a node that is going away."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    return not leaving or _owned(pod, "DaemonSet") or _owned(pod, "Node")


def _may_be_placed(pod: J, cluster: Cluster) -> bool:
    if _owned(pod, "DaemonSet") or _owned(pod, "Node"):
        return False
    bound = pod["spec"].get("nodeName")
    if bound:
        node = next((n for n in cluster.of("Node") if n["metadata"]["name"] == bound), None)
        claim = next(
            (
                c
                for c in cluster.of("NodeClaim")
                if node is not None and c.get("status", {}).get("providerID") == node.get("spec", {}).get("providerID", "")
            ),
            node,
        )
        return claim is not None and bool(claim["metadata"].get("deletionTimestamp"))
    status = pod.get("status", {})
    waits = any(c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable" for c in status.get("conditions") or ())
    return waits and not status.get("nominatedNodeName")


def total(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0))
