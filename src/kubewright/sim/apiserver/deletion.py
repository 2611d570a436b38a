"""What holds a deleted object, and for how long: preconditions, grace periods, finalizers.

Source: k8s.io/apiserver pkg/registry/generic/registry/store.go and rest/delete.go.
"""

from datetime import datetime, timedelta

from kubewright.sim.apiserver import answers
from kubewright.sim.apiserver.kinds import Kind
from kubewright.sim.apiserver.table import Item

_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


def stamp(moment: datetime) -> str:
    """metav1.Time: whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def mark(kind: Kind, new: Item, grace_s: int, now: datetime) -> None:
    """Mark `new` as being deleted, in place; a grace period only ever gets shorter."""
    meta = new["metadata"]
    left = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in meta and (left is None or left <= grace_s):
        return
    first = "deletionTimestamp" not in meta
    meta["deletionTimestamp"] = stamp(now + timedelta(seconds=grace_s))
    meta["deletionGracePeriodSeconds"] = grace_s
    if first and meta.get("generation"):
        meta["generation"] += 1
    if kind.kind == "Namespace" and not kind.group:
        new.setdefault("status", {})["phase"] = "Terminating"


def may_go(kind: Kind, new: Item, old: Item) -> bool:
    """Whether this update took away the last thing that held a deleted object."""
    meta = new["metadata"]
    if "deletionTimestamp" not in old["metadata"] or meta.get("finalizers"):
        return False
    if kind.kind == "Namespace" and not kind.group and new.get("spec", {}).get("finalizers"):
        return False
    return not old["metadata"].get("deletionGracePeriodSeconds")


def check_preconditions(kind: Kind, old: Item, uid: str, resource_version: str) -> None:
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        raise answers.deletion_conflict(
            kind,
            meta["name"],
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if resource_version and resource_version != meta["resourceVersion"]:
        raise answers.deletion_conflict(
            kind,
            meta["name"],
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified",
        )


def grace(kind: Kind, old: Item, asked: int | None) -> int:
    """Seconds that a deleted pod has left. Source: k8s.io/kubernetes pkg/registry/core/pod strategy CheckGracefulDelete."""
    if kind.kind != "Pod" or kind.group:
        return 0
    spec = old.get("spec", {})
    period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    if not spec.get("nodeName") or old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(period) if period >= 0 else 1


def finalizers_for(old: Item, propagation: str) -> list[str]:
    """The finalizers that make the garbage collector do as asked."""
    current = list(old["metadata"].get("finalizers", []))
    if not propagation:
        return current
    kept = [f for f in current if f not in (_ORPHAN, _FOREGROUND)]
    if propagation == "Orphan":
        return [*kept, _ORPHAN]
    if propagation == "Foreground":
        return [*kept, _FOREGROUND]
    return kept
