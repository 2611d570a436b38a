"""What a problem's pods find: NodePools, nodes with pods on them, daemons, storage."""

from tests.conformance.problems.shapes import (
    APPS,
    ARCH,
    CATEGORY,
    CPUS_LABEL,
    CT,
    DRIVER,
    GPU,
    HOST,
    HUGE,
    INITIALIZED,
    MUST,
    NAMESPACES,
    NODE_CLASS,
    OS,
    POOL,
    REGISTERED,
    SHARE,
    STARTING,
    TIER,
    TYPE,
    ZONE,
    ZONES,
    J,
    expression,
    one_of,
    owner,
)
from tests.conformance.problems.source import Source

TEAMS = {"default": "one", "other": "two"}


def namespaces() -> list[J]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": {"team": TEAMS[n]}}} for n in NAMESPACES]


def pools(source: Source, wanted: set[str]) -> list[J]:
    names = ["alpha", "beta"] if "weights" in wanted or "label-spread" in wanted or source.chance(40) else ["alpha"]
    found = [_pool(source, wanted, name, index, len(names)) for index, name in enumerate(names)]
    if "static" in wanted:
        spec = {"replicas": 2, "template": {"spec": {"nodeClassRef": NODE_CLASS, "requirements": []}}}
        found.append({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "static"}, "spec": spec})
    return found


def _pool(source: Source, wanted: set[str], name: str, index: int, count: int) -> J:
    requirements: list[J] = []
    own = "reserved" not in wanted and "min-values" not in wanted and "min-values-relaxed" not in wanted
    if source.chance(35) and own:
        requirements.append(one_of(CT, *source.one(("on-demand",), ("spot", "on-demand"), ("spot",))))
    if source.chance(25):
        requirements.append(one_of(ZONE, *sorted(source.some(ZONES, 2))))
    if source.chance(25) and own and not wanted & {"extended-resource", "hugepages"}:
        requirements.append(one_of(ARCH, source.one("amd64", "arm64")))
    if "numbers" in wanted and source.chance(40):
        requirements.append(source.one(expression(CPUS_LABEL, "Gt", "1"), expression(CPUS_LABEL, "Lt", "16")))
    if wanted & {"min-values", "min-values-relaxed"}:
        many = source.one(2, 3) if "min-values" in wanted else source.one(3, 12, 40)
        requirements.append({"key": TYPE, "operator": "Exists", "minValues": many})
        if source.chance(30):
            requirements.append({"key": CATEGORY, "operator": "Exists", "minValues": 2})
    if wanted & {"node-selector", "node-affinity", "preference"}:
        requirements.append(one_of(TIER, *source.one(("gold", "iron"), ("gold",))))
    if "label-spread" in wanted:
        requirements.append(one_of(SHARE, *(("1",) if index and count > 1 else ("2", "3", "4"))))
    spec: J = {"nodeClassRef": NODE_CLASS, "requirements": requirements}
    taints = []
    if "taint" in wanted and (source.chance(70) or count == 1):
        taints.append({"key": "dedicated", "value": "batch", "effect": source.one("NoSchedule", "NoExecute")})
    if "prefer-no-schedule" in wanted and (source.chance(70) or count == 1):
        taints.append({"key": "soft", "effect": "PreferNoSchedule"})
    if "node-taints-policy" in wanted and index:
        taints.append({"key": "kept", "value": "apart", "effect": "NoSchedule"})
    if taints:
        spec["taints"] = taints
    if "startup-taint" in wanted:
        spec["startupTaints"] = [{"key": STARTING, "value": "yes", "effect": source.one("NoSchedule", "NoExecute")}]
    pool: J = {"template": {"metadata": {"labels": {"pool-label": name}}, "spec": spec}}
    if "limits" in wanted:
        pool["limits"] = {"cpu": source.one("40", "24", "16", "8")}
        if source.chance(30):
            pool["limits"]["memory"] = source.one("128Gi", "64Gi")
    if "node-limits" in wanted:
        pool.setdefault("limits", {})["nodes"] = source.one("4", "3", "2")
    if count > 1 and "weights" in wanted:
        pool["weight"] = source.one(1, 5, 50) + index
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": pool}


def storage(source: Source) -> list[J]:
    """Classes: one of two zones, one of anywhere."""
    reach = [{"matchLabelExpressions": [{"key": ZONE, "values": sorted(source.some(ZONES, 2))}]}]
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer",
            **({"allowedTopologies": topologies} if topologies else {}),
        }
        for name, topologies in (("zonal", reach), ("anywhere", []))
    ]


