"""Random problems in which money is at stake: dozens to hundreds of pods, on machines of the real catalogue below 49 cpus.

The features are those of `tests.conformance.problems`, which tries each of them out on few pods; here they come in a crowd.
"""

import random
from typing import Any

from tests.conformance.problems.machines import real_below
from tests.conformance.problems.shapes import (
    CPUS_LABEL,
    CT,
    HOST,
    MUST,
    NODE_CLASS,
    UNSCHEDULABLE,
    WELL_KNOWN,
    ZONE,
    ZONES,
    J,
    one_of,
    owner,
)

MOST_CPUS = 49
SIZES = (
    ("100m", "128Mi"),
    ("250m", "512Mi"),
    ("500m", "2Gi"),
    ("1", "1Gi"),
    ("1", "4Gi"),
    ("1500m", "6Gi"),
    ("2", "2Gi"),
    ("3", "12Gi"),
)


def capped(seed: int) -> J:
    """A problem in the oracle's JSON; the same for the same seed."""
    rng = random.Random(f"capped-{seed}")
    pools = _pools(rng)
    objects: list[J] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {}}}, *pools]
    if rng.random() < 0.5:
        objects.append(_daemon())
    tainted = any("taints" in p["spec"]["template"]["spec"] for p in pools)
    for workload in range(rng.randint(2, 8)):
        objects += _workload(rng, f"w{workload}", rng.randint(5, 60), tolerant=tainted)
    return {"objects": objects, "instanceTypes": real_below(MOST_CPUS), "wellKnownLabels": list(WELL_KNOWN)}


def _pools(rng: random.Random) -> list[J]:
    found = []
    for index, name in enumerate(("main", "other")[: rng.choice((1, 1, 2))]):
        requirements = [
            {"key": CPUS_LABEL, "operator": "Lt", "values": [str(MOST_CPUS)]},
            one_of(CT, *rng.choice((("on-demand",), ("on-demand",), ("spot",), ("spot", "on-demand")))),
        ]
        if rng.random() < 0.2:
            requirements.append(one_of(ZONE, *rng.sample(ZONES, 2)))
        spec: J = {"nodeClassRef": NODE_CLASS, "requirements": requirements}
        if index and rng.random() < 0.5:
            spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
        pool: J = {"template": {"spec": spec}, "weight": rng.choice((1, 10))}
        found.append({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": pool})
    return found


def _daemon() -> J:
    container = {"name": "d", "image": "d", "resources": {"requests": {"cpu": "150m", "memory": "200Mi"}}}
    template = {
        "metadata": {"labels": {"d": "agent"}},
        "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
    }
    meta = {"name": "agent", "namespace": "default"}
    spec = {"selector": {"matchLabels": {"d": "agent"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}


def _workload(rng: random.Random, app: str, count: int, *, tolerant: bool) -> list[J]:
    cpu, memory = rng.choice(SIZES)
    container: J = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec: J = {"containers": [container]}
    mine = {"matchLabels": {"app": app}}
    kind = rng.choice(("plain",) * 4 + ("zone-spread", "host-spread", "soft-spread", "apart", "zone", "capacity", "wish"))
    if kind in ("zone-spread", "host-spread", "soft-spread"):
        rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": mine}
        if kind == "host-spread":
            rule |= {"topologyKey": HOST, "maxSkew": 4}
        if kind == "soft-spread":
            rule["whenUnsatisfiable"] = "ScheduleAnyway"
        spec["topologySpreadConstraints"] = [rule]
    elif kind == "apart":
        count = min(count, 6)
        spec["affinity"] = {"podAntiAffinity": {MUST: [{"topologyKey": HOST, "labelSelector": mine}]}}
    elif kind == "zone":
        spec["nodeSelector"] = {ZONE: rng.choice(ZONES)}
    elif kind == "capacity":
        spec["nodeSelector"] = {CT: "on-demand"}
    elif kind == "wish":
        term = {"weight": 1, "preference": {"matchExpressions": [one_of(ZONE, rng.choice(ZONES))]}}
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    if tolerant and rng.random() < 0.5:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]
    return [_pod(f"{app}-{i:03}", app, spec) for i in range(count)]


def _pod(name: str, app: str, spec: J) -> J:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": app}}
    meta["ownerReferences"] = [owner("apps/v1", "ReplicaSet", app)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    }
