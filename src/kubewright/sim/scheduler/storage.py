"""The filters that ask about volumes: bound ones by their node affinity, unbound ones by what could be bound, and attach limits.

Source: k8s.io/kubernetes v1.36 pkg/scheduler/framework/plugins/{volumebinding,volumezone,volumerestrictions,nodevolumelimits}.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubewright.api import quantity, selectors
from kubewright.api.core import NodeSelector
from kubewright.api.meta import LabelSelector
from kubewright.sim.objects import Item, Key, is_terminating
from kubewright.sim.scheduler import filters
from kubewright.sim.scheduler.filters import Reasons
from kubewright.sim.scheduler.nodes import NodeState
from kubewright.sim.scheduler.pods import PodFacts
from kubewright.sim.view import View

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
ZONE_CONFLICT = "node(s) had no available volume zone"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
ONCE_POD = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class Storage:
    """Claims, volumes, classes and attach limits, as the store has them now."""

    def __init__(self, view: View) -> None:
        self._view = view

    def refuses_everywhere(self, pod: PodFacts, users: Mapping[Key, int]) -> str:
        """Why no node at all would do, or "". `users`: how many scheduled pods use a claim."""
        for name, ephemeral in pod.claims:
            claim = self.claim(pod, name)
            if claim is None:
                if ephemeral:
                    return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                return f'persistentvolumeclaim "{name}" not found'
            if claim.get("status", {}).get("phase") == "Lost":
                return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{_volume_name(claim)}"'
            if is_terminating(claim):
                return f'persistentvolumeclaim "{name}" is being deleted'
            if "ReadWriteOncePod" in claim["spec"].get("accessModes", ()) and users.get((pod.namespace, name)):
                return ONCE_POD
        if any(not self._bound(c) and not self._waits_for_consumer(c) for c in self._claims(pod)):
            return UNBOUND_IMMEDIATE
        return ""

    def refuses(self, pod: PodFacts, node: NodeState) -> Reasons:
        """Attach limits, then bound volumes, then what would have to be bound; the first that says no."""
        if self._too_many(pod, node):
            return (TOO_MANY_VOLUMES,)
        reasons: list[str] = []
        taken: set[str] = set()
        for claim in self._claims(pod):
            if self._bound(claim):
                reason = self._refuses_bound(claim, node)
            else:
                reason = "" if self.provision(claim, node, taken) is not None else NOTHING_TO_BIND
            if reason and reason not in reasons:
                reasons.append(reason)
        return tuple(reasons)

    def unbound(self, pod: PodFacts) -> list[Item]:
        return [claim for claim in self._claims(pod) if not self._bound(claim)]

    def provision(self, claim: Item, node: NodeState, taken: set[str]) -> str | None:
        """The name of a volume there is for an unbound claim on `node`, "" where one can be made; None for neither.

        A volume that is named is added to `taken`.
        """
        for volume in self.available(claim):
            name = volume["metadata"]["name"]
            if name not in taken and not _affinity_refuses(volume, node):
                taken.add(name)
                return str(name)
        kind = self._class(claim)
        if kind is None or kind.get("provisioner", NO_PROVISIONER) == NO_PROVISIONER:
            return None
        terms = kind.get("allowedTopologies") or ()
        allowed = not terms or any(
            all(node.labels.get(e["key"]) in e.get("values", ()) for e in term.get("matchLabelExpressions", ())) for term in terms
        )
        return "" if allowed else None

    def claim(self, pod: PodFacts, name: str) -> Item | None:
        return self._view.get("v1", "PersistentVolumeClaim", (pod.namespace, name))

    def _claims(self, pod: PodFacts) -> list[Item]:
        found = (self.claim(pod, name) for name, _ in pod.claims)
        return [claim for claim in found if claim is not None]

    @staticmethod
    def _bound(claim: Item) -> bool:
        return bool(_volume_name(claim)) and claim.get("status", {}).get("phase") == "Bound"

    def _waits_for_consumer(self, claim: Item) -> bool:
        kind = self._class(claim)
        return not _volume_name(claim) and kind is not None and kind.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _class(self, claim: Item) -> Item | None:
        name = claim["spec"].get("storageClassName")
        return self._view.get("storage.k8s.io/v1", "StorageClass", ("", name)) if name else None

    def _volume(self, claim: Item) -> Item | None:
        return self._view.get("v1", "PersistentVolume", ("", _volume_name(claim)))

    def _refuses_bound(self, claim: Item, node: NodeState) -> str:
        volume = self._volume(claim)
        if volume is None:
            return VOLUME_GONE
        if _affinity_refuses(volume, node):
            return NODE_CONFLICT
        labels = volume["metadata"].get("labels") or {}
        for key in _ZONE_LABELS:
            if key in labels and node.labels.get(key) not in labels[key].split("__"):
                return ZONE_CONFLICT
        return ""

    def available(self, claim: Item) -> list[Item]:
        """Volumes that would do for an unbound claim, smallest first. Source: k8s.io/component-helpers FindMatchingVolume."""
        spec = claim["spec"]
        wanted = quantity.parse(spec.get("resources", {}).get("requests", {}).get("storage", 0))
        selector = msgspec.convert(spec["selector"], LabelSelector) if spec.get("selector") else None
        fitting: list[tuple[int, str, Item]] = []
        for volume in self._view.objects("v1", "PersistentVolume"):
            offer = volume["spec"]
            reference = offer.get("claimRef")
            mine = reference and (reference.get("namespace"), reference.get("name")) == (
                claim["metadata"]["namespace"],
                claim["metadata"]["name"],
            )
            size = quantity.parse(offer.get("capacity", {}).get("storage", 0))
            if (
                (reference and not mine)
                or is_terminating(volume)
                or volume.get("status", {}).get("phase") in ("Released", "Failed")
                or (offer.get("storageClassName") or "") != (spec.get("storageClassName") or "")
                or offer.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem")
                or not set(spec.get("accessModes", ())) <= set(offer.get("accessModes", ()))
                or size < wanted
                or (selector is not None and not selectors.matches(selector, volume["metadata"].get("labels") or {}))
            ):
                continue
            fitting.append((size, volume["metadata"]["name"], volume))
        return [volume for _, _, volume in sorted(fitting, key=lambda f: f[:2])]

    # attach limits

    def _too_many(self, pod: PodFacts, node: NodeState) -> bool:
        if not pod.claims:
            return False
        limits = self._limits(node.name)
        if not limits:
            return False
        attached: set[tuple[str, str]] = set()
        for other in node.pods.values():
            attached.update(self._handles(other))
        for attachment in self._view.objects("storage.k8s.io/v1", "VolumeAttachment"):
            spec = attachment["spec"]
            if spec.get("nodeName") == node.name and (name := spec.get("source", {}).get("persistentVolumeName")):
                volume = self._view.get("v1", "PersistentVolume", ("", name))
                if volume is not None and "csi" in volume["spec"]:
                    attached.add(_handle(volume))
        new = set(self._handles(pod)) - attached
        return any(
            any(d == driver for d, _ in new) and sum(d == driver for d, _ in attached | new) > limit
            for driver, limit in sorted(limits.items())
        )

    def _limits(self, node: str) -> dict[str, int]:
        csi = self._view.get("storage.k8s.io/v1", "CSINode", ("", node)) or {}
        return {
            d["name"]: d["allocatable"]["count"]
            for d in csi.get("spec", {}).get("drivers") or ()
            if (d.get("allocatable") or {}).get("count") is not None
        }

    def _handles(self, pod: PodFacts) -> Sequence[tuple[str, str]]:
        """(driver, unique name) of each CSI volume; one still to be made counts under its claim's name."""
        found: list[tuple[str, str]] = []
        for claim in self._claims(pod):
            volume = self._volume(claim) if _volume_name(claim) else None
            if volume is not None:
                if "csi" in volume["spec"]:
                    found.append(_handle(volume))
            elif (kind := self._class(claim)) is not None and kind.get("provisioner", NO_PROVISIONER) != NO_PROVISIONER:
                found.append((kind["provisioner"], "/".join((claim["metadata"]["namespace"], claim["metadata"]["name"]))))
        return found


def _volume_name(claim: Mapping[str, Any]) -> str:
    return str(claim["spec"].get("volumeName") or "")


def _handle(volume: Item) -> tuple[str, str]:
    csi = volume["spec"]["csi"]
    return csi["driver"], csi["volumeHandle"]


def _affinity_refuses(volume: Item, node: NodeState) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is not None and not filters.selects(msgspec.convert(required, NodeSelector), node)
