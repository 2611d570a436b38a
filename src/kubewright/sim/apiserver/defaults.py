"""How a written object is read (`decode`), and what the server fills in (`fill`).

Source: k8s.io/kubernetes v1.36 pkg/apis/{core,apps,batch,policy}/v1/defaults.go. Defaults that nothing can see here
(probes, volume modes of projections and the like) are filled where kubectl shows them, and left out elsewhere.
"""

from typing import Any

from lightkube.models import meta_v1

from kubewright.sim.apiserver import answers, customs
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.shapes import Decoder

Item = dict[str, Any]


def decode(kind: Kind, obj: Item, *, strict: bool) -> list[str]:
    """Bring `obj` into the kind's form, and return the paths that were dropped because nobody knows them.

    Raises:
        KubeError: 400; a field has the wrong type, or `strict` and there are unknown ones.
    """
    decoder = Decoder(kind)
    if kind.custom:
        obj["metadata"] = decoder.struct(meta_v1.ObjectMeta, obj["metadata"], "metadata")
        decoder.unknown += customs.prune_and_fill(kind, obj)
    else:
        decoded = decoder.struct(kind.model, obj, "")
        obj.clear()
        obj.update(decoded)
        obj.setdefault("metadata", {})
    if decoder.unknown and strict:
        listed = ", ".join(f'unknown field "{path}"' for path in decoder.unknown)
        raise answers.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {listed}'
        )
    return decoder.unknown


def fill(kind: Kind, obj: Item) -> None:
    """Fill in what was not said, in place; custom kinds were filled when they were decoded."""
    filler = None if kind.custom else _FILLERS.get((kind.group, kind.kind))
    if filler is not None:
        filler(obj)


def _pod(obj: Item) -> None:
    spec = obj.setdefault("spec", {})
    _pod_spec(spec)
    if spec.get("hostNetwork"):
        _same_ports(spec)
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _requests_from_limits(container)
    spec.setdefault("enableServiceLinks", True)
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))


def _pod_spec(spec: Item) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        account = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _container(container)
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def _container(container: Item) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            for field, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
                probe.setdefault(field, value)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("path", "/")
                probe["httpGet"].setdefault("scheme", "HTTP")


def _same_ports(spec: Item) -> None:
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        for port in container.get("ports", ()):
            if port.get("containerPort"):
                port.setdefault("hostPort", port["containerPort"])


def _requests_from_limits(container: Item) -> None:
    limits = container["resources"].get("limits")
    if limits:
        requests = container["resources"].get("requests", {})
        container["resources"]["requests"] = {**requests, **{k: v for k, v in limits.items() if k not in requests}}


def qos_class(spec: Item) -> str:
    """Source: k8s.io/kubernetes pkg/apis/core/v1/helper/qos."""
    guaranteed, anything = True, False
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        resources = container.get("resources", {})
        requests = {k: v for k, v in (resources.get("requests") or {}).items() if k in ("cpu", "memory") and v != "0"}
        limits = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory") and v != "0"}
        anything = anything or bool(requests) or bool(limits)
        guaranteed = guaranteed and set(limits) == {"cpu", "memory"} and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _template(obj: Item) -> None:
    template = obj.setdefault("spec", {}).setdefault("template", {})
    template.setdefault("metadata", {})
    spec = template.setdefault("spec", {})
    _pod_spec(spec)
    if spec.get("hostNetwork"):
        _same_ports(spec)


def _deployment(obj: Item) -> None:
    _template(obj)
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _replica_set(obj: Item) -> None:
    _template(obj)
    obj["spec"].setdefault("replicas", 1)
    obj.setdefault("status", {}).setdefault("replicas", 0)


def _stateful_set(obj: Item) -> None:
    _template(obj)
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        _claim(claim)
    status = obj.setdefault("status", {})
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def _daemon_set(obj: Item) -> None:
    _template(obj)
    spec = obj["spec"]
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    status = obj.setdefault("status", {})
    for field in ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"):
        status.setdefault(field, 0)


def _job_spec(spec: Item) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if "podFailurePolicy" not in spec else "Failed")
    spec.setdefault("manualSelector", False)


def _job(obj: Item) -> None:
    """Also the selector and labels that the strategy generates from the UID, unless the job brings its own."""
    _template(obj)
    spec, meta = obj["spec"], obj["metadata"]
    if not spec.get("manualSelector") and "selector" not in spec and "uid" in meta:
        uid = meta["uid"]
        labels = spec["template"]["metadata"].setdefault("labels", {})
        labels |= {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": meta.get("name", ""),
            "controller-uid": uid,
            "job-name": meta.get("name", ""),
        }
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        if not meta.get("labels"):
            meta["labels"] = dict(labels)
    _job_spec(spec)


def _cron_job(obj: Item) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    _template(template)


def _budget(obj: Item) -> None:
    status = obj.setdefault("status", {})
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(field, 0)


def _claim(obj: Item) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _volume(obj: Item) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _namespace(obj: Item) -> None:
    meta = obj["metadata"]
    if meta.get("name"):
        labels = meta.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = meta["name"]
    if "deletionTimestamp" not in meta:
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _service(obj: Item) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def _storage_class(obj: Item) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _priority_class(obj: Item) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _event(obj: Item) -> None:
    for field in ("source", "involvedObject"):
        obj.setdefault(field, {})


def _secret(obj: Item) -> None:
    obj.setdefault("type", "Opaque")


def _definition(obj: Item) -> None:
    """Also what controllers of the API server write into status: the kind is served from the same write on."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    since = obj["metadata"].get("creationTimestamp")
    status = obj.setdefault("status", {})
    status["acceptedNames"] = names
    status.setdefault("storedVersions", [v.get("name", "") for v in spec.get("versions", ()) if v.get("storage")])
    status.setdefault(
        "conditions",
        [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
            {
                "type": "Established",
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
    )
    for condition in status["conditions"]:
        condition.setdefault("lastTransitionTime", since)


_FILLERS = {
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("", "Event"): _event,
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("policy", "PodDisruptionBudget"): _budget,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
}
