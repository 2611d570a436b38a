"""Bottlerocket: TOML settings, the user's tables kept, ours winning where both speak. Source: spec/aws 4.5.

Different from the reference on purpose: settings under `settings.kubernetes` that it does not know are kept, not dropped.
"""

import re
import tomllib
from typing import Any

from kubewright.api.aws import EC2NodeClassSpec, Kubelet
from kubewright.cloud.aws.userdata import toml
from kubewright.cloud.aws.userdata.boot import Boot, UserDataError

BINDS_BY_ITSELF = (1, 46, 0)
"""From this version on the directories to bind need not be named. Source: spec/aws 4.5."""
_DIRS = ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def mount(spec: EC2NodeClassSpec, image_name: str) -> dict[str, Any]:
    """The command that makes the local disks one and puts pods' files there."""
    bind = ["apiclient", "ephemeral-storage", "bind"]
    if not _binds_by_itself(spec, image_name):
        bind += _DIRS
    return {"essential": True, "mode": "always", "commands": [["apiclient", "ephemeral-storage", "init"], bind]}


def _binds_by_itself(spec: EC2NodeClassSpec, image_name: str) -> bool:
    """An image whose version nobody tells is taken for an old one; the long form works on all."""
    alias = next((t.alias for t in spec.ami_selector_terms if t.alias), "")
    wanted = alias.partition("@")[2]
    if wanted == "latest":
        return True
    names = [wanted, *(t.name for t in spec.ami_selector_terms), image_name]
    found = next((m for name in names if (m := _VERSION.search(name))), None)
    return found is not None and (int(found[1]), int(found[2]), int(found[3])) >= BINDS_BY_ITSELF


def render(written: str, spec: EC2NodeClassSpec, boot: Boot) -> str:
    """Raises UserDataError: the user's part is not TOML, or has a value where a table belongs."""
    try:
        document = tomllib.loads(written)
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(f"spec.userData: not TOML, which Bottlerocket needs ({error})") from error
    settings = _inner(document, "settings", "settings")
    kubernetes = _inner(settings, "kubernetes", "settings.kubernetes")
    kubernetes |= {"cluster-name": boot.cluster_name, "api-server": boot.endpoint, "cluster-certificate": boot.ca_bundle}
    kubernetes["max-pods"] = boot.max_pods
    dns = (spec.kubelet.cluster_dns if spec.kubelet else None) or boot.cluster_dns
    if dns:
        kubernetes["cluster-dns-ip"] = dns[0]
    if boot.labels:
        kubernetes["node-labels"] = {**_inner(kubernetes, "node-labels", "settings.kubernetes.node-labels"), **boot.labels}
    kubernetes["node-taints"] = _taints(boot)
    kubernetes |= _kubelet(spec.kubelet or Kubelet())
    if boot.raid0:
        _inner(settings, "bootstrap-commands", "settings.bootstrap-commands")["000-mount-instance-storage"] = mount(
            spec, boot.image_name
        )
    return toml.write(document)


def _inner(table: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    found = table.setdefault(key, {})
    if not isinstance(found, dict):
        raise UserDataError(f"spec.userData: {name} must be a table, found {found!r}")
    return found


def _taints(boot: Boot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for t in boot.taints:
        found.setdefault(t.key, []).append(f"{t.value}:{t.effect}")
    return found


def _kubelet(kubelet: Kubelet) -> dict[str, Any]:
    given: dict[str, Any] = {
        "system-reserved": kubelet.system_reserved,
        "kube-reserved": kubelet.kube_reserved,
        "eviction-hard": kubelet.eviction_hard,
        "eviction-soft": kubelet.eviction_soft,
        "eviction-soft-grace-period": kubelet.eviction_soft_grace_period,
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold-percent": _text(kubelet.image_gc_high_threshold_percent),
        "image-gc-low-threshold-percent": _text(kubelet.image_gc_low_threshold_percent),
        "cpu-cfs-quota-enforced": kubelet.cpu_cfs_quota,
    }
    return {key: value for key, value in given.items() if value is not None}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
