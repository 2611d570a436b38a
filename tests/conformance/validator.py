"""Kubernetes' own rules, checked slowly and plainly on a problem and an answer in the oracle's JSON.

Imports nothing of kubewright. The question is: once every planned node is there, does each placed pod stand where kube-scheduler
could have put it, whichever of the listed instance types and label values is bought?
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

J = Mapping[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
_UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
_UNITS |= {u: Fraction(1000) ** i for i, u in enumerate("kMGTPE", 1)}
_UNITS |= {u + "i": Fraction(1024) ** i for i, u in enumerate("KMGTPE", 1)}


class Place:
    """A node as it would be: for each label the values it might have; the machines it might be."""

    def __init__(self, name: str, labels: dict[str, set[str]], taints: list[J], machines: list[dict[str, Fraction]]) -> None:
        self.name = name
        self.labels = labels
        self.taints = taints
        self.machines = machines
        self.pods: list[J] = []
        self.new: set[str] = set()

    def value(self, key: str) -> str | None:
        """The one value of a label; None when it is missing or not settled."""
        values = self.labels.get(key, set())
        return next(iter(values)) if len(values) == 1 else None


def violations(problem: J, answer: J) -> list[tuple[str, str]]:
    """(pod, what is wrong) for every placed pod that stands where it could not, sorted."""
    by_kind: dict[str, list[J]] = {}
    for one in problem["objects"]:
        by_kind.setdefault(one["kind"], []).append(one)
    places = list(_places(problem, answer, by_kind))
    found: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for place in places:
        for pod in place.pods:
            name = _key(pod)
            if name in seen:
                found.add((name, "placed twice"))
            seen.add(name)
    for place in places:
        for name in place.new:
            if name.startswith("?"):
                found.add((name[1:], "no such pending pod"))
        found.update((_key(p), why) for p, why in _crowded(place, by_kind))
        for pod in place.pods:
            if _key(pod) in place.new:
                found.update((_key(pod), why) for why in _alone(pod, place, by_kind))
                found.update((_key(pod), why) for why in _together(pod, place, places, by_kind))
    return sorted(found)


def _places(problem: J, answer: J, by_kind: Mapping[str, list[J]]) -> Iterator[Place]:
    pods = {_key(p): p for p in by_kind.get("Pod", ())}
    put = {n["name"]: n["pods"] for n in answer.get("existingNodes") or ()}
    for node in by_kind.get("Node", ()):
        name = node["metadata"]["name"]
        labels = {k: {v} for k, v in node["metadata"].get("labels", {}).items()}
        labels.setdefault(HOST, {name})
        place = Place(name, labels, node.get("spec", {}).get("taints", []), [_amounts(node["status"]["allocatable"])])
        place.pods = [p for p in pods.values() if p["spec"].get("nodeName") == name]
        _fill(place, put.get(name, ()), pods)
        yield place
    pools = {p["metadata"]["name"]: p for p in by_kind.get("NodePool", ())}
    types = {t["name"]: t for t in problem["instanceTypes"]}
    for index, new in enumerate(answer.get("newNodes") or ()):
        template = pools[new["nodePool"]]["spec"]["template"]
        labels = {k: {v} for k, v in template.get("metadata", {}).get("labels", {}).items()}
        labels[HOST] = {f"new-{index}"}
        labels["karpenter.sh/nodepool"] = {new["nodePool"]}
        for key, (operator, *values) in new["requirements"].items():
            if operator == "In":
                labels[key] = set(values)
        chosen = [types[t] for t in new["instanceTypes"]]
        for kind in chosen:
            for r in kind["requirements"]:
                if r["key"] not in new["requirements"] and r["operator"] == "In":
                    labels.setdefault(r["key"], set()).update(r["values"])
        place = Place(f"new-{index}", labels, template["spec"].get("taints", []), [_machine(t) for t in chosen])
        _fill(place, new["pods"], pods)
        yield place


def _fill(place: Place, names: list[str] | tuple[str, ...], pods: Mapping[str, J]) -> None:
    for name in names:
        pod = pods.get(name)
        if pod is None or pod["spec"].get("nodeName"):
            place.new.add("?" + name)
            continue
        place.pods.append(pod)
        place.new.add(name)


def _machine(kind: J) -> dict[str, Fraction]:
    left = _amounts(kind["capacity"])
    for name, amount in _amounts(kind.get("overhead", {})).items():
        left[name] = left.get(name, Fraction(0)) - amount
    return left


def _crowded(place: Place, by_kind: Mapping[str, list[J]]) -> Iterator[tuple[J, str]]:
    new = [p for p in place.pods if _key(p) in place.new]
    if not new:
        return
    total: dict[str, Fraction] = {}
    running = [d for d in by_kind.get("DaemonSet", ()) if place.name.startswith("new-") and _daemon_runs(d, place)]
    for pod in [*place.pods, *(d["spec"]["template"] for d in running)]:
        for name, amount in _requests(pod["spec"]).items():
            total[name] = total.get(name, Fraction(0)) + amount
    if not place.machines:
        yield new[0], "no machine to stand on"
    for machine in place.machines:
        for name, amount in total.items():
            if amount > machine.get(name, Fraction(0)):
                for pod in new:
                    yield pod, f"too little {name}"
    for i, pod in enumerate(place.pods):
        for other in place.pods[i + 1 :]:
            for a in _ports(pod):
                if any(_ports_clash(a, b) for b in _ports(other)):
                    yield (other if _key(other) in place.new else pod), "host port taken"


def _daemon_runs(daemon: J, place: Place) -> bool:
    spec = daemon["spec"]["template"]["spec"]
    hard = [t for t in place.taints if t["effect"] != "PreferNoSchedule"]
    if not all(any(_tolerates(o, t) for o in spec.get("tolerations", ())) for t in hard):
        return False
    # Only what is sure to run: an open label may keep the daemon away.
    return all(place.labels.get(k) == {v} for k, v in spec.get("nodeSelector", {}).items())


def _alone(pod: J, place: Place, by_kind: Mapping[str, list[J]]) -> Iterator[str]:
    spec = pod["spec"]
    for taint in place.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in spec.get("tolerations", ())):
            yield f"taint {taint['key']} not tolerated"
    for key, value in spec.get("nodeSelector", {}).items():
        if place.labels.get(key) != {value}:
            yield f"nodeSelector {key}"
    node = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if node and not any(_term_holds(t, place) for t in node["nodeSelectorTerms"]):
        yield "required node affinity"
    for volume in spec.get("volumes", ()):
        source = volume.get("persistentVolumeClaim")
        if source:
            yield from _volume(source["claimName"], pod, place, by_kind)


def _volume(name: str, pod: J, place: Place, by_kind: Mapping[str, list[J]]) -> Iterator[str]:
    claim = next(
        (
            c
            for c in by_kind.get("PersistentVolumeClaim", ())
            if (c["metadata"]["name"], c["metadata"].get("namespace")) == (name, pod["metadata"]["namespace"])
        ),
        None,
    )
    if claim is None:
        yield f"claim {name} does not exist"
        return
    volume = next(
        (v for v in by_kind.get("PersistentVolume", ()) if v["metadata"]["name"] == claim["spec"].get("volumeName")), None
    )
    if volume is not None:
        required = volume["spec"].get("nodeAffinity", {}).get("required")
        if required and not any(_term_holds(t, place) for t in required["nodeSelectorTerms"]):
            yield f"volume of {name} lies elsewhere"
        return
    kind = next(
        (s for s in by_kind.get("StorageClass", ()) if s["metadata"]["name"] == claim["spec"].get("storageClassName")), None
    )
    allowed = (kind or {}).get("allowedTopologies", [])
    if allowed and not any(
        all(place.labels.get(e["key"], {""}) <= set(e["values"]) for e in t["matchLabelExpressions"]) for t in allowed
    ):
        yield f"storage class of {name} does not reach here"


def _together(pod: J, place: Place, places: list[Place], by_kind: Mapping[str, list[J]]) -> Iterator[str]:
    affinity = pod["spec"].get("affinity", {})
    required = affinity.get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    if required:
        yield from _affinity(pod, required, place, places, by_kind)
    for other_place in places:
        for other in other_place.pods:
            if other is pod:
                continue
            for term in _anti(pod):
                if _meets(term, place, other_place) and _term_picks(term, pod, other, by_kind):
                    yield f"anti-affinity to {_key(other)}"
            for term in _anti(other):
                if _meets(term, place, other_place) and _term_picks(term, other, pod, by_kind):
                    yield f"anti-affinity of {_key(other)}"
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and not _balanced(pod, constraint, place, places):
            yield f"spread over {constraint['topologyKey']}"


def _affinity(pod: J, terms: list[J], place: Place, places: list[Place], by_kind: Mapping[str, list[J]]) -> Iterator[str]:
    matching = [(p, o) for p in places for o in p.pods if o is not pod and all(_term_picks(t, pod, o, by_kind) for t in terms)]
    first = all(_term_picks(t, pod, pod, by_kind) for t in terms)
    standing = [(p, o) for p, o in matching if _key(o) not in p.new]
    for term in terms:
        key = term["topologyKey"]
        free = [(p, o) for p, o in matching if _key(o) in p.new and term not in _followed(o)]
        following = [(p, o) for p, o in matching if _key(o) in p.new and term in _followed(o)]
        value = place.value(key)
        if value is None:
            yield f"affinity: {key} is not settled"
            continue
        if any(p.value(key) == value for p, _ in (*standing, *free)):
            continue
        if not first and any(p.value(key) == value for p, _ in following):
            continue
        # Nobody to follow here who does not follow himself: then this must be where the first of them could begin.
        settled = {p.value(key) for p, _ in (*standing, *free)}
        elsewhere = [p for p, _ in following if p.value(key) != value and p.value(key) not in settled]
        if not first or standing or elsewhere:
            yield f"affinity over {key}"


def _followed(pod: J) -> list[J]:
    affinity = pod["spec"].get("affinity", {})
    terms: list[J] = affinity.get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def _meets(term: J, one: Place, other: Place) -> bool:
    """Whether the two places might share the term's domain."""
    key = term["topologyKey"]
    return bool(one.labels.get(key, set()) & other.labels.get(key, set()))


