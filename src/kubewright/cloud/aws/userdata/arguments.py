"""The kubelet's settings as command line arguments, for images whose bootstrap scripts take them. Source: spec/aws 4.3."""

from collections.abc import Mapping

from kubewright.api.aws import Kubelet
from kubewright.cloud.aws.userdata.boot import Boot, pairs


def of(kubelet: Kubelet, boot: Boot) -> list[str]:
    """In a fixed order, maps sorted by key."""
    found = []
    if boot.labels:
        found.append(f'--node-labels="{pairs(boot.labels)}"')
    if boot.taints:
        listed = ",".join(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in boot.taints)
        found.append(f'--register-with-taints="{listed}"')
    found.append(f"--max-pods={boot.max_pods}")
    if kubelet.pods_per_core is not None:
        found.append(f"--pods-per-core={kubelet.pods_per_core}")
    maps: tuple[tuple[str, Mapping[str, str] | None, str], ...] = (
        ("system-reserved", kubelet.system_reserved, "="),
        ("kube-reserved", kubelet.kube_reserved, "="),
        ("eviction-hard", kubelet.eviction_hard, "<"),
        ("eviction-soft", kubelet.eviction_soft, "<"),
        ("eviction-soft-grace-period", kubelet.eviction_soft_grace_period, "="),
    )
    found += [f'--{name}="{pairs(values, join)}"' for name, values, join in maps if values]
    numbers = (
        ("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
        ("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
        ("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
    )
    found += [f"--{name}={number}" for name, number in numbers if number is not None]
    if kubelet.cpu_cfs_quota is not None:
        found.append(f"--cpu-cfs-quota={str(kubelet.cpu_cfs_quota).lower()}")
    return found
