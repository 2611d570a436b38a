"""What a pod asks of its node by itself: taints, labels, volumes, room, ports. Imports nothing of kubewright."""

from collections.abc import Iterator, Mapping

from tests.conformance.validator.amounts import ZERO, Amounts, J, plus, requests
from tests.conformance.validator.places import Cluster, Place
from tests.conformance.validator.selecting import expression_holds, key_of, namespace_of, tolerated, tolerates

MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def alone(pod: J, place: Place, cluster: Cluster) -> Iterator[str]:
    spec = pod["spec"]
    taint = tolerated(spec, place.taints)
    if taint is not None:
        yield f"taint {taint['key']} not tolerated"
    if not on_own_nodes(pod, place):
        yield "nodeSelector or required node affinity"
    for name, dies in claims_of(pod):
        yield from _volume(name, dies, pod, place, cluster)


def on_own_nodes(pod: J, place: Place) -> bool:
    """Whether the nodeSelector and some required term hold whatever the place becomes."""
    spec = pod["spec"]
    if any(place.labels.get(key) != {value} for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    node = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(MUST)
    return node is None or any(term_holds(t, place) for t in node["nodeSelectorTerms"])


def could_be_on_own_nodes(pod: J, key: str, value: str) -> bool:
    """Whether the pod's own words about this one label leave the value open."""
    spec = pod["spec"]
    if (spec.get("nodeSelector") or {}).get(key, value) != value:
        return False
    node = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(MUST)
    return node is None or any(
        all(expression_holds(e, {value}) for e in t.get("matchExpressions") or () if e["key"] == key)
        for t in node["nodeSelectorTerms"]
    )


def term_holds(term: J, place: Place) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    name = set() if place.is_new else {place.name}
    return bool(expressions or fields) and (
        all(expression_holds(e, place.labels.get(e["key"], set())) for e in expressions)
        and all(expression_holds(e, name) for e in fields)
    )


def claims_of(pod: J) -> list[tuple[str, bool]]:
    """(claim, whether it ends with the pod, which already runs somewhere) of every volume that has one."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append((volume["persistentVolumeClaim"]["claimName"], False))
        elif volume.get("ephemeral"):
            found.append((f"{pod['metadata']['name']}-{volume['name']}", bool(pod["spec"].get("nodeName"))))
    return found


def _claim(name: str, pod: J, cluster: Cluster) -> J | None:
    return next(
        (c for c in cluster.of("PersistentVolumeClaim") if (c["metadata"]["name"], namespace_of(c)) == (name, namespace_of(pod))),
        None,
    )


def _volume(name: str, dies: bool, pod: J, place: Place, cluster: Cluster) -> Iterator[str]:
    claim = _claim(name, pod, cluster)
    if claim is None:
        yield f"claim {name} does not exist"
        return
    bound = claim["spec"].get("volumeName") if not dies else None
    if bound:
        volume = next((v for v in cluster.of("PersistentVolume") if v["metadata"]["name"] == bound), None)
        if volume is None:
            yield f"volume of {name} does not exist"
            return
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        local = "local" in volume["spec"] or "hostPath" in volume["spec"]
        if required and not local and not any(term_holds(t, place) for t in required["nodeSelectorTerms"]):
            yield f"volume of {name} lies elsewhere"
        return
    kind = next((s for s in cluster.of("StorageClass") if s["metadata"]["name"] == claim["spec"].get("storageClassName")), None)
    if kind is None:
        yield f"no storage class for {name}"
        return
    allowed = kind.get("allowedTopologies") or []
    if allowed and not any(
        all(place.labels.get(e["key"], {""}) <= set(e["values"]) for e in t["matchLabelExpressions"]) for t in allowed
    ):
        yield f"storage class of {name} does not reach here"


def _driver(name: str, pod: J, cluster: Cluster) -> str:
    claim = _claim(name, pod, cluster)
    if claim is None:
        return ""
    if claim["spec"].get("volumeName"):
        volume = next((v for v in cluster.of("PersistentVolume") if v["metadata"]["name"] == claim["spec"]["volumeName"]), None)
        return str((((volume or {}).get("spec") or {}).get("csi") or {}).get("driver", ""))
    kind = next((s for s in cluster.of("StorageClass") if s["metadata"]["name"] == claim["spec"].get("storageClassName")), None)
    return str((kind or {}).get("provisioner", ""))


def crowded(place: Place, cluster: Cluster) -> Iterator[tuple[J, str]]:
    """Too much on one node, whatever machine it turns out to be."""
    put = [p for p in place.pods if key_of(p) in place.put]
    if not put:
        return
    if not place.machines:
        yield put[0], "no machine that can be bought"
    mine: Amounts = {}
    for pod in place.pods:
        plus(mine, requests(pod))
    for machine in place.machines:
        total = dict(mine)
        if place.is_new:
            for daemon in cluster.of("DaemonSet"):
                if _daemon_runs(daemon, place, machine.labels):
                    plus(total, requests(daemon["spec"]["template"]))
        for name, amount in total.items():
            if amount > machine.room.get(name, ZERO):
                for pod in put:
                    yield pod, f"too little {name}"
    yield from _ports_taken(place)
    slots: dict[str, set[str]] = {}
    for pod in place.pods:
        for name, _ in claims_of(pod):
            driver = _driver(name, pod, cluster)
            if driver:
                slots.setdefault(driver, set()).add(f"{namespace_of(pod)}/{name}")
    for pod in put:
        for driver in {_driver(name, pod, cluster) for name, _ in claims_of(pod)} - {""}:
            if any(len(slots[driver]) > m.attach.get(driver, len(slots[driver])) for m in place.machines):
                yield pod, f"more volumes than {driver} can attach"


def _daemon_runs(daemon: J, place: Place, labels: Mapping[str, str]) -> bool:
    """Whether the DaemonSet will surely run on the machine: what a label left open might do is not held against a plan."""
    spec = daemon["spec"]["template"]["spec"]
    hard = [t for t in place.taints if t["effect"] != "PreferNoSchedule"]
    if not all(any(tolerates(o, t) for o in spec.get("tolerations") or ()) for t in hard):
        return False
    known = {k: v for k, v in place.labels.items() if len(v) == 1} | {k: {v} for k, v in labels.items()}
    if any(known.get(k) != {v} for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    node = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(MUST)
    return node is None or any(
        all(expression_holds(e, known.get(e["key"], set())) for e in t.get("matchExpressions") or ())
        for t in node["nodeSelectorTerms"]
    )


def daemons_on(place: Place, cluster: Cluster) -> Iterator[J]:
    """Pods of the DaemonSets that will surely run on a node: they come first to a new one, and soon to any other."""
    if place.is_leaving:
        return
    for daemon in cluster.of("DaemonSet"):
        settled = {k: next(iter(v)) for k, v in place.labels.items() if len(v) == 1}
        if _daemon_runs(daemon, place, settled):
            template = daemon["spec"]["template"]
            meta = {"name": f"{daemon['metadata']['name']}-on-{place.name}", "namespace": namespace_of(daemon)}
            yield {**template, "metadata": {**(template.get("metadata") or {}), **meta}}


def _ports_taken(place: Place) -> Iterator[tuple[J, str]]:
    for i, pod in enumerate(place.pods):
        for other in place.pods[i + 1 :]:
            if any(_clash(a, b) for a in _ports(pod) for b in _ports(other)):
                late = other if key_of(other) in place.put else pod
                if key_of(late) in place.put:
                    yield late, "host port taken"


def _ports(pod: J) -> list[tuple[int, str, str]]:
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return [
        (p["hostPort"], p.get("protocol") or "TCP", p.get("hostIP") or "0.0.0.0")
        for c in (*(spec.get("containers") or ()), *sidecars)
        for p in c.get("ports") or ()
        if p.get("hostPort")
    ]


def _clash(a: tuple[int, str, str], b: tuple[int, str, str]) -> bool:
    return a[:2] == b[:2] and (a[2] == b[2] or bool({a[2], b[2]} & {"0.0.0.0", "::"}))