def _balanced(pod: J, constraint: J, place: Place, places: list[Place]) -> bool:
    """Whether the skew is right, counting every matching pod, or only those that were there or are ruled as tightly.

    Pods that merely match, or that may lean further, can be bound after those that must be balanced, so either count will do.
    """
    key = constraint["topologyKey"]
    if place.value(key) is None:
        return False
    selector = constraint.get("labelSelector")
    honour = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
    everyone: dict[str, int] = {}
    tighter: dict[str, int] = {}
    alike: dict[str, int] = {}
    for other_place in places:
        value = other_place.value(key)
        if value is None or (honour and not _own_nodes(pod, other_place)):
            continue
        for counts in (everyone, tighter, alike):
            counts.setdefault(value, 0)
        for other in other_place.pods:
            if other["metadata"]["namespace"] != pod["metadata"]["namespace"] or not _selects(selector, other):
                continue
            rules = [c for c in other["spec"].get("topologySpreadConstraints", ()) if c["whenUnsatisfiable"] == "DoNotSchedule"]
            same = [c for c in rules if c["topologyKey"] == key and c["labelSelector"] == selector]
            stood = _key(other) not in other_place.new
            everyone[value] += 1
            tighter[value] += stood or any(c["maxSkew"] <= constraint["maxSkew"] for c in same)
            alike[value] += stood or constraint in same
    if not _selects(selector, pod):
        return True
    for counts in (everyone, tighter, alike):
        least = min(counts.values())
        if key == HOST or len(counts) < constraint.get("minDomains", 0):
            least = 0
        if counts[place.value(key) or ""] - least <= constraint["maxSkew"]:
            return True
    return False


