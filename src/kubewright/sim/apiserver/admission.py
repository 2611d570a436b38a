"""What admission plug-ins put into objects on the way in: they read other objects, which defaulting may not.

Source: k8s.io/kubernetes v1.36 plugin/pkg/admission (namespace lifecycle, nodetaint, priority, defaulttolerationseconds,
runtimeclass, storage/setdefault).
"""

from typing import TYPE_CHECKING

from kubewright.errors import Forbidden
from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Item

if TYPE_CHECKING:
    from kubewright.sim.apiserver.store import Store

_TOLERATED_S = 300
_BUILT_IN_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NOT_READY = "node.kubernetes.io/not-ready"
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def admit_create(store: "Store", kind: Kind, obj: Item) -> None:
    """Raises NotFound (no such namespace), Forbidden (it is being deleted; an unknown class is named)."""
    if kind.namespaced:
        _check_namespace(store, kind, obj)
    if kind.kind == "Pod" and not kind.group:
        _priority(store, kind, obj)
        _tolerate_lost_nodes(obj)
        _overhead(store, kind, obj)
    elif kind.kind == "Service" and not kind.group:
        _address(store, obj)
    elif kind.kind == "PersistentVolumeClaim" and not kind.group:
        _default_storage_class(store, obj)
    elif kind.kind == "Node" and not kind.group:
        _taint_until_ready(obj)


def _taint_until_ready(node: Item) -> None:
    """A new node keeps pods away until the node lifecycle controller says otherwise. Source: plugin/pkg/admission/nodetaint."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any((t.get("key"), t.get("effect")) == (_NOT_READY, "NoSchedule") for t in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


def copy_topology(store: "Store", pod: Item, node: str) -> None:
    """A pod that is bound learns where it is. Source: plugin/pkg/admission/podtopologylabels."""
    found = store.table(store.kind("v1", "Node")).get(("", node)) or {"metadata": {}}
    known = found["metadata"].get("labels") or {}
    labels = {key: known[key] for key in _TOPOLOGY if key in known}
    if labels:
        pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}


def admit_update(kind: Kind, obj: Item) -> None:
    """Changes `obj` in place."""
    if kind.kind == "Pod" and not kind.group:
        _tolerate_lost_nodes(obj)


def _address(store: "Store", service: Item) -> None:
    """An address from the range that kube-apiserver's manifests name; the registry does this, and not an admission plug-in."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        store.services += 1
        spec["clusterIP"] = f"10.96.{store.services // 254 % 256}.{store.services % 254 + 1}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])


def _check_namespace(store: "Store", kind: Kind, obj: Item) -> None:
    name = obj["metadata"]["namespace"]
    namespaces = store.kind("v1", "Namespace")
    space = store.table(namespaces).get(("", name))
    if space is None:
        raise answers.not_found(namespaces, name)
    if "deletionTimestamp" in space["metadata"]:
        why = f"unable to create new content in namespace {name} because it is being terminated"
        error = answers.forbidden(kind, obj["metadata"].get("name", ""), why)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        raise Forbidden(error.status, error.reason, error.message, {**(error.details or {}), "causes": [cause]})


def _priority(store: "Store", kind: Kind, pod: Item) -> None:
    spec = pod["spec"]
    classes = store.kind("scheduling.k8s.io/v1", "PriorityClass")
    asked = spec.get("priorityClassName", "")
    found: Item | None = None
    value: int | None = None
    if asked:
        found = store.table(classes).get(("", asked))
        value = found["value"] if found else _BUILT_IN_PRIORITIES.get(asked)
        if value is None:
            raise answers.forbidden(kind, _shown(pod), f"no PriorityClass with name {asked} was found")
    else:
        defaults = [c for c in store.table(classes).items() if c.get("globalDefault")]
        found = min(defaults, key=lambda c: (c["value"], c["metadata"]["name"]), default=None)
        value = found["value"] if found else 0
        if found:
            spec["priorityClassName"] = found["metadata"]["name"]
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    for field, computed, shown in (
        ("priority", value, "integer value of priority"),
        ("preemptionPolicy", policy, "string value of PreemptionPolicy"),
    ):
        if spec.get(field) not in (None, computed):
            why = (
                f"the {shown} ({spec[field]}) must not be provided in pod spec; "
                f"priority admission controller computed {computed} from the given PriorityClass name"
            )
            raise answers.forbidden(kind, _shown(pod), why)
        spec[field] = computed


def _tolerate_lost_nodes(pod: Item) -> None:
    tolerations = pod["spec"].get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_S}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(t.get("key", "") in ("", key) and t.get("effect", "") in ("", "NoExecute") for t in tolerations)
    ]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]


def _overhead(store: "Store", kind: Kind, pod: Item) -> None:
    name = pod["spec"].get("runtimeClassName")
    if not name:
        return
    found = store.table(store.kind("node.k8s.io/v1", "RuntimeClass")).get(("", name))
    if found is None:
        raise answers.forbidden(kind, _shown(pod), f'pod rejected: RuntimeClass "{name}" not found')
    fixed = (found.get("overhead") or {}).get("podFixed")
    if fixed and not pod["spec"].get("overhead"):
        pod["spec"]["overhead"] = fixed


def _default_storage_class(store: "Store", claim: Item) -> None:
    if claim["spec"].get("storageClassName") is not None:
        return
    classes = store.table(store.kind("storage.k8s.io/v1", "StorageClass")).items()
    defaults = [c for c in classes if (c["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"]
    if defaults:
        newest = max(c["metadata"]["creationTimestamp"] for c in defaults)
        claim["spec"]["storageClassName"] = min(
            c["metadata"]["name"] for c in defaults if c["metadata"]["creationTimestamp"] == newest
        )


def _shown(pod: Item) -> str:
    return str(pod["metadata"].get("name", ""))
