"""The columns that `kubectl get` shows of core kinds. Source: k8s.io/kubernetes v1.36 pkg/printers/internalversion."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kubewright.sim.apiserver.http.columns import Cell, Column, age_of, find, name_of, since, span
from kubewright.sim.apiserver.kinds import Kind

Item = Mapping[str, Any]

_NONE = "<none>"
_UNSET = "<unset>"


def columns_of(kind: Kind) -> Sequence[Column]:
    """The kind's own columns, or name and age."""
    return _COLUMNS.get((kind.group, kind.kind), _PLAIN)


def _at(path: str, blank: Cell = _NONE, kind: str = "string", name: str = "", priority: int = 0) -> Column:
    steps = path.split(".")

    def cell(obj: Item, now: datetime) -> Cell:
        del now
        found = find(obj, steps)
        return blank if found is None or found == "" else found

    return Column(name or steps[-1].capitalize(), cell, kind, priority)


def _number(name: str, path: str, priority: int = 0) -> Column:
    return _at(path, 0, "integer", name, priority)


# pods


def _pod_ready(pod: Item, now: datetime) -> Cell:
    del now
    statuses = find(pod, ["status", "containerStatuses"]) or []
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec'].get('containers', ()))}"


def _pod_status(pod: Item, now: datetime) -> Cell:
    del now
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    scheduled = next((c for c in status.get("conditions") or () if c["type"] == "PodScheduled"), None)
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state", {})
        reason = find(state, ["waiting", "reason"]) or find(state, ["terminated", "reason"]) or reason
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    return str(reason)


def _pod_restarts(pod: Item, now: datetime) -> Cell:
    del now
    return str(sum(s.get("restartCount", 0) for s in find(pod, ["status", "containerStatuses"]) or ()))


def _readiness_gates(pod: Item, now: datetime) -> Cell:
    del now
    gates = pod["spec"].get("readinessGates") or ()
    met = {c["type"] for c in find(pod, ["status", "conditions"]) or () if c["status"] == "True"}
    return f"{sum(g['conditionType'] in met for g in gates)}/{len(gates)}" if gates else _NONE


# nodes


def _node_status(node: Item, now: datetime) -> Cell:
    del now
    ready = next((c for c in find(node, ["status", "conditions"]) or () if c["type"] == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return text + (",SchedulingDisabled" if find(node, ["spec", "unschedulable"]) else "")


def _node_roles(node: Item, now: datetime) -> Cell:
    del now
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(k.removeprefix(prefix) for k in labels if k.startswith(prefix))) or _NONE


def _node_address(kind: str) -> Any:
    def cell(node: Item, now: datetime) -> Cell:
        del now
        addresses = find(node, ["status", "addresses"]) or ()
        return next((a["address"] for a in addresses if a["type"] == kind), _NONE)

    return cell


# workloads


def _of(*paths: str) -> Any:
    """Counts joined by a slash."""

    def cell(obj: Item, now: datetime) -> Cell:
        del now
        return "/".join(str(find(obj, path.split(".")) or 0) for path in paths)

    return cell


def _containers(field: str) -> Any:
    def cell(obj: Item, now: datetime) -> Cell:
        del now
        containers = find(obj, ["spec", "template", "spec", "containers"]) or ()
        return ",".join(str(c.get(field, "")) for c in containers)

    return cell


def _selector(path: str) -> Any:
    steps = path.split(".")

    def cell(obj: Item, now: datetime) -> Cell:
        del now
        selector = find(obj, steps) or {}
        labels = selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
        parts = [f"{k}={v}" for k, v in sorted(labels.items()) if isinstance(v, str)]
        for term in selector.get("matchExpressions") or ():
            values = f" ({','.join(term['values'])})" if term.get("values") else ""
            parts.append(f"{term['key']} {term['operator'].lower()}{values}")
        return ",".join(parts) or _NONE

    return cell


def _job_status(job: Item, now: datetime) -> Cell:
    del now
    held = {c["type"] for c in find(job, ["status", "conditions"]) or () if c["status"] == "True"}
    for condition, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if condition in held:
            return text
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _job_completions(job: Item, now: datetime) -> Cell:
    del now
    done = find(job, ["status", "succeeded"]) or 0
    wanted = find(job, ["spec", "completions"])
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = find(job, ["spec", "parallelism"]) or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Item, now: datetime) -> Cell:
    start, end = find(job, ["status", "startTime"]), find(job, ["status", "completionTime"])
    if not start:
        return ""
    stop = datetime.fromisoformat(end) if end else now
    return span((stop - datetime.fromisoformat(start)).total_seconds())