def _own_nodes(pod: J, place: Place) -> bool:
    for key, value in pod["spec"].get("nodeSelector", {}).items():
        if place.labels.get(key) != {value}:
            return False
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return not node or any(_term_holds(t, place) for t in node["nodeSelectorTerms"])


def _anti(pod: J) -> list[J]:
    affinity = pod["spec"].get("affinity", {})
    terms: list[J] = affinity.get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def _term_picks(term: J, owner: J, other: J, by_kind: Mapping[str, list[J]]) -> bool:
    names = set(term.get("namespaces", ()))
    wanted = term.get("namespaceSelector")
    if wanted is not None:
        names |= {n["metadata"]["name"] for n in by_kind.get("Namespace", ()) if _selects(wanted, n)}
    elif not names:
        names = {owner["metadata"]["namespace"]}
    return other["metadata"]["namespace"] in names and _selects(term.get("labelSelector"), other)


def _selects(selector: J | None, one: J) -> bool:
    if selector is None:
        return False
    labels = one["metadata"].get("labels", {})
    if any(labels.get(k) != v for k, v in selector.get("matchLabels", {}).items()):
        return False
    return all(_expression(e, {labels[e["key"]]} if e["key"] in labels else set()) for e in selector.get("matchExpressions", ()))


def _term_holds(term: J, place: Place) -> bool:
    expressions = term.get("matchExpressions", ())
    return bool(expressions) and all(_expression(e, place.labels.get(e["key"], set())) for e in expressions)


