"""Volume controllers: claims are made, provisioned and bound, volumes are attached to nodes and detached, and set free.

Stands for the ephemeral-volume, persistent-volume and attach-detach controllers and for every CSI provisioner. A provisioned
volume lives in one zone: the chosen node's, or for immediate binding the first that its class allows and the cluster has.
"""

import hashlib

import msgspec

from kubewright.errors import AlreadyExists, NotFound
from kubewright.sim.objects import (
    LABEL_ZONE,
    Item,
    Key,
    controller_reference,
    is_terminal,
    is_terminating,
    key_of,
)
from kubewright.sim.runtime import Reconciler, Runtime
from kubewright.sim.scheduler.pods import facts
from kubewright.sim.scheduler.storage import NO_PROVISIONER, SELECTED_NODE, Storage

NAME = "persistentvolume-controller"
_EBS, _EBS_ZONE = "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"
_BOUND_BY = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class VolumeDelays(msgspec.Struct, frozen=True):
    provision_s: float = 2.0
    """From a claim that may be provisioned to its volume."""
    detach_s: float = 2.0
    """From the last pod that used a volume on a node to the end of its VolumeAttachment."""


class Claims(Reconciler):
    """PersistentVolumeClaims, and the volumes made for them."""

    def __init__(self, runtime: Runtime, delays: VolumeDelays) -> None:
        self._delay_s = delays.provision_s
        self._since: dict[str, float] = {}
        super().__init__(runtime)
        self._storage = Storage(self.view)

    def start(self) -> None:
        self.view.on("PersistentVolumeClaim", self._claim_changed)
        self.view.on("PersistentVolume", self._volume_changed)
        self.view.on("StorageClass", self._all)
        self.view.on("Node", self._node_changed)

    def _claim_changed(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            assert before is not None
            self._since.pop(before["metadata"]["uid"], None)
            self._release(before)
        else:
            self.enqueue(key_of(after))

    def _volume_changed(self, before: Item | None, after: Item | None) -> None:
        reference = ((after or before or {}).get("spec") or {}).get("claimRef")
        if reference:
            self.enqueue((reference["namespace"], reference["name"]))
        elif after is not None:
            self._all(before, after)

    def _node_changed(self, before: Item | None, after: Item | None) -> None:
        if before is None or after is None:
            self._all(before, after)

    def _all(self, before: Item | None, after: Item | None) -> None:
        del before, after
        for claim in self.view.objects("v1", "PersistentVolumeClaim"):
            if (claim.get("status") or {}).get("phase") != "Bound":
                self.enqueue(key_of(claim))

    def reconcile(self, key: Key) -> None:
        claim = self.view.get("v1", "PersistentVolumeClaim", key)
        if claim is None or is_terminating(claim):
            return
        phase = (claim.get("status") or {}).get("phase")
        if claim["spec"].get("volumeName"):
            volume = self.view.get("v1", "PersistentVolume", ("", claim["spec"]["volumeName"]))
            if volume is None:
                if phase == "Bound":
                    self.store.patch("v1", "PersistentVolumeClaim", *key, {"status": {"phase": "Lost"}}, "status")
            elif phase != "Bound":
                self._bind(claim, volume)
            return
        volume = self._promised(claim)
        if volume is None:
            volume = self._chosen(claim)
        if volume is not None:
            self._bind(claim, volume)

    def _promised(self, claim: Item) -> Item | None:
        """The volume whose claimRef names this claim already."""
        for volume in self.view.objects("v1", "PersistentVolume"):
            reference = volume["spec"].get("claimRef") or {}
            same = (reference.get("namespace"), reference.get("name")) == key_of(claim)
            if same and reference.get("uid", claim["metadata"]["uid"]) == claim["metadata"]["uid"]:
                return volume
        return None

    def _chosen(self, claim: Item) -> Item | None:
        """A volume there is, for immediate binding; else one made now, when it is known where and it took its time."""
        kind = self._class(claim)
        waits = kind is not None and kind.get("volumeBindingMode") == "WaitForFirstConsumer"
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if waits and not selected:
            return None
        if not waits and (found := self._storage.available(claim)):
            return found[0]
        if kind is None or kind.get("provisioner", NO_PROVISIONER) == NO_PROVISIONER:
            return None
        zone = self._zone(kind, selected)
        if zone is None:
            return None
        since = self._since.setdefault(claim["metadata"]["uid"], self.runtime.now_s())
        left_s = since + self._delay_s - self.runtime.now_s()
        if left_s > 1e-9:
            self.after(left_s, key_of(claim))
            return None
        return self._provision(claim, kind, zone)

    def _class(self, claim: Item) -> Item | None:
        name = claim["spec"].get("storageClassName")
        return self.view.get("storage.k8s.io/v1", "StorageClass", ("", name)) if name else None

    def _zone(self, kind: Item, selected: str | None) -> str | None:
        """The zone to make a volume in, "" where nodes have none; None: not yet."""
        nodes = self.view.objects("v1", "Node")
        if selected is not None:
            node = self.view.get("v1", "Node", ("", selected))
            return None if node is None else str((node["metadata"].get("labels") or {}).get(LABEL_ZONE, ""))
        allowed = sorted(
            value
            for term in kind.get("allowedTopologies") or ()
            for e in term.get("matchLabelExpressions") or ()
            if e["key"] in (LABEL_ZONE, _EBS_ZONE)
            for value in e.get("values") or ()
        )
        zones = sorted({(n["metadata"].get("labels") or {}).get(LABEL_ZONE, "") for n in nodes})
        if allowed:
            return str(next((z for z in zones if z in allowed), allowed[0]))
        return str(zones[0]) if zones else None

    def _provision(self, claim: Item, kind: Item, zone: str) -> Item | None:
        uid, provisioner = claim["metadata"]["uid"], kind["provisioner"]
        name = f"pvc-{uid}"
        spec = claim["spec"]
        volume: Item = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {_PROVISIONED_BY: provisioner}},
            "spec": {
                "capacity": {"storage": spec.get("resources", {}).get("requests", {}).get("storage", "1Gi")},
                "accessModes": spec.get("accessModes", ["ReadWriteOnce"]),
                "persistentVolumeReclaimPolicy": kind.get("reclaimPolicy", "Delete"),
                "storageClassName": kind["metadata"]["name"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "claimRef": _reference(claim),
                "csi": {"driver": provisioner, "volumeHandle": "vol-0" + hashlib.sha256(uid.encode()).hexdigest()[:16]},
            },
        }
        if zone:
            key = _EBS_ZONE if provisioner == _EBS and self._nodes_know(_EBS_ZONE) else LABEL_ZONE
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        try:
            made = self.store.create(volume)
        except AlreadyExists:
            return self.view.get("v1", "PersistentVolume", ("", name))
        self.runtime.events.tell(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}", provisioner)
        return made

    def _nodes_know(self, label: str) -> bool:
        return any(label in (n["metadata"].get("labels") or {}) for n in self.view.objects("v1", "Node"))

    def _bind(self, claim: Item, volume: Item) -> None:
        name, key = volume["metadata"]["name"], key_of(claim)
        body: Item = {"metadata": {"annotations": {_BOUND_BY: "yes"}}, "spec": {"claimRef": _reference(claim)}}
        self.store.patch("v1", "PersistentVolume", "", name, body)
        self.store.patch("v1", "PersistentVolume", "", name, {"status": {"phase": "Bound"}}, "status")
        named = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}}
        self.store.patch("v1", "PersistentVolumeClaim", *key, named)
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes", []),
            "capacity": volume["spec"].get("capacity", {}),
        }
        self.store.patch("v1", "PersistentVolumeClaim", *key, {"status": status}, "status")

    def _release(self, claim: Item) -> None:
        """A claim is gone: its volume goes too, or waits for an administrator."""
        name = claim["spec"].get("volumeName")
        volume = self.view.get("v1", "PersistentVolume", ("", name)) if name else None
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy", "Retain") == "Delete":
            self.store.delete("v1", "PersistentVolume", "", name)
        else:
            self.store.patch("v1", "PersistentVolume", "", name, {"status": {"phase": "Released"}}, "status")