class Nodes:
    """Existing nodes of a problem, and what runs on them."""

    def __init__(self, source: Source, wanted: set[str], pool_names: list[str]) -> None:
        self.source = source
        self.wanted = wanted
        self.pools = pool_names
        self.objects: list[J] = []
        self.running: list[tuple[str, str]] = []
        """(node, app) of a pod to be made there."""

    def make(self) -> None:
        kinds = ["plain"] * ("existing" in self.wanted or bool(self.wanted & {"resize", "inverse-anti-affinity", "attach-limit"}))
        kinds += [k for k in ("unmanaged", "in-flight", "starting", "leaving", "static") if k in self.wanted]
        if kinds and self.source.chance(50):
            kinds.append("plain")
        for index, kind in enumerate(kinds):
            self._node(index, kind)

    def _node(self, index: int, kind: str) -> None:
        source, name = self.source, f"node-{index}"
        pool = "static" if kind == "static" else self.pools[0]
        size = source.one("m8", "m4", "m16")
        cpu = int(size[1:])
        labels = {ZONE: source.one(*ZONES), HOST: name, TYPE: size, ARCH: "amd64", OS: "linux", CT: "on-demand"}
        labels |= {CPUS_LABEL: str(cpu), CATEGORY: "m", TIER: source.one("gold", "iron"), SHARE: source.one("1", "2")}
        labels |= {"pool-label": pool}
        if kind != "unmanaged":
            labels |= {POOL: pool, REGISTERED: "true"}
            if kind not in ("starting", "in-flight"):
                labels[INITIALIZED] = "true"
        capacity = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "40"}
        room = {"cpu": f"{cpu * 1000 - 80}m", "memory": f"{cpu * 4 - 1}Gi", "pods": "40"}
        if "extended-resource" in self.wanted and source.chance(50):
            capacity[GPU] = room[GPU] = "1"
        if "hugepages" in self.wanted and source.chance(50):
            capacity[HUGE] = room[HUGE] = "512Mi"
        taints: list[J] = []
        claim_spec: J = {"requirements": [], "nodeClassRef": NODE_CLASS}
        if kind == "starting":
            starting = {"key": STARTING, "value": "yes", "effect": "NoSchedule"}
            claim_spec["startupTaints"] = [starting]
            taints = [starting, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        elif kind != "leaving" and source.chance(20) and "taint" in self.wanted:
            taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
            claim_spec["taints"] = taints
        if kind == "in-flight":
            labels = {k: v for k, v in labels.items() if k not in (HOST, REGISTERED)}
        going = (
            {"deletionTimestamp": "2025-12-31T00:00:00Z", "finalizers": ["karpenter.sh/termination"]} if kind == "leaving" else {}
        )
        if kind != "unmanaged":
            status: J = {"providerID": f"fake:///{name}", "capacity": capacity, "allocatable": room}
            if kind != "in-flight":
                status["nodeName"] = name
            self.objects.append(
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodeClaim",
                    "metadata": {"name": f"claim-{index}", "labels": labels, **going},
                    "spec": claim_spec,
                    "status": status,
                }
            )
        if kind == "in-flight":
            return
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"fake:///{name}", **({"taints": taints} if taints else {})},
                "status": {"capacity": capacity, "allocatable": room},
            }
        )
        if "attach-limit" in self.wanted:
            drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": source.one(2, 1)}}]
            meta = {"name": name}
            self.objects.append(
                {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": drivers}}
            )
        least = 1 if kind in ("leaving", "plain") else 0
        self.running += [(name, source.one(*APPS)) for _ in range(source.between(least, 4))]


def daemon(source: Source, *, shy: bool) -> J:
    """A DaemonSet on most nodes; a `shy` one stands beside no blue pod."""
    requests = {"cpu": source.one("200m", "500m"), "memory": "128Mi"}
    spec: J = {"containers": [{"name": "d", "image": "d", "resources": {"requests": requests}}]}
    if source.chance(70):
        spec["tolerations"] = [{"operator": "Exists"}]
    if source.chance(30):
        spec["nodeSelector"] = {ARCH: "amd64"}
    elif source.chance(30):
        term = {"matchExpressions": [expression(CATEGORY, "NotIn", "c")]}
        spec["affinity"] = {"nodeAffinity": {MUST: {"nodeSelectorTerms": [term]}}}
    if shy:
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "blue"}}}
        spec.setdefault("affinity", {})["podAntiAffinity"] = {MUST: [term]}
    template = {"metadata": {"labels": {"d": "agent"}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"d": "agent"}}, "template": template},
    }


def bystanders(source: Source, container: J) -> list[J]:
    """Pending pods that nobody may plan for: one kind or two."""

    def pod(name: str, status: J, meta: J | None = None, **spec: object) -> J:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "red"}, **(meta or {})},
            "spec": {"containers": [container], **spec},
            "status": {"phase": "Pending", **status},
        }

    failed = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    gated = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
    every = [
        pod("by-gated", gated, schedulingGates=[{"name": "example.com/wait"}]),
        pod("by-nominated", {**failed, "nominatedNodeName": "node-0"}),
        pod("by-daemon", failed, {"ownerReferences": [owner("apps/v1", "DaemonSet", "agent")]}),
        pod("by-mirror", failed, {"ownerReferences": [owner("v1", "Node", "node-0")]}),
        pod("by-new", {}),
        pod(
            "by-opted-out",
            failed,
            affinity={"nodeAffinity": {MUST: {"nodeSelectorTerms": [{"matchExpressions": [expression(POOL, "DoesNotExist")]}]}}},
        ),
    ]
    return source.some(every, source.between(1, 3))
