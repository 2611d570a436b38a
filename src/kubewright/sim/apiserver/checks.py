"""What the server refuses: names and labels of everything here, the rest by kind in the modules beside.

Source: k8s.io/kubernetes v1.36 pkg/apis/*/validation and apimachinery pkg/api/validation; texts compared with a real
kube-apiserver by tests/api.
"""

from collections.abc import Callable
from typing import Any

from kubewright.api import labels
from kubewright.sim.apiserver import answers, checks_pods, checks_workloads, customs
from kubewright.sim.apiserver.answers import Cause
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Key

Item = dict[str, Any]

_LARGEST_ANNOTATIONS = 256 * 1024
_BY_LABEL = {"Namespace", "Service"}
_ANY_PATH_SEGMENT = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def check_create(kind: Kind, obj: Item) -> None:
    """Raises Invalid."""
    causes = [*_meta(kind, obj), *_body(kind, obj, None)]
    if causes:
        raise answers.invalid(kind, str(obj["metadata"].get("name", "")), causes)


def check_update(kind: Kind, new: Item, old: Item) -> None:
    """Raises Invalid."""
    causes = [*_meta(kind, new), *_late_finalizers(new, old), *_body(kind, new, old)]
    if causes:
        raise answers.invalid(kind, str(new["metadata"].get("name", "")), causes)


def check_identity(new: Item, key: Key) -> None:
    """Raises KubeError (400): the body names another object than the call."""
    meta = new["metadata"]
    if meta.get("name", "") != key[1]:
        raise answers.bad_request(
            f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({key[1]})"
        )
    if (meta.get("namespace") or key[0]) != key[0]:
        raise answers.bad_request(
            f"the namespace of the object ({meta['namespace']}) does not match the namespace on the URL ({key[0]})"
        )