class EphemeralClaims(Reconciler):
    """Makes the claims of pods' ephemeral volumes."""

    def start(self) -> None:
        self.view.on("Pod", self._pod_changed)

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        if before is None and after is not None and any("ephemeral" in v for v in after["spec"].get("volumes") or ()):
            self.enqueue(key_of(after))

    def reconcile(self, key: Key) -> None:
        pod = self.view.get("v1", "Pod", key)
        if pod is None or is_terminating(pod) or is_terminal(pod):
            return
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if template is None:
                continue
            meta = dict(template.get("metadata") or {})
            meta |= {"name": f"{key[1]}-{volume['name']}", "namespace": key[0]}
            meta["ownerReferences"] = [{**controller_reference(pod), "apiVersion": "v1", "kind": "Pod"}]
            if self.view.get("v1", "PersistentVolumeClaim", key_of({"metadata": meta})) is None:
                claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"]}
                self.store.create(claim)


class Attachments(Reconciler):
    """A VolumeAttachment for every CSI volume on every node where a pod uses it. Keys are (node, volume)."""

    def __init__(self, runtime: Runtime, delays: VolumeDelays) -> None:
        self._delay_s = delays.detach_s
        self._unused_since: dict[Key, float] = {}
        super().__init__(runtime)
        self._storage = Storage(self.view)

    def start(self) -> None:
        self.view.on("Pod", self._pod_changed)

    def _pod_changed(self, before: Item | None, after: Item | None) -> None:
        for obj in (before, after):
            if obj is not None and (node := obj["spec"].get("nodeName")) and obj["spec"].get("volumes"):
                for volume in self._volumes(obj):
                    self.enqueue((node, volume))

    def _volumes(self, pod: Item) -> list[str]:
        found: list[str] = []
        asked = facts(pod)
        for name, _ in asked.claims:
            claim = self._storage.claim(asked, name)
            volume = (claim or {}).get("spec", {}).get("volumeName")
            if volume and "csi" in (self.view.get("v1", "PersistentVolume", ("", volume)) or {"spec": {}})["spec"]:
                found.append(volume)
        return found

    def reconcile(self, key: Key) -> None:
        node, volume = key
        name = "csi-" + hashlib.sha256(f"{volume}/{node}".encode()).hexdigest()
        attachment = self.view.get("storage.k8s.io/v1", "VolumeAttachment", ("", name))
        used = any(not is_terminal(p) and volume in self._volumes(p) for p in self.view.pods_on(node))
        if used:
            self._unused_since.pop(key, None)
            if attachment is None:
                self._attach(name, node, volume)
            return
        if attachment is None:
            return
        left_s = self._unused_since.setdefault(key, self.runtime.now_s()) + self._delay_s - self.runtime.now_s()
        if left_s > 1e-9:
            self.after(left_s, key)
            return
        self._unused_since.pop(key, None)
        try:
            self.store.delete("storage.k8s.io/v1", "VolumeAttachment", "", name)
        except NotFound:
            return  # somebody was faster

    def _attach(self, name: str, node: str, volume: str) -> None:
        obj = self.view.get("v1", "PersistentVolume", ("", volume))
        if obj is None:
            return
        spec = {"attacher": obj["spec"]["csi"]["driver"], "nodeName": node, "source": {"persistentVolumeName": volume}}
        self.store.create(
            {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec}
        )
        self.store.patch("storage.k8s.io/v1", "VolumeAttachment", "", name, {"status": {"attached": True}}, "status")


def _reference(claim: Item) -> Item:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "uid": claim["metadata"]["uid"],
    }