def _expression(e: J, values: set[str]) -> bool:
    """Whether the expression holds whichever of `values` the label has; empty means that it is missing."""
    listed = set(e.get("values", ()))
    match e["operator"]:
        case "In":
            return bool(values) and values <= listed
        case "NotIn":
            return not values & listed
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values
        case "Gt":
            return bool(values) and all(int(v) > int(e["values"][0]) for v in values)
        case "Lt":
            return bool(values) and all(int(v) < int(e["values"][0]) for v in values)
    raise ValueError(e["operator"])


def _tolerates(toleration: J, taint: J) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _requests(spec: J) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {"pods": Fraction(1)}
    peak: dict[str, Fraction] = {}
    beside: dict[str, Fraction] = {}
    for container in spec.get("containers", ()):
        _plus(total, _amounts(container.get("resources", {}).get("requests", {})))
    for container in spec.get("initContainers", ()):
        own = _amounts(container.get("resources", {}).get("requests", {}))
        if container.get("restartPolicy") == "Always":
            _plus(total, own)
            _plus(beside, own)
            own = dict(beside)
        else:
            _plus(own, beside)
        for name, amount in own.items():
            peak[name] = max(peak.get(name, Fraction(0)), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def _plus(into: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, Fraction(0)) + amount


def _amounts(written: Mapping[str, str | int]) -> dict[str, Fraction]:
    return {name: _amount(str(text)) for name, text in written.items()}


def _amount(text: str) -> Fraction:
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _UNITS[text[len(digits) :]]


def _ports(pod: J) -> list[tuple[int, str, str]]:
    return [
        (p["hostPort"], p.get("protocol", "TCP"), p.get("hostIP", "0.0.0.0"))
        for c in pod["spec"].get("containers", ())
        for p in c.get("ports", ())
        if p.get("hostPort")
    ]


def _ports_clash(a: tuple[int, str, str], b: tuple[int, str, str]) -> bool:
    return a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2]))


def _key(pod: J) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