# the rest


def _ports(service: Item, now: datetime) -> Cell:
    del now
    shown = []
    for port in find(service, ["spec", "ports"]) or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or _NONE


def _last_seen(event: Item, now: datetime) -> Cell:
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = find(event, ["series", "lastObservedTime"]) or event.get("lastTimestamp") or first
    return since(last, now)


def _event_object(event: Item, now: datetime) -> Cell:
    del now
    involved = event.get("involvedObject", {})
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _message(event: Item, now: datetime) -> Cell:
    del now
    return str(event.get("message", "")).strip()


def _access_modes(obj: Item, now: datetime) -> Cell:
    del now
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in find(obj, ["spec", "accessModes"]) or ())


def _volume_claim(volume: Item, now: datetime) -> Cell:
    del now
    claim = find(volume, ["spec", "claimRef"])
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _is_default(obj: Item, now: datetime) -> Cell:
    del now
    default = (obj["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return str(obj["metadata"]["name"]) + (" (default)" if default else "")


def _status(obj: Item, now: datetime) -> Cell:
    del now
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return str(find(obj, ["status", "phase"]) or "")


def _count(field: str) -> Any:
    def cell(obj: Item, now: datetime) -> Cell:
        del now
        return len(obj.get(field) or ())

    return cell


_NAME, _AGE = Column("Name", name_of), Column("Age", age_of)
_PLAIN = (_NAME, _AGE)
_WORKLOAD = (
    Column("Containers", _containers("name"), priority=1),
    Column("Images", _containers("image"), priority=1),
    Column("Selector", _selector("spec.selector"), priority=1),
)

_COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("", "Pod"): (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        _at("status.podIP", name="IP", priority=1),
        _at("spec.nodeName", name="Node", priority=1),
        _at("status.nominatedNodeName", name="Nominated Node", priority=1),
        Column("Readiness Gates", _readiness_gates, priority=1),
    ),
    ("", "Node"): (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        _at("status.nodeInfo.kubeletVersion", "", name="Version"),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        _at("status.nodeInfo.osImage", "<unknown>", name="OS-Image", priority=1),
        _at("status.nodeInfo.kernelVersion", "<unknown>", name="Kernel-Version", priority=1),
        _at("status.nodeInfo.containerRuntimeVersion", "<unknown>", name="Container-Runtime", priority=1),
    ),
    ("", "Namespace"): (_NAME, Column("Status", _status), _AGE),
    ("", "ConfigMap"): (_NAME, Column("Data", _count("data"), "integer"), _AGE),
    ("", "Secret"): (_NAME, _at("type", name="Type"), Column("Data", _count("data"), "integer"), _AGE),
    ("", "Service"): (
        _NAME,
        _at("spec.type", name="Type"),
        _at("spec.clusterIP", name="Cluster-IP"),
        Column("External-IP", lambda _obj, _now: _NONE),
        Column("Port(s)", _ports),
        _AGE,
        Column("Selector", _selector("spec.selector"), priority=1),
    ),
    ("", "Event"): (
        Column("Last Seen", _last_seen),
        _at("type", "", name="Type"),
        _at("reason", "", name="Reason"),
        Column("Object", _event_object),
        _at("source.component", "", name="Source", priority=1),
        Column("Message", _message),
        Column("First Seen", lambda obj, now: since(obj.get("firstTimestamp") or obj.get("eventTime"), now), priority=1),
        _at("count", 1, "string", "Count", 1),
        Column("Name", name_of, priority=1),
    ),
    ("", "PersistentVolumeClaim"): (
        _NAME,
        Column("Status", _status),
        _at("spec.volumeName", "", name="Volume"),
        _at("status.capacity.storage", "", name="Capacity"),
        Column("Access Modes", _access_modes),
        _at("spec.storageClassName", "", name="StorageClass"),
        _at("spec.volumeAttributesClassName", _UNSET, name="VolumeAttributesClass"),
        _AGE,
        _at("spec.volumeMode", _UNSET, name="VolumeMode", priority=1),
    ),
    ("", "PersistentVolume"): (
        _NAME,
        _at("spec.capacity.storage", "", name="Capacity"),
        Column("Access Modes", _access_modes),
        _at("spec.persistentVolumeReclaimPolicy", "", name="Reclaim Policy"),
        Column("Status", _status),
        Column("Claim", _volume_claim),
        _at("spec.storageClassName", "", name="StorageClass"),
        _at("spec.volumeAttributesClassName", _UNSET, name="VolumeAttributesClass"),
        _at("status.reason", "", name="Reason"),
        _AGE,
        _at("spec.volumeMode", _UNSET, name="VolumeMode", priority=1),
    ),
    ("apps", "Deployment"): (
        _NAME,
        Column("Ready", _of("status.readyReplicas", "spec.replicas")),
        _number("Up-to-date", "status.updatedReplicas"),
        _number("Available", "status.availableReplicas"),
        _AGE,
        *_WORKLOAD,
    ),
    ("apps", "ReplicaSet"): (
        _NAME,
        _number("Desired", "spec.replicas"),
        _number("Current", "status.replicas"),
        _number("Ready", "status.readyReplicas"),
        _AGE,
        *_WORKLOAD,
    ),
    ("apps", "StatefulSet"): (_NAME, Column("Ready", _of("status.readyReplicas", "spec.replicas")), _AGE, *_WORKLOAD[:2]),
    ("apps", "DaemonSet"): (
        _NAME,
        _number("Desired", "status.desiredNumberScheduled"),
        _number("Current", "status.currentNumberScheduled"),
        _number("Ready", "status.numberReady"),
        _number("Up-to-date", "status.updatedNumberScheduled"),
        _number("Available", "status.numberAvailable"),
        Column("Node Selector", _selector("spec.template.spec.nodeSelector")),
        _AGE,
        *_WORKLOAD,
    ),
    ("batch", "Job"): (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_WORKLOAD,
    ),
    ("batch", "CronJob"): (
        _NAME,
        _at("spec.schedule", "", name="Schedule"),
        _at("spec.timeZone", name="Timezone"),
        Column("Suspend", lambda obj, _now: str(bool(find(obj, ["spec", "suspend"])))),
        Column("Active", lambda obj, _now: len(find(obj, ["status", "active"]) or ()), "integer"),
        Column("Last Schedule", lambda obj, now: since(find(obj, ["status", "lastScheduleTime"]), now)),
        _AGE,
    ),
    ("policy", "PodDisruptionBudget"): (
        _NAME,
        _at("spec.minAvailable", "N/A", name="Min Available"),
        _at("spec.maxUnavailable", "N/A", name="Max Unavailable"),
        _number("Allowed Disruptions", "status.disruptionsAllowed"),
        _AGE,
    ),
    ("coordination.k8s.io", "Lease"): (_NAME, _at("spec.holderIdentity", "", name="Holder"), _AGE),
    ("scheduling.k8s.io", "PriorityClass"): (
        _NAME,
        _number("Value", "value"),
        _at("globalDefault", False, "boolean", "Global-Default"),
        _AGE,
        _at("preemptionPolicy", "", name="PreemptionPolicy"),
    ),
    ("storage.k8s.io", "StorageClass"): (
        Column("Name", _is_default),
        _at("provisioner", "", name="Provisioner"),
        _at("reclaimPolicy", "", name="ReclaimPolicy"),
        _at("volumeBindingMode", "", name="VolumeBindingMode"),
        _at("allowVolumeExpansion", False, "boolean", "AllowVolumeExpansion"),
        _AGE,
    ),
    ("storage.k8s.io", "CSINode"): (
        _NAME,
        Column("Drivers", lambda obj, _now: len(find(obj, ["spec", "drivers"]) or ()), "integer"),
        _AGE,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (
        _NAME,
        Column("Created At", lambda obj, _now: str(obj["metadata"].get("creationTimestamp", ""))),
    ),
}
