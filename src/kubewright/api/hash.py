"""Hashes of NodePool templates and EC2NodeClass specs, equal to the reference's, so that changing over drifts no node.

The way of hashing is hashstructure's format 2 with lists as sets and zero values left out; names and orders of fields are the
reference's, since both go into the hash. Source: spec/scheduling 10.3, spec/aws 1.4; vectors in the tests.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kubewright.api import duration, quantity
from kubewright.api.aws import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec, Kubelet
from kubewright.api.core import Taint
from kubewright.api.karpenter import NodeClassReference, NodePool

NODE_POOL_HASH_VERSION = "v3"
EC2_NODE_CLASS_HASH_VERSION = "v5"
"""What release 1.14.1 writes; `ec2_node_class_hash_v6` is what its successor writes."""

_PRIME = 0x100000001B3
_BASIS = 0xCBF29CE484222325
_MASK = 2**64 - 1


def node_pool_hash(pool: NodePool) -> str:
    """The hash of what a NodePool's nodes are made from: its template without requirements.

    Raises:
        ValueError: a duration cannot be read.
    """
    metadata, spec = pool.spec.template.metadata, pool.spec.template.spec
    meta = {"Labels": _string_map(metadata.labels), "Annotations": _string_map(metadata.annotations)}
    expiry = None if spec.expire_after == duration.NEVER else spec.expire_after
    fields = {
        "Taints": _taints(spec.taints),
        "StartupTaints": _taints(spec.startup_taints),
        "NodeClassRef": _reference(spec.node_class_ref),
        "TerminationGracePeriod": _duration("Duration", spec.termination_grace_period),
        "ExpireAfter": _duration("NillableDuration", expiry),
    }
    whole = {"ObjectMeta": _value("ObjectMeta", meta), "Spec": _value("NodeClaimTemplateSpec", fields)}
    return str(_struct("NodeClaimTemplate", whole))


def ec2_node_class_hash(node_class: EC2NodeClass, ca_bundle: str = "") -> str:
    """The hash (v5) of what an EC2NodeClass's machines are made from; `ca_bundle` is the cluster's, as base64 text.

    Raises:
        ValueError: a duration or quantity cannot be read.
    """
    spec = _node_class_spec(node_class.spec, _kubelet(node_class.spec.kubelet))
    return str(spec ^ _text(node_class.ami_family) ^ _text(ca_bundle))


def ec2_node_class_hash_v6(node_class: EC2NodeClass, ca_bundle: str = "") -> str:
    """The hash (v6) that the release after 1.14 writes: the kubelet's settings count as JSON text.

    Raises:
        ValueError: a quantity cannot be read.
    """
    kubelet = msgspec.json.encode(node_class.spec.kubelet, order="sorted").decode()
    if kubelet == "{}":
        kubelet = "null"
    spec = _node_class_spec(node_class.spec, None)
    return str(spec ^ _text(node_class.ami_family) ^ _text(ca_bundle) ^ _text(kubelet))


def _node_class_spec(spec: EC2NodeClassSpec, kubelet: int | None) -> int:
    group, options, tracking, cpu = (
        spec.placement_group_selector,
        spec.metadata_options,
        spec.connection_tracking,
        spec.cpu_options,
    )
    fields = {
        "PlacementGroupSelector": None
        if group is None
        else _struct("PlacementGroupSelector", {"Name": _optional(group.name), "ID": _optional(group.id)}),
        "AssociatePublicIPAddress": _flag(spec.associate_public_ip_address),
        "UserData": _optional(spec.user_data),
        "Role": _optional(spec.role or None),
        "InstanceProfile": _optional(spec.instance_profile),
        "Tags": _string_map(spec.tags),
        "Kubelet": kubelet,
        "BlockDeviceMappings": _set(None if spec.block_device_mappings is None else map(_mapping, spec.block_device_mappings)),
        "InstanceStorePolicy": _optional(spec.instance_store_policy),
        "NetworkInterfaces": _set(
            None
            if spec.network_interfaces is None
            else (
                _struct(
                    "NetworkInterface",
                    {
                        "NetworkCardIndex": _number(nic.network_card_index or None, 4),
                        "DeviceIndex": _number(nic.device_index or None, 4),
                        "InterfaceType": _optional(nic.interface_type or None),
                    },
                )
                for nic in spec.network_interfaces
            )
        ),
        "DetailedMonitoring": _flag(spec.detailed_monitoring),
        "MetadataOptions": None
        if options is None
        else _struct(
            "MetadataOptions",
            {
                "HTTPEndpoint": _optional(options.http_endpoint),
                "HTTPProtocolIPv6": _optional(options.http_protocol_ipv6),
                "HTTPPutResponseHopLimit": _number(options.http_put_response_hop_limit, 8),
                "HTTPTokens": _optional(options.http_tokens),
            },
        ),
        "ConnectionTracking": None
        if tracking is None
        else _struct(
            "ConnectionTracking",
            {
                "TCPEstablishedTimeout": _number(tracking.tcp_established_timeout, 4),
                "UDPStreamTimeout": _number(tracking.udp_stream_timeout, 4),
                "UDPTimeout": _number(tracking.udp_timeout, 4),
            },
        ),
        "Context": _optional(spec.context),
        "CPUOptions": None
        if cpu is None
        else _struct("CPUOptions", {"NestedVirtualization": _optional(cpu.nested_virtualization)}),
    }
    return _struct("EC2NodeClassSpec", fields)


def _kubelet(kubelet: Kubelet | None) -> int | None:
    if kubelet is None:
        return None
    grace = kubelet.eviction_soft_grace_period
    return _struct(
        "KubeletConfiguration",
        {
            "ClusterDNS": _set(None if kubelet.cluster_dns is None else map(_text, kubelet.cluster_dns)),
            "MaxPods": _number(kubelet.max_pods, 4),
            "PodsPerCore": _number(kubelet.pods_per_core, 4),
            "SystemReserved": _string_map(kubelet.system_reserved),
            "KubeReserved": _string_map(kubelet.kube_reserved),
            "EvictionHard": _string_map(kubelet.eviction_hard),
            "EvictionSoft": _string_map(kubelet.eviction_soft),
            "EvictionSoftGracePeriod": None
            if grace is None
            else _map({signal: _duration("Duration", period) or 0 for signal, period in grace.items()}),
            "EvictionMaxPodGracePeriod": _number(kubelet.eviction_max_pod_grace_period, 4),
            "ImageGCHighThresholdPercent": _number(kubelet.image_gc_high_threshold_percent, 4),
            "ImageGCLowThresholdPercent": _number(kubelet.image_gc_low_threshold_percent, 4),
            "CPUCFSQuota": _flag(kubelet.cpu_cfs_quota),
        },
    )


def _mapping(mapping: BlockDeviceMapping) -> int:
    return _struct(
        "BlockDeviceMapping",
        {
            "DeviceName": _optional(mapping.device_name),
            "EBS": None if mapping.ebs is None else _block_device(mapping.ebs),
            "RootVolume": _flag(mapping.root_volume or None),
        },
    )


def _block_device(ebs: BlockDevice) -> int:
    return _struct(
        "BlockDevice",
        {
            "DeleteOnTermination": _flag(ebs.delete_on_termination),
            "Encrypted": _flag(ebs.encrypted),
            "IOPS": _number(ebs.iops, 8),
            "KMSKeyID": _optional(ebs.kms_key_id),
            "SnapshotID": _optional(ebs.snapshot_id),
            "Throughput": _number(ebs.throughput, 8),
            "VolumeInitializationRate": _number(ebs.volume_initialization_rate, 4),
            "VolumeSize": None if ebs.volume_size is None else _text(quantity.canonical(ebs.volume_size)),
            "VolumeType": _optional(ebs.volume_type),
        },
    )


def _reference(reference: NodeClassReference) -> int | None:
    return _value(
        "NodeClassReference",
        {
            "Kind": _optional(reference.kind or None),
            "Name": _optional(reference.name or None),
            "Group": _optional(reference.group or None),
        },
    )


def _taints(taints: Iterable[Taint] | None) -> int | None:
    # equal taints cancel out: a set is the XOR of its members
    if taints is None:
        return None
    return _set(
        _struct(
            "Taint",
            {"Key": _optional(t.key or None), "Value": _optional(t.value or None), "Effect": _optional(t.effect or None)},
        )
        for t in taints
    )


def _duration(kind: str, text: str | None) -> int | None:
    return None if text is None else _struct(kind, {"Duration": _number(duration.parse_ns(text) or None, 8)})


def _struct(name: str, fields: Mapping[str, int | None]) -> int:
    """A struct of this type name; fields are value hashes in declaration order, None where the value is zero."""
    result = _text(name)
    for field, value in fields.items():
        if value is not None:
            result = _finish(result ^ _pair(_text(field), value))
    return result


def _value(name: str, fields: Mapping[str, int | None]) -> int | None:
    """A struct that stands by value, which is zero, and so left out, when all its fields are."""
    return _struct(name, fields) if any(value is not None for value in fields.values()) else None


def _map(entries: Mapping[str, int]) -> int:
    result = 0
    for key, value in entries.items():
        result ^= _pair(_text(key), value)
    return _finish(result)


def _string_map(entries: Mapping[str, str] | None) -> int | None:
    return None if entries is None else _map({key: _text(value) for key, value in entries.items()})


def _set(hashes: Iterable[int] | None) -> int | None:
    if hashes is None:
        return None
    result = 0
    for value in hashes:
        result ^= value
    return result


def _optional(text: str | None) -> int | None:
    return None if text is None else _text(text)


def _flag(value: bool | None) -> int | None:
    return None if value is None else _fnv(bytes([value]))


def _number(value: int | None, width: int) -> int | None:
    """`width` in bytes, as the reference's field has it."""
    return None if value is None else _fnv(value.to_bytes(width, "little", signed=True))


def _text(text: str) -> int:
    return _fnv(text.encode())


def _pair(a: int, b: int) -> int:
    return _fnv(a.to_bytes(8, "little") + b.to_bytes(8, "little"))


def _finish(value: int) -> int:
    return _fnv(value.to_bytes(8, "little"))


def _fnv(data: bytes) -> int:
    """FNV-1, 64 bits."""
    result = _BASIS
    for byte in data:
        result = (result * _PRIME & _MASK) ^ byte
    return result
