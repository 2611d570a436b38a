"""Small questions asked of wire objects by every pretend controller, in the words of the API."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kubewright.api import duration

Item = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace is "" for cluster-scoped kinds."""

LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_REGION = "topology.kubernetes.io/region"

SIM_DURATION = "kubewright.sh/sim-duration"
"""Pod annotation: how long the containers of a pod that may end run before they exit, as a Go duration (`90s`)."""

SIM_EXIT_CODE = "kubewright.sh/sim-exit-code"
"""Pod annotation: what those containers exit with; "0" when absent."""

SIM_STOP = "kubewright.sh/sim-stop-duration"
"""Pod annotation: how long the containers take to stop when asked, as a Go duration; the grace period cuts it short."""


def key_of(obj: Mapping[str, Any]) -> Key:
    meta = obj["metadata"]
    return str(meta.get("namespace", "")), str(meta["name"])


def stamp(moment: datetime) -> str:
    """metav1.Time: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """The date that a wire timestamp names."""
    return datetime.fromisoformat(text).astimezone(UTC)


def condition(obj: Mapping[str, Any], kind: str) -> Item | None:
    return next((c for c in obj.get("status", {}).get("conditions") or () if c["type"] == kind), None)


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def with_condition(
    conditions: Iterable[Item], kind: str, status: str, now: datetime, *, reason: str = "", message: str = "", **more: Any
) -> list[Item]:
    """`conditions` with this one set; its transition time moves only when its status does."""
    kept = list(conditions)
    old = next((c for c in kept if c["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == status and "lastTransitionTime" in old else stamp(now)
    new: Item = {"type": kind, "status": status, "lastTransitionTime": since}
    new |= {field: text for field, text in (("reason", reason), ("message", message)) if text}
    new |= more
    if old is None:
        return [*kept, new]
    return [new if c is old else c for c in kept]


def is_terminal(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_active(pod: Mapping[str, Any]) -> bool:
    """Neither ended nor being deleted. Source: k8s.io/kubernetes pkg/controller IsPodActive."""
    return not is_terminal(pod) and not is_terminating(pod)


def is_ready(pod: Mapping[str, Any]) -> bool:
    return is_true(pod, "Ready")


def available_in_s(pod: Mapping[str, Any], min_ready_s: float, now: datetime) -> float | None:
    """Seconds until a ready pod counts as available, 0 when it does now; None when it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready["status"] != "True":
        return None
    if not min_ready_s:
        return 0.0
    return max(0.0, min_ready_s - (now - moment(ready["lastTransitionTime"])).total_seconds())


def controller_of(obj: Mapping[str, Any]) -> Item | None:
    """The ownerReference that manages the object."""
    return next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def controller_reference(owner: Mapping[str, Any]) -> Item:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def seconds(obj: Mapping[str, Any], annotation: str, default_s: float) -> float:
    """The Go duration in an annotation, in seconds.

    Raises:
        ValueError: it is not a duration; the message names the object and the annotation.
    """
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return default_s
    try:
        return duration.parse(text).total_seconds()
    except ValueError as error:
        name = "/".join(part for part in key_of(obj) if part)
        raise ValueError(
            f"{obj.get('kind', 'object')} {name}: annotation {annotation}: {error}; write for example 90s"
        ) from error


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """An absolute number, or a percentage of `total` rounded up or down.

    Source: k8s.io/apimachinery intstr.GetScaledValueFromIntOrPercent.
    """
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if up else percent * total // 100
