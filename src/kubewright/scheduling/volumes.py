"""What a pod's volumes ask of the node: a place to be attached, and a free attachment slot.

Source: spec/scheduling 4.7, 7.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from kubewright.api.meta import SelectorRequirement
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import Requirements, add, both, conflict, of_expressions

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
IN_TREE_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""Provisioners that were once part of Kubernetes → the CSI driver that took over. Source: k8s.io/csi-translation-lib."""

UNCONSTRAINED: Requirements = {}


class Storage(msgspec.Struct, frozen=True):
    """The cluster's volumes by name, as look-ups."""

    claims: Mapping[str, PersistentVolumeClaim] = {}
    """By namespace/name."""
    volumes: Mapping[str, PersistentVolume] = {}
    classes: Mapping[str, StorageClass] = {}
    aliases: Mapping[str, str] = msgspec.field(default_factory=lambda: names.ALIASES)


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Keys of the PersistentVolumeClaims a pod mounts, those of generic ephemeral volumes included, in the pod's order."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.append(f"{pod.namespace}/{pod.name}-{volume.name}")
    return tuple(found)


def dying_keys(pod: Pod) -> frozenset[str]:
    """Claims that end with the pod: where it runs already, its successor gets new ones of the same class, bound to nothing."""
    if not pod.spec.node_name:
        return frozenset()
    return frozenset(f"{pod.namespace}/{pod.name}-{v.name}" for v in pod.spec.volumes if v.ephemeral is not None)


def alternatives(
    keys: tuple[str, ...], storage: Storage, dying: frozenset[str] = frozenset()
) -> tuple[Requirements, ...] | Refusal:
    """The sets of node labels, any one of which suits all volumes; a refusal when a claim does not exist.

    Claims in `dying` are looked at as if they were not bound yet (see `dying_keys`).

    Alternatives of several volumes are multiplied; pairs that contradict each other are dropped unless all do, in which case the
    contradiction shows later as an ordinary refusal. Source: spec/scheduling 7.1.
    """
    found: list[Requirements] = [UNCONSTRAINED]
    for key in keys:
        claim = storage.claims.get(key)
        if claim is None:
            return Refusal(Because.VOLUME, "", key, "no such PersistentVolumeClaim", {"claim": key}, curable=True)
        if key in dying:
            claim = replace(claim, spec=replace(claim.spec, volume_name=""))
        options = _options(claim, storage)
        if options:
            pairs = [(a, b) for a in found for b in options]
            agreeing = [(a, b) for a, b in pairs if conflict(a, b) is None]
            found = [both(a, b) for a, b in agreeing or pairs]
    return tuple(found)


def driver_of(key: str, storage: Storage) -> str:
    """Name of the CSI driver whose attachment slots the claim uses, "" when none counts. Source: spec/scheduling 4.7."""
    claim = storage.claims.get(key)
    if claim is None:
        return ""
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return ""
        if volume.spec.csi is not None:
            return volume.spec.csi.driver
        return IN_TREE_DRIVERS["kubernetes.io/aws-ebs"] if volume.spec.aws_elastic_block_store is not None else ""
    kind = storage.classes.get(claim.spec.storage_class_name or "")
    return IN_TREE_DRIVERS.get(kind.provisioner, kind.provisioner) if kind is not None else ""


def invalid(keys: tuple[str, ...], storage: Storage) -> Refusal | None:
    """Why the first bad claim keeps its pod out of this pass. Source: spec/scheduling 7.3."""
    for key in keys:
        refusal = _invalid(key, storage)
        if refusal is not None:
            return refusal
    return None


def _invalid(key: str, storage: Storage) -> Refusal | None:
    def no(found: str, **facts: str) -> Refusal:
        return Refusal(Because.VOLUME, "", key, found, {"PersistentVolumeClaim": key, **facts})

    claim = storage.claims.get(key)
    if claim is None:
        return no(f'persistentvolumeclaims "{key.rpartition("/")[2]}" not found')
    if claim.metadata.deletion_timestamp is not None:
        return no("persistentvolumeclaim is being deleted")
    if claim.status.phase == "Lost":
        return no("persistentvolumeclaim bound to non-existent persistentvolume")
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        fact = {"PersistentVolume": claim.spec.volume_name}
        if volume is None:
            return no(f'failed to validate pvc, persistentvolumes "{claim.spec.volume_name}" not found', **fact)
        if volume.metadata.deletion_timestamp is not None:
            return no("failed to validate pvc, persistentvolume is being deleted", **fact)
        if BIND_COMPLETED not in claim.metadata.annotations:
            return no("pvc is considered unbound because it does not contain annotation", annotation=BIND_COMPLETED)
        return None
    name = claim.spec.storage_class_name
    if not name:
        return no("unbound pvc must define a storage class")
    kind = storage.classes.get(name)
    if kind is None:
        found = f'failed to validate pvc, failed to get storage class, storageclasses.storage.k8s.io "{name}" not found'
        return no(found, StorageClass=name)
    if kind.volume_binding_mode == "Immediate":
        return no("failed to validate pvc, pvc with immediate volume binding mode must be bound", StorageClass=name)
    return None


def _options(claim: PersistentVolumeClaim, storage: Storage) -> list[Requirements]:
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        return _volume_options(volume, storage.aliases) if volume is not None else []
    kind = storage.classes.get(claim.spec.storage_class_name or "")
    if kind is None:
        return []
    options: list[Requirements] = []
    for term in kind.allowed_topologies:
        option: dict[str, Requirement] = {}
        for e in term.match_label_expressions:
            add(option, Requirement(names.normalize(e.key, storage.aliases), frozenset(e.values)))
        options.append(option)
    return options


def _volume_options(volume: PersistentVolume, aliases: Mapping[str, str]) -> list[Requirements]:
    if volume.spec.node_affinity is None or volume.spec.node_affinity.required is None:
        return []
    pinned_to_host = volume.spec.local is not None or volume.spec.host_path is not None
    options: list[Requirements] = []
    for term in volume.spec.node_affinity.required.node_selector_terms:
        wanted: tuple[SelectorRequirement, ...] = term.match_expressions
        if not wanted:
            continue
        if pinned_to_host:
            wanted = tuple(e for e in wanted if names.normalize(e.key, aliases) != names.HOSTNAME)
        options.append(of_expressions(wanted, aliases))
    return options
