"""Pods: what each feature writes into their specs."""

from collections.abc import Mapping

from tests.conformance.problems.shapes import (
    APPS,
    ARCH,
    CATEGORY,
    CPUS,
    CPUS_LABEL,
    CT,
    DRIVER,
    GPU,
    HOST,
    HUGE,
    MAY,
    MEMORIES,
    MUST,
    NAMESPACES,
    SHARE,
    TIER,
    TYPE,
    UNSCHEDULABLE,
    ZONE,
    ZONES,
    J,
    expression,
    key_of,
    one_of,
    owner,
    terms,
)
from tests.conformance.problems.source import Source


class Workloads:
    """Makes the pods of a problem; `marked` says which pods stand for which feature."""

    def __init__(self, source: Source, wanted: set[str]) -> None:
        self.source = source
        self.wanted = wanted
        self.objects: list[J] = []
        self.marked: dict[str, set[str]] = {}
        self.serial = 0
        self.first = True
        """The first workload has every wanted feature, others some."""
        self._here: set[str] = set()

    def has(self, feature: str) -> bool:
        if feature in self.wanted and (self.first or self.source.chance(50)):
            self._here.add(feature)
            return True
        return False

    def workload(self, *, defaulted: bool = False) -> None:
        """A few pods alike; `defaulted` ones write no spread and get the cluster's."""
        source = self.source
        self._here = set()
        app = source.one(*APPS)
        labels = {"app": app, "version": source.one("v1", "v2")}
        namespace = source.one(*NAMESPACES) if self.wanted & {"namespaces", "namespace-selector"} else "default"
        meta: J = {}
        spec = self._spec(app, defaulted)
        if "topologySpreadConstraints" not in spec and (defaulted or self.has("default-spread")):
            self._here.add("default-spread")
            name = f"set-{app}-{labels['version']}-{self.serial}"
            meta["ownerReferences"] = [owner("apps/v1", "ReplicaSet", name)]
            self.objects.append(
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {
                        "selector": {"matchLabels": dict(labels)},
                        "template": {"metadata": {"labels": dict(labels)}, "spec": {"containers": spec["containers"]}},
                    },
                }
            )
        volumes = [f for f in ("bound-volume", "late-volume", "ephemeral-volume") if self.has(f)]
        if self.wanted & {"attach-limit", "attach-limit-new"}:
            volumes += ["late-volume"] * (not volumes)
            self._here |= self.wanted & {"attach-limit", "attach-limit-new"}
        zone = source.one(*ZONES)
        for _ in range(source.between(1, 5)):
            own = {**spec}
            if volumes:
                own["volumes"] = [self._volume(kind, namespace, zone, i) for i, kind in enumerate(volumes)]
            pod = self.pod(labels, own, namespace=namespace, meta=meta)
            for feature in self._here:
                self.marked.setdefault(feature, set()).add(key_of(pod))
        self.first = False

    def running(self, node: str, app: str) -> None:
        """A pod that runs on `node`."""
        source = self.source
        spec: J = {"containers": [self._container()]}
        status: J = {"phase": "Running"}
        if "inverse-anti-affinity" in self.wanted and source.chance(60):
            term = {"topologyKey": source.one(HOST, ZONE), "labelSelector": {"matchLabels": {"app": source.one(*APPS)}}}
            if source.chance(30):
                term["namespaceSelector"] = {}
            spec["affinity"] = {"podAntiAffinity": {MUST: [term]}}
        if "resize" in self.wanted and source.chance(80):
            more = {"cpu": source.one("2", "50m"), "memory": source.one("3Gi", "64Mi")}
            status["containerStatuses"] = [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "x",
                    "ready": True,
                    "restartCount": 0,
                    "allocatedResources": more,
                    "resources": {"requests": more},
                }
            ]
            if source.chance(30):
                status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
        if "attach-limit" in self.wanted and source.chance(60):
            spec["volumes"] = [self._volume("late-volume", "default", "zone-a", 0)]
        self.pod({"app": app}, spec, node=node, status=status)

    def pod(
        self,
        labels: Mapping[str, str],
        spec: J,
        *,
        node: str = "",
        namespace: str = "default",
        meta: J | None = None,
        status: J | None = None,
    ) -> J:
        name = f"pod-{self.serial:03}"
        self.serial += 1
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": dict(labels), "uid": f"uid-{name}", **(meta or {})},
            "spec": {**spec, **({"nodeName": node} if node else {})},
            "status": status or ({"phase": "Running"} if node else {"phase": "Pending", "conditions": [UNSCHEDULABLE]}),
        }
        self.objects.append(pod)
        return pod

    def _volume(self, kind: str, namespace: str, zone: str, index: int) -> J:
        if kind == "ephemeral-volume":
            name, volume = f"pod-{self.serial:03}-scratch{index}", f"scratch{index}"
            template = {"spec": {"storageClassName": "anywhere", **_size()}}
            mounted: J = {"name": volume, "ephemeral": {"volumeClaimTemplate": template}}
            self._claim(name, namespace, {"storageClassName": "anywhere"}, "", made_for=f"pod-{self.serial:03}")
            return mounted
        name = f"claim-{self.serial:03}-{index}"
        if kind == "bound-volume":
            volume = f"pv-{self.serial:03}-{index}"
            zones = [zone] if not self.source.chance(30) else sorted({zone, "zone-b"})
            self.objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": volume},
                    "spec": {
                        "csi": {"driver": DRIVER, "volumeHandle": name},
                        "nodeAffinity": {"required": terms(one_of(ZONE, *zones))},
                    },
                }
            )
            self._claim(name, namespace, {"storageClassName": "zonal"}, volume)
        else:
            self._claim(name, namespace, {"storageClassName": self.source.one("anywhere", "zonal")}, "")
        return {"name": f"data{index}", "persistentVolumeClaim": {"claimName": name}}

    def _claim(self, name: str, namespace: str, spec: J, volume: str, *, made_for: str = "") -> None:
        meta: J = {"name": name, "namespace": namespace}
        if volume:
            spec = {**spec, "volumeName": volume}
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        if made_for:
            meta["ownerReferences"] = [{**owner("v1", "Pod", made_for), "uid": f"uid-{made_for}"}]
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": meta,
                "spec": spec,
                "status": {"phase": "Bound" if volume else "Pending"},
            }
        )

    def _container(self) -> J:
        requests = {"cpu": self.source.one(*CPUS), "memory": self.source.one(*MEMORIES)}
        return {"name": "main", "image": "x", "resources": {"requests": requests}}

    def _spec(self, app: str, defaulted: bool) -> J:
        spec: J = {"containers": [self._container()]}
        self._resources(spec)
        affinity: J = {}
        self._node(spec, affinity)
        self._company(affinity, app)
        if affinity:
            spec["affinity"] = affinity
        spread = self._spread(app) if not defaulted else []
        if spread:
            spec["topologySpreadConstraints"] = spread
        return spec

    def _resources(self, spec: J) -> None:
        source, main = self.source, spec["containers"][0]
        if self.has("init-container"):
            init = {"name": "init", "image": "x", "resources": {"requests": {"cpu": source.one("2", "4"), "memory": "64Mi"}}}
            spec.setdefault("initContainers", []).append(init)
        if self.has("sidecar"):
            side = {"name": "side", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "300Mi"}}}
            side["restartPolicy"] = "Always"
            if source.chance(30):
                side["ports"] = [{"containerPort": 81, "hostPort": 8081}]
            spec["initContainers"] = source.one([*spec.get("initContainers", ()), side], [side, *spec.get("initContainers", ())])
        if self.has("extended-resource"):
            main["resources"]["requests"][GPU] = "1"
            main["resources"].setdefault("limits", {})[GPU] = "1"
        if self.has("hugepages"):
            amount = source.one("512Mi", "2Gi")
            main["resources"]["requests"][HUGE] = amount
            main["resources"].setdefault("limits", {})[HUGE] = amount
        if self.has("pod-level"):
            spec["resources"] = {"requests": {"cpu": source.one("5", "6"), "memory": source.one("6Gi", "9Gi")}}
        if self.has("overhead"):
            spec["overhead"] = {"cpu": "250m", "memory": source.one("160Mi", "2Gi")}
        if self.has("priority"):
            spec["priority"] = source.one(0, 10, 1000, -5)
        if self.has("host-port"):
            port: J = {"containerPort": 80, "hostPort": source.one(8080, 9090)}
            if source.chance(50):
                port["protocol"] = source.one("TCP", "UDP")
            if source.chance(40):
                port["hostIP"] = source.one("127.0.0.1", "10.0.0.1", "0.0.0.0")
            main["ports"] = [port]

    def _node(self, spec: J, affinity: J) -> None:
        source = self.source
        if self.has("node-selector"):
            spec["nodeSelector"] = source.one({TIER: "gold"}, {ZONE: "zone-b"}, {CT: "on-demand"}, {ARCH: "amd64"})
        wanted: list[J] = []
        if self.has("node-affinity"):
            wanted.append(
                source.one(
                    one_of(ZONE, "zone-a", "zone-b"),
                    expression(ZONE, "NotIn", "zone-a"),
                    one_of(TIER, "iron"),
                    expression(TIER, "Exists"),
                    expression("example.com/nowhere", "DoesNotExist"),
                )
            )
            if source.chance(60):
                wanted.append(source.one(one_of(ARCH, "amd64"), one_of(CT, "spot"), expression(TYPE, "NotIn", "c1", "c2", "m1")))
        if self.has("numbers"):
            number = source.one(
                expression(CPUS_LABEL, "Gt", "2"),
                expression(CPUS_LABEL, "Lt", "9"),
                expression(CPUS_LABEL, "In", "4", "8"),
                expression(CPUS_LABEL, "NotIn", "8"),
            )
            wanted.append(number)
        if wanted:
            found = terms(*wanted)
            if source.chance(30):
                found = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
            affinity["nodeAffinity"] = {MUST: found}
        if self.has("preference") or self.has("ignore-preferences"):
            wish = source.one(one_of(ZONE, "zone-c"), one_of(TIER, "none"), one_of(CT, "spot"))
            wishes = [(10, wish), (5, one_of(ARCH, "arm64"))][: source.between(1, 2)]
            affinity.setdefault("nodeAffinity", {})[MAY] = [
                {"weight": w, "preference": {"matchExpressions": [e]}} for w, e in wishes
            ]
        tolerations: list[J] = []
        if self.has("taint") or ("taint" in self.wanted and source.chance(50)):
            tolerations.append(
                source.one(
                    {"key": "dedicated", "operator": "Equal", "value": "batch"}, {"key": "dedicated", "operator": "Exists"}
                )
            )
        if "node-taints-policy" in self.wanted and source.chance(50):
            tolerations.append({"key": "kept", "operator": "Exists", "effect": "NoSchedule"})
        if tolerations:
            spec["tolerations"] = tolerations

    def _company(self, affinity: J, app: str) -> None:
        source = self.source
        spaces = self.wanted & {"namespaces", "namespace-selector"}
        side = {"affinity": "podAffinity", "anti-affinity": "podAntiAffinity"}
        for feature, field in side.items():
            if self.has(feature):
                affinity[field] = {MUST: [self._pod_term(app, feature)]}
        if spaces and "podAffinity" not in affinity and "podAntiAffinity" not in affinity and (self.first or source.chance(50)):
            feature = source.one("affinity", "anti-affinity")
            affinity[side[feature]] = {MUST: [self._pod_term(app, feature)]}
        if self.has("daemon-company") and "podAffinity" not in affinity and "podAntiAffinity" not in affinity:
            beside = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"d": "agent"}}, "namespaces": ["default"]}
            affinity["podAntiAffinity" if source.chance(30) else "podAffinity"] = {MUST: [beside]}
        if self.has("preferred-pods"):
            field = source.one("podAffinity", "podAntiAffinity")
            weighted = {"weight": source.one(1, 100), "podAffinityTerm": self._pod_term(app, "")}
            affinity.setdefault(field, {})[MAY] = [weighted]

    def _pod_term(self, app: str, feature: str) -> J:
        source = self.source
        target = app if source.chance(70) or feature == "affinity" else source.one(*APPS)
        key = source.one(ZONE, HOST) if feature != "anti-affinity" else source.one(HOST, HOST, ZONE)
        term: J = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": target}}}
        if "namespaces" in self.wanted and (self.first or source.chance(60)):
            term["namespaces"] = source.one(["default", "other"], ["other"], ["default"])
            self._here.add("namespaces")
        if "namespace-selector" in self.wanted and (self.first or source.chance(60)):
            term["namespaceSelector"] = source.one({}, {"matchLabels": {"team": "two"}}, {"matchLabels": {"team": "one"}})
            self._here.add("namespace-selector")
        return term

    def _spread(self, app: str) -> list[J]:
        source = self.source
        mine: J = {"matchLabels": {"app": app}}
        found: list[J] = []
        for feature, key, when in (
            ("zone-spread", ZONE, "DoNotSchedule"),
            ("host-spread", HOST, "DoNotSchedule"),
            ("label-spread", SHARE, "DoNotSchedule"),
        ):
            if self.has(feature):
                found.append(self._constraint(key, mine, when))
        if self.has("soft-spread"):
            found.append(self._constraint(source.one(ZONE, HOST, CATEGORY), mine, "ScheduleAnyway"))
        special = [f for f in ("min-domains", "match-label-keys", "node-affinity-policy", "node-taints-policy") if self.has(f)]
        if special:
            zonal = next((c for c in found if c["topologyKey"] == ZONE and c["whenUnsatisfiable"] == "DoNotSchedule"), None)
            if zonal is None:
                zonal = self._constraint(ZONE, mine, "DoNotSchedule")
                found.append(zonal)
            if "min-domains" in special:
                zonal["minDomains"] = source.one(2, 3, 4)
            if "match-label-keys" in special:
                zonal["matchLabelKeys"] = ["version"]
            if "node-affinity-policy" in special:
                zonal["nodeAffinityPolicy"] = "Ignore"
            if "node-taints-policy" in special:
                zonal["nodeTaintsPolicy"] = "Honor"
        return found

    def _constraint(self, key: str, selector: J, when: str) -> J:
        skew = self.source.one(1, 1, 2)
        return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector}


def _size() -> J:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
