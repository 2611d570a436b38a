"""Volumes of the shorthand: claims that are bound to a zone, new ones, and ephemeral ones."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    AllowedTopology,
    AllowedTopologyExpression,
    CsiSource,
    EphemeralSource,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeClaimTemplate,
    PersistentVolumeSpec,
    Pod,
    PodSpec,
    StorageClass,
    Volume,
    VolumeNodeAffinity,
)
from kubewright.api.meta import ObjectMeta, SelectorRequirement
from kubewright.scheduling.volumes import BIND_COMPLETED

DRIVER = "ebs"
STANDARD = "standard"


class Volumes:
    """Everything about storage that a case's pods bring with them."""

    def __init__(self) -> None:
        self.claims: list[PersistentVolumeClaim] = []
        self.volumes: list[PersistentVolume] = []
        self.classes: dict[str, StorageClass] = {}
        self.add_class({"name": STANDARD})

    def add_class(self, written: Mapping[str, Any]) -> None:
        odd = set(written) - {"name", "allowedTopologies", "binding"}
        assert not odd, f"storageClass {written}: unknown words {sorted(odd)}"
        terms = tuple(
            AllowedTopology(match_label_expressions=(AllowedTopologyExpression(key=k, values=tuple(v)),))
            for term in written.get("allowedTopologies", ())
            for k, v in term.items()
        )
        self.classes[written["name"]] = StorageClass(
            metadata=ObjectMeta(name=written["name"]),
            provisioner=DRIVER,
            volume_binding_mode=written.get("binding", "WaitForFirstConsumer"),
            allowed_topologies=terms,
        )

    def mounted(self, pod: Pod, line: Mapping[str, Any]) -> PodSpec:
        """The pod's spec with the volumes that the line asks for."""
        wanted: list[Any] = [line["pvc"]] if "pvc" in line else []
        listed = line.get("pvcs", [])
        wanted += ["new"] * listed if isinstance(listed, int) else listed
        mounts: list[Volume] = []
        for i, one in enumerate(wanted, 1):
            name = f"{pod.name}-pvc-{i}" if line.get("n", 1) > 1 else f"pvc-{i}" if len(wanted) > 1 else f"{pod.name}-pvc"
            self._claim(name, pod, one)
            mounts.append(Volume(name=f"v{i}", persistent_volume_claim=PersistentVolumeClaimSource(claim_name=name)))
        if "ephemeral" in line:
            self._claim(f"{pod.name}-scratch", pod, line["ephemeral"])
            kind = line["ephemeral"].get("storageClass", STANDARD)
            template = PersistentVolumeClaimTemplate(spec=PersistentVolumeClaimSpec(storage_class_name=kind))
            mounts.append(Volume(name="scratch", ephemeral=EphemeralSource(volume_claim_template=template)))
        return replace(pod.spec, volumes=tuple(mounts)) if mounts else pod.spec

    def _claim(self, name: str, pod: Pod, written: Any) -> None:
        how = {"new": True} if written == "new" else dict(written)
        odd = set(how) - {"new", "bound", "zone", "storageClass", "binding"}
        assert not odd, f"pvc {written}: unknown words {sorted(odd)}"
        zone = how.get("bound", how.get("zone"))
        volume = f"pv-{name}" if zone else ""
        self.claims.append(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=name, namespace=pod.namespace, annotations={BIND_COMPLETED: "yes"} if zone else {}),
                spec=PersistentVolumeClaimSpec(storage_class_name=how.get("storageClass", STANDARD), volume_name=volume),
                status=PersistentVolumeClaimStatus(phase="Bound" if zone else "Pending"),
            )
        )
        if zone:
            self._volume(volume, zone)

    def _volume(self, name: str, zone: str) -> None:
        term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ZONE, operator="In", values=(zone,)),))
        required = NodeSelector(node_selector_terms=(term,))
        self.volumes.append(
            PersistentVolume(
                metadata=ObjectMeta(name=name),
                spec=PersistentVolumeSpec(node_affinity=VolumeNodeAffinity(required=required), csi=CsiSource(driver=DRIVER)),
            )
        )
