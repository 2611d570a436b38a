"""Random scheduling problems in the oracle's JSON, small, seeded, over every feature; and which features each one has."""

import random
from typing import Any

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CT = "karpenter.sh/capacity-type"
TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
POOL = "karpenter.sh/nodepool"
ZONES = ("zone-a", "zone-b", "zone-c")
APPS = ("red", "green", "blue")
CPUS = ("100m", "250m", "500m", "1", "1500m", "3")
MEMORIES = ("100Mi", "256Mi", "1Gi", "2Gi", "4Gi")

FEATURES = (
    "node-selector",
    "node-affinity",
    "preference",
    "taint",
    "zone-spread",
    "host-spread",
    "soft-spread",
    "affinity",
    "anti-affinity",
    "host-port",
    "volume",
    "daemon",
    "existing",
    "limits",
    "weights",
    "min-values",
    "init-container",
    "extended-resource",
    "prefer-no-schedule",
    "min-domains",
    "namespaces",
)


def problem(seed: int) -> tuple[dict[str, Any], frozenset[str]]:
    """A problem and the features in it; the same for the same seed."""
    return _Maker(random.Random(seed)).make()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.features: set[str] = set()
        self.objects: list[dict[str, Any]] = []
        self.serial = 0
        count = rng.choice((1, 2, 3, 3, 4))
        self.wanted = set(rng.sample(FEATURES, count))
        if "namespaces" in self.wanted:
            self.wanted.add(rng.choice(("affinity", "anti-affinity")))

    def has(self, feature: str, chance: float = 0.6) -> bool:
        if feature in self.wanted and self.rng.random() < chance:
            self.features.add(feature)
            return True
        return False

    def make(self) -> tuple[dict[str, Any], frozenset[str]]:
        self.namespaces()
        pools = self.pools()
        self.storage()
        if "existing" in self.wanted:
            self.existing(pools)
        if "daemon" in self.wanted:
            self.daemon()
        for _ in range(self.rng.randint(1, 4)):
            self.workload()
        result: dict[str, Any] = {
            "objects": self.objects,
            "instanceTypes": self.types(),
            "preferencePolicy": self.rng.choice(("Respect", "Respect", "Ignore")) if "preference" in self.wanted else "Respect",
            "minValuesPolicy": "Strict",
        }
        return result, frozenset(self.features)

    def namespaces(self) -> None:
        for name, team in (("default", "one"), ("other", "two")):
            self.objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}})

    def types(self) -> list[dict[str, Any]]:
        found = []
        for family, ratio, arch in (("c", 2, "amd64"), ("m", 4, "amd64"), ("g", 4, "arm64")):
            for cpu in (1, 2, 4, 8, 16):
                usd = (cpu * 0.03 + cpu * ratio * 0.004) * (0.8 if arch == "arm64" else 1)
                found.append(self._type(f"{family}{cpu}", cpu, cpu * ratio, arch, usd, {}))
        found.append(self._type("gpu8", 8, 32, "amd64", 1.0, {"example.com/gpu": "2"}))
        return found

    def _type(self, name: str, cpu: int, memory: int, arch: str, usd: float, more: dict[str, str]) -> dict[str, Any]:
        zones = ZONES if name != "g16" else ZONES[:2]
        offerings = [
            {
                "price": round(usd * (0.4 + 0.02 * i if kind == "spot" else 1), 5),
                "available": True,
                "requirements": [_in(ZONE, zone), _in(CT, kind)],
            }
            for kind in ("on-demand", "spot")
            for i, zone in enumerate(zones)
            if not (kind == "spot" and zone == "zone-c")
        ]
        return {
            "name": name,
            "requirements": [
                _in(TYPE, name),
                _in(ARCH, arch),
                _in(OS, "linux"),
                _in(ZONE, *zones),
                _in(CT, "on-demand", "spot"),
            ],
            "capacity": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "12" if cpu < 4 else "40", **more},
            "overhead": {"cpu": "80m", "memory": "200Mi"},
            "offerings": offerings,
        }

    def pools(self) -> list[str]:
        names = ["alpha"] if self.rng.random() < 0.6 and "weights" not in self.wanted else ["alpha", "beta"]
        for index, name in enumerate(names):
            spec: dict[str, Any] = {"nodeClassRef": {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"}}
            requirements: list[dict[str, Any]] = []
            if self.rng.random() < 0.4:
                requirements.append(_in(CT, *self.rng.choice((("on-demand",), ("spot", "on-demand"), ("spot",)))))
            if self.rng.random() < 0.3:
                requirements.append(_in(ZONE, *self.rng.sample(ZONES, 2)))
            if self.rng.random() < 0.3:
                requirements.append(_in(ARCH, self.rng.choice(("amd64", "arm64"))))
            if self.has("min-values"):
                requirements.append({"key": TYPE, "operator": "Exists", "minValues": self.rng.choice((2, 3))})
            if "node-selector" in self.wanted or "node-affinity" in self.wanted:
                requirements.append(_in("example.com/tier", *self.rng.choice((("gold",), ("gold", "iron")))))
            if self.has("taint"):
                spec["taints"] = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
            if self.has("prefer-no-schedule"):
                spec["taints"] = [*spec.get("taints", ()), {"key": "soft", "effect": "PreferNoSchedule"}]
            spec["requirements"] = requirements
            pool: dict[str, Any] = {"template": {"metadata": {"labels": {"pool-label": name}}, "spec": spec}}
            if self.has("limits"):
                pool["limits"] = {"cpu": self.rng.choice(("4", "16", "24"))}
            if len(names) > 1 and self.has("weights", 0.9):
                pool["weight"] = self.rng.choice((1, 5, 50)) + index
            self.objects.append({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": pool})
        return names

    def storage(self) -> None:
        self.objects.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "zonal"},
                "provisioner": "ebs.csi.aws.com",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-a", "zone-b"]}]}],
            }
        )

    def existing(self, pools: list[str]) -> None:
        for index in range(self.rng.randint(1, 3)):
            self.features.add("existing")
            zone = self.rng.choice(ZONES)
            name = f"node-{index}"
            labels = {
                ZONE: zone,
                HOST: name,
                TYPE: "m8",
                ARCH: "amd64",
                OS: "linux",
                CT: "on-demand",
                POOL: pools[0],
                "karpenter.sh/registered": "true",
                "karpenter.sh/initialized": "true",
                "example.com/tier": "gold",
                "pool-label": pools[0],
            }
            amounts = {"cpu": "7920m", "memory": "31Gi", "pods": "40"}
            self.objects += [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodeClaim",
                    "metadata": {"name": f"claim-{index}", "labels": labels},
                    "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.test.sh", "kind": "T", "name": "default"}},
                    "status": {
                        "providerID": f"fake:///{name}",
                        "nodeName": name,
                        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "40"},
                        "allocatable": amounts,
                    },
                },
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"providerID": f"fake:///{name}"},
                    "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "40"}, "allocatable": amounts},
                },
            ]
            for _ in range(self.rng.randint(0, 4)):
                app = self.rng.choice(APPS)
                self.pod({"app": app}, {"containers": [self.container()]}, node=name)

    def daemon(self) -> None:
        self.features.add("daemon")
        spec: dict[str, Any] = {
            "containers": [{"name": "d", "image": "d", "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}}}],
            "tolerations": [{"operator": "Exists"}] if self.rng.random() < 0.7 else [],
        }
        if self.rng.random() < 0.3:
            spec["nodeSelector"] = {ARCH: "amd64"}
        self.objects.append(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "agent", "namespace": "default"},
                "spec": {
                    "selector": {"matchLabels": {"d": "agent"}},
                    "template": {"metadata": {"labels": {"d": "agent"}}, "spec": spec},
                },
            }
        )

    def container(self) -> dict[str, Any]:
        requests = {"cpu": self.rng.choice(CPUS), "memory": self.rng.choice(MEMORIES)}
        return {"name": "main", "image": "x", "resources": {"requests": requests}}

    def workload(self) -> None:
        app = self.rng.choice(APPS)
        labels = {"app": app, "version": self.rng.choice(("v1", "v2"))}
        namespace = self.rng.choice(("default", "other")) if "namespaces" in self.wanted else "default"
        spec = self.spec(app)
        for _ in range(self.rng.randint(1, 6)):
            own = dict(spec)
            if "volumes" in own:
                own["volumes"] = [self.claim(namespace)]
            self.pod(labels, own, namespace=namespace)

    def claim(self, namespace: str) -> dict[str, Any]:
        name = f"claim-{self.serial}"
        spec: dict[str, Any] = {"storageClassName": "zonal"}
        meta: dict[str, Any] = {"name": name, "namespace": namespace}
        if self.rng.random() < 0.5:
            spec["volumeName"] = f"pv-{self.serial}"
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            self.objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"pv-{self.serial}"},
                    "spec": {
                        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name},
                        "nodeAffinity": {
                            "required": {"nodeSelectorTerms": [{"matchExpressions": [_in(ZONE, self.rng.choice(ZONES))]}]}
                        },
                    },
                }
            )
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": meta,
                "spec": spec,
                "status": {"phase": "Bound" if "volumeName" in spec else "Pending"},
            }
        )
        return {"name": "data", "persistentVolumeClaim": {"claimName": name}}

    def spec(self, app: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"containers": [self.container()]}
        affinity: dict[str, Any] = {}
        spread: list[dict[str, Any]] = []
        mine = {"matchLabels": {"app": app}}
        if self.has("init-container"):
            init = {"name": "init", "image": "x", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}}
            if self.rng.random() < 0.5:
                init["restartPolicy"] = "Always"
            spec["initContainers"] = [init]
        if self.has("extended-resource"):
            spec["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
            spec["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
        if self.has("node-selector"):
            spec["nodeSelector"] = self.rng.choice(({"example.com/tier": "gold"}, {ZONE: "zone-b"}, {CT: "on-demand"}))
        if self.has("node-affinity"):
            one = self.rng.choice((_in(ZONE, "zone-a", "zone-b"), _not_in(ZONE, "zone-a"), _in("example.com/tier", "iron")))
            other = self.rng.choice((_in(ARCH, "amd64"), _in(CT, "spot"), _not_in(TYPE, "c1", "c2", "m1")))
            terms = [{"matchExpressions": [one]}, {"matchExpressions": [other]}][: self.rng.choice((1, 2))]
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if self.has("preference"):
            wish = self.rng.choice((_in(ZONE, "zone-c"), _in("example.com/tier", "none"), _in(CT, "spot")))
            affinity.setdefault("nodeAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": 10, "preference": {"matchExpressions": [wish]}},
                {"weight": 5, "preference": {"matchExpressions": [_in(ARCH, "arm64")]}},
            ][: self.rng.choice((1, 2))]
        if "taint" in self.wanted and self.rng.random() < 0.7:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]
        if self.has("zone-spread"):
            spread.append(self.constraint(ZONE, mine, "DoNotSchedule"))
        if self.has("host-spread"):
            spread.append(self.constraint(HOST, mine, "DoNotSchedule"))
        if self.has("soft-spread"):
            spread.append(self.constraint(self.rng.choice((ZONE, HOST)), mine, "ScheduleAnyway"))
        if self.has("min-domains"):
            spread = [{**self.constraint(ZONE, mine, "DoNotSchedule"), "minDomains": self.rng.choice((2, 3, 4))}]
        if self.has("affinity"):
            affinity["podAffinity"] = self.pod_term(app)
        if self.has("anti-affinity"):
            affinity["podAntiAffinity"] = self.pod_term(app)
        if self.has("host-port"):
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": self.rng.choice((8080, 9090)), "protocol": "TCP"}]
        if self.has("volume"):
            spec["volumes"] = []
        if affinity:
            spec["affinity"] = affinity
        if spread:
            spec["topologySpreadConstraints"] = spread
        return spec

    def constraint(self, key: str, selector: dict[str, Any], when: str) -> dict[str, Any]:
        return {
            "topologyKey": key,
            "maxSkew": self.rng.choice((1, 1, 2)),
            "whenUnsatisfiable": when,
            "labelSelector": selector,
        }

    def pod_term(self, app: str) -> dict[str, Any]:
        target = app if self.rng.random() < 0.7 else self.rng.choice(APPS)
        term: dict[str, Any] = {"topologyKey": self.rng.choice((ZONE, HOST)), "labelSelector": {"matchLabels": {"app": target}}}
        if self.has("namespaces", 0.8):
            term["namespaceSelector"] = self.rng.choice(({}, {"matchLabels": {"team": "two"}}))
        if self.rng.random() < 0.25:
            return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    def pod(self, labels: dict[str, str], spec: dict[str, Any], node: str = "", namespace: str = "default") -> None:
        name = f"pod-{self.serial:03}"
        self.serial += 1
        status: dict[str, Any] = {"phase": "Running"}
        if not node:
            status = {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            }
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": labels, "uid": f"uid-{name}"},
                "spec": {**spec, **({"nodeName": node} if node else {})},
                "status": status,
            }
        )


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "NotIn", "values": list(values)}