def check_binding(pod: Item) -> None:
    """Raises Conflict."""
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise answers.binding_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise answers.binding_conflict(name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise answers.binding_conflict(name, f"pod {name} has non-empty .spec.schedulingGates")


def _meta(kind: Kind, obj: Item) -> list[Cause]:
    meta = obj["metadata"]
    causes: list[Cause] = []
    name = meta.get("name", "")
    if not name:
        causes.append(answers.required("metadata.name", "name or generateName is required"))
    else:
        causes += [answers.invalid_value("metadata.name", name, text) for text in _name_problems(kind, name)]
    causes += labels_problems(meta.get("labels") or {}, "metadata.labels")
    annotations = meta.get("annotations") or {}
    for key in annotations:
        causes += [answers.invalid_value("metadata.annotations", key, text) for text in key_problems(key.lower())]
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > _LARGEST_ANNOTATIONS:
        causes.append(
            Cause("metadata.annotations", "FieldValueTooLong", f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes")
        )
    for n, finalizer in enumerate(meta.get("finalizers") or ()):
        problems = key_problems(finalizer)
        causes += [answers.invalid_value("metadata.finalizers", finalizer, text) for text in problems]
        if not problems and "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(answers.invalid_value(f"metadata.finalizers[{n}]", finalizer, text))
    for owner in meta.get("ownerReferences") or ():
        for field, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(field):
                causes.append(answers.invalid_value(f"metadata.ownerReferences.{field}", "", text))
    controllers = [o for o in meta.get("ownerReferences") or () if o.get("controller")]
    if len(controllers) > 1:
        text = 'Only one reference can have Controller set to true. Found "true" in references for '
        named = " and ".join(f"{o['kind']}/{o['name']}" for o in controllers[:2])
        causes.append(answers.invalid_value("metadata.ownerReferences", meta["ownerReferences"], text + named))
    return causes


def _name_problems(kind: Kind, name: str) -> list[str]:
    if kind.kind in _BY_LABEL and not kind.group:
        found = labels.label_problems(name)
    elif kind.kind in _ANY_PATH_SEGMENT:
        found = [] if name not in (".", "..") and "/" not in name and "%" not in name else ["may not contain '/' or '%'"]
    else:
        found = labels.subdomain_problems(name)
    # Names are counted in characters, label keys in bytes; since names are ASCII the words are all that differs.
    return [text.replace(" bytes", " characters") if text.startswith("must be no more than") else text for text in found]


def key_problems(key: str) -> list[str]:
    """What is wrong with a key of labels or annotations; since 1.36 the text for too many slashes has words of its own."""
    shape = "a qualified name must consist of"
    return [text.replace(shape, "a valid label key must consist of", 1) for text in labels.qualified_name_problems(key)]


def labels_problems(found: Item, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in found.items():
        causes += [answers.invalid_value(path, key, text) for text in key_problems(key)]
        causes += [answers.invalid_value(path, value, text) for text in labels.value_problems(value)]
    return causes


def _late_finalizers(new: Item, old: Item) -> list[Cause]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    before = set(old["metadata"].get("finalizers") or ())
    added = [f for f in new["metadata"].get("finalizers") or () if f not in before]
    if not added:
        return []
    listed = ", ".join(f'"{one}"' for one in sorted(added))
    text = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return 2 * [answers.forbidden_field("metadata.finalizers", text)]  # the server asks twice, and its details say so


def _body(kind: Kind, obj: Item, old: Item | None) -> list[Cause]:
    if kind.custom:
        return customs.problems(kind, obj, old)
    check = _BODIES.get((kind.group, kind.kind))
    return check(obj, old) if check is not None else []


def _node(node: Item, old: Item | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for n, taint in enumerate(node.get("spec", {}).get("taints") or ()):
        path = f"metadata.taints[{n}]"  # sic
        causes += checks_pods.taint_problems(taint, path)
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity in seen:
            text = "taints must be unique by key and effect pair"
            causes.append(Cause(path, "FieldValueDuplicate", f"Duplicate value: {answers.go_value(taint)}: {text}"))
        seen.add(identity)
    if old is not None:
        before = old.get("spec", {}).get("providerID", "")
        if before and node.get("spec", {}).get("providerID", "") != before:
            text = 'node updates may not change providerID except from "" to valid'
            causes.append(answers.forbidden_field("spec.providerID", text))
    return causes


def _event(event: Item, old: Item | None) -> list[Cause]:
    del old
    involved = event.get("involvedObject") or {}
    namespace = event["metadata"].get("namespace", "")
    if involved.get("namespace", "") not in (namespace, "") or (not involved.get("namespace") and namespace != "default"):
        return [
            answers.invalid_value("involvedObject.namespace", involved.get("namespace", ""), "does not match event.namespace")
        ]
    return []


def _lease(lease: Item, old: Item | None) -> list[Cause]:
    del old
    spec = lease.get("spec") or {}
    causes: list[Cause] = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        causes.append(answers.invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        text = "must be greater than or equal to 0"
        causes.append(answers.invalid_value("spec.leaseTransitions", spec["leaseTransitions"], text))
    if spec.get("holderIdentity") == "":
        causes.append(answers.invalid_value("spec.holderIdentity", "", "must not be empty"))
    return causes


def _claim(claim: Item, old: Item | None) -> list[Cause]:
    spec = claim.get("spec", {})
    if old is not None:
        fixed = ("accessModes", "selector", "storageClassName", "volumeMode", "dataSource")
        before = old["spec"]
        changed = any(spec.get(f) != before.get(f) for f in fixed)
        if changed or (before.get("volumeName") and spec.get("volumeName") != before["volumeName"]):
            text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
            return [answers.forbidden_field("spec", text)]
        return []
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(answers.required("spec.accessModes", "at least 1 access mode is required"))
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        causes.append(answers.required("spec.resources[storage]"))
    return causes


def _priority_class(obj: Item, old: Item | None) -> list[Cause]:
    causes: list[Cause] = []
    if old is not None and obj.get("value", 0) != old.get("value", 0):
        causes.append(answers.forbidden_field("value", "may not be changed in an update."))
    if not obj["metadata"]["name"].startswith("system-") and obj.get("value", 0) > 1_000_000_000:
        text = "maximum allowed value of a user defined priority is 1000000000"
        causes.append(answers.forbidden_field("value", text))
    return causes


def _storage_class(obj: Item, old: Item | None) -> list[Cause]:
    causes: list[Cause] = []
    if not obj.get("provisioner"):
        causes.append(answers.required("provisioner"))
    if old is not None:
        for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if obj.get(field) != old.get(field):
                text = "updates to provisioner are forbidden." if field == "provisioner" else f"updates to {field} are forbidden."
                causes.append(answers.forbidden_field(field, text))
    return causes


def _definition(obj: Item, old: Item | None) -> list[Cause]:
    spec = obj["spec"]
    causes: list[Cause] = []
    needed = {
        "group": spec.get("group"),
        "names.plural": spec["names"].get("plural"),
        "names.kind": spec["names"].get("kind"),
    }
    causes += [answers.required(f"spec.{field}") for field, value in needed.items() if not value]
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"]["name"] != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        causes.append(answers.invalid_value("metadata.name", obj["metadata"]["name"], text))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        causes.append(answers.unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        causes.append(answers.invalid_value("spec.versions", [v.get("name", "") for v in versions], text))
    if sum(bool(version.get("served")) for version in versions) > 1:
        text = "this in-memory API server converts nothing, so only one version can be served"
        causes.append(answers.forbidden_field("spec.versions", text))
    for n, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(answers.required(f"spec.versions[{n}].schema.openAPIV3Schema", "schemas are required"))
    if old is not None:
        for field in ("group", "scope"):
            if spec.get(field) != old["spec"].get(field):
                causes.append(answers.invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
    return causes


_BODIES: dict[tuple[str, str], Callable[[Item, Item | None], list[Cause]]] = {
    ("", "Event"): _event,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("", "Node"): _node,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): checks_pods.pod,
    ("", "Service"): checks_workloads.service,
    ("apps", "DaemonSet"): checks_workloads.daemon_set,
    ("apps", "Deployment"): checks_workloads.deployment,
    ("apps", "ReplicaSet"): checks_workloads.replica_set,
    ("apps", "StatefulSet"): checks_workloads.stateful_set,
    ("batch", "Job"): checks_workloads.job,
    ("coordination.k8s.io", "Lease"): _lease,
    ("policy", "PodDisruptionBudget"): checks_workloads.budget,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
}
