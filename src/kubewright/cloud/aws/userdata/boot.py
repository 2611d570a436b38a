"""What every family's user data says, before it is put into that family's words. Source: spec/aws 4.2."""

from collections.abc import Mapping, Sequence

import msgspec

from kubewright.api import labels
from kubewright.api.core import Taint
from kubewright.api.karpenter import NodeClaim
from kubewright.errors import CloudError

_KUBELET_MAY_NOT = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")


class UserDataError(CloudError):
    """The NodeClass's userData cannot be used; the text names the field, what was found and the mend."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet is told."""

    cluster_name: str
    endpoint: str
    ca_bundle: str
    """Base64."""
    service_cidr: str = ""
    cluster_dns: tuple[str, ...] = ()
    max_pods: int
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    raid0: bool = False
    image_name: str = ""
    """Of the AMI, which may tell its version."""


def node_labels(claim: NodeClaim, capacity_type: str, *, custom: bool = False) -> dict[str, str]:
    """The NodeClaim's labels that a kubelet may set on its own node; the rest is synced after registration."""
    found = {**claim.metadata.labels, labels.CAPACITY_TYPE: capacity_type}
    if not custom:
        found[labels.DO_NOT_SYNC_TAINTS] = "true"
    return {key: value for key, value in sorted(found.items()) if not _is_reserved(labels.domain_of(key))}


def node_taints(claim: NodeClaim) -> tuple[Taint, ...]:
    """Taints, startup taints, and the one that keeps pods away until registration."""
    found = [*claim.spec.taints, *claim.spec.startup_taints]
    if not any(t.key == labels.UNREGISTERED_TAINT.key and t.effect == labels.UNREGISTERED_TAINT.effect for t in found):
        found.append(labels.UNREGISTERED_TAINT)
    return tuple(found)


def _is_reserved(domain: str) -> bool:
    return any(domain == d or domain.endswith("." + d) for d in _KUBELET_MAY_NOT)


def pairs(found: Mapping[str, str], join: str = "=") -> str:
    return ",".join(f"{key}{join}{value}" for key, value in sorted(found.items()))


def taint_lines(taints: Sequence[Taint]) -> list[dict[str, str]]:
    return [{"effect": t.effect, "key": t.key, **({"value": t.value} if t.value else {})} for t in taints]
