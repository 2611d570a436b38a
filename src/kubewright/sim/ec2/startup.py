"""Reading user data as the images do: nodeadm documents, Bottlerocket settings, bootstrap scripts, PowerShell."""

import email
import re
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from kubewright.api import quantity
from kubewright.api.core import Taint

NODE_CONFIG = "application/node.eks.aws"


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet was told; amounts are millicores and bytes."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None
    pods_per_core: int = 0
    kube_reserved: dict[str, int] = {}
    system_reserved: dict[str, int] = {}
    eviction_memory: str = ""
    eviction_disk: str = ""
    uses_local_disks: bool = False
    is_windows: bool = False
    is_bottlerocket: bool = False


def read(text: str) -> Startup:
    """Text that no image understands tells nothing."""
    if text.lstrip().startswith(("MIME-Version:", "Content-Type:")):
        parts = [
            (part.get_content_type(), str(part.get_payload()))
            for part in email.message_from_string(text.lstrip()).walk()
            if not part.is_multipart()
        ]
        documents = [body for kind, body in parts if kind == NODE_CONFIG]
        if documents:
            return _nodeadm(documents)
        scripts = [body for _, body in parts if "/etc/eks/bootstrap.sh" in body]
        return _script(scripts[-1]) if scripts else Startup()
    if "<powershell>" in text.lower():
        return _powershell(text)
    try:
        settings = tomllib.loads(text).get("settings", {})
    except tomllib.TOMLDecodeError:
        return Startup()
    return _bottlerocket(settings) if "kubernetes" in settings else Startup()


def _nodeadm(documents: list[str]) -> Startup:
    """Documents are merged in order; what comes later wins."""
    merged: dict[str, Any] = {}
    flags: list[str] = []
    for text in documents:
        spec = (yaml.safe_load(text) or {}).get("spec", {})
        flags += spec.get("kubelet", {}).get("flags", [])
        _merge(merged, spec)
    config = merged.get("kubelet", {}).get("config", {})
    labels: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        if name == "--node-labels":
            labels |= _pairs(value.strip('"'))
    local = merged.get("instance", {}).get("localStorage", {})
    return Startup(
        labels=labels,
        taints=tuple(
            Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"]) for t in config.get("registerWithTaints", ())
        ),
        max_pods=config.get("maxPods"),
        pods_per_core=config.get("podsPerCore") or 0,
        kube_reserved=_reserved(config.get("kubeReserved", {})),
        system_reserved=_reserved(config.get("systemReserved", {})),
        eviction_memory=config.get("evictionHard", {}).get("memory.available", ""),
        eviction_disk=config.get("evictionHard", {}).get("nodefs.available", ""),
        uses_local_disks=local.get("strategy") == "RAID0",
    )


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _bottlerocket(settings: Mapping[str, Any]) -> Startup:
    kubernetes = settings["kubernetes"]
    taints = tuple(
        Taint(key=key, value=one.rpartition(":")[0], effect=one.rpartition(":")[2])
        for key, values in kubernetes.get("node-taints", {}).items()
        for one in values
    )
    hard = kubernetes.get("eviction-hard", {})
    return Startup(
        labels=dict(kubernetes.get("node-labels", {})),
        taints=taints,
        max_pods=kubernetes.get("max-pods"),
        kube_reserved=_reserved(kubernetes.get("kube-reserved", {})),
        system_reserved=_reserved(kubernetes.get("system-reserved", {})),
        eviction_memory=hard.get("memory.available", ""),
        eviction_disk=hard.get("nodefs.available", ""),
        uses_local_disks="000-mount-instance-storage" in settings.get("bootstrap-commands", {}),
        is_bottlerocket=True,
    )


def _script(text: str) -> Startup:
    call = text[text.index("/etc/eks/bootstrap.sh") :].replace("\\\n", " ").partition("\n")[0]
    words = shlex.split(call)
    extra = words[words.index("--kubelet-extra-args") + 1] if "--kubelet-extra-args" in words else ""
    local = "--local-disks" in words and words[words.index("--local-disks") + 1] == "raid0"
    return msgspec.structs.replace(_arguments(extra), uses_local_disks=local)


def _powershell(text: str) -> Startup:
    found = re.search(r"-KubeletExtraArgs '([^']*)'", text)
    return msgspec.structs.replace(_arguments(found[1] if found else ""), is_windows=True)


def _arguments(text: str) -> Startup:
    given: dict[str, str] = {}
    for word in shlex.split(text):
        name, _, value = word.partition("=")
        given[name.lstrip("-")] = value
    taints = []
    for one in filter(None, given.get("register-with-taints", "").split(",")):
        pair, _, effect = one.rpartition(":")
        key, _, value = pair.partition("=")
        taints.append(Taint(key=key, value=value, effect=effect))
    hard = _pairs(given.get("eviction-hard", ""), "<")
    return Startup(
        labels=_pairs(given.get("node-labels", "")),
        taints=tuple(taints),
        max_pods=int(given["max-pods"]) if "max-pods" in given else None,
        pods_per_core=int(given.get("pods-per-core", 0)),
        kube_reserved=_reserved(_pairs(given.get("kube-reserved", ""))),
        system_reserved=_reserved(_pairs(given.get("system-reserved", ""))),
        eviction_memory=hard.get("memory.available", ""),
        eviction_disk=hard.get("nodefs.available", ""),
    )


def _pairs(text: str, join: str = "=") -> dict[str, str]:
    return dict(pair.split(join, 1) for pair in text.split(",") if join in pair)


def _reserved(found: Mapping[str, str]) -> dict[str, int]:
    unit = {"cpu": quantity.ONE // 1000}
    return {name: -(-quantity.parse(text) // unit.get(name, quantity.ONE)) for name, text in found.items()}
