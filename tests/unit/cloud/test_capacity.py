from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import quantity
from kubewright.api.aws import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec, Kubelet
from kubewright.cloud.aws import capacity, catalogue, shapes
from kubewright.cloud.aws.capacity import Sizing
from tests.unit.cloud import figures

KNOWN = catalogue.embedded()
TYPES = {t.instance_type: t for t in KNOWN.types}
SIZING = Sizing(branch_interfaces=KNOWN.branch_interfaces)


def node_class(family: str = "AL2023", **spec) -> EC2NodeClass:
    return EC2NodeClass(spec=EC2NodeClassSpec(ami_family=family, **spec))


def allocatable(name: str, of: EC2NodeClass) -> dict[str, int]:
    kept = capacity.overhead(TYPES[name], of, SIZING)
    return {k: v - kept.get(k, 0) for k, v in capacity.capacity(TYPES[name], of, SIZING).items()}


@pytest.mark.parametrize(("name", "pods"), figures.PODS.items())
def test_pods_are_the_published_ones(name, pods):
    assert capacity.eni_limited_pods(TYPES[name], node_class(), 0) == pods


@pytest.mark.parametrize("row", figures.PUBLISHED, ids=lambda row: row["instance_type"])
def test_sizes_are_the_published_ones(row):
    found = allocatable(row["instance_type"], node_class())
    names = {"cpu": "cpu", "memory": "memory", "pods": "pods", "pod_eni": "vpc.amazonaws.com/pod-eni"}
    published = {name: quantity.parse(row[column]) for column, name in names.items() if row[column]}
    assert {name: found[name] for name in published} == published
    assert found["ephemeral-storage"] == quantity.parse("17Gi")


def test_the_published_figures_are_of_all_families():
    families = {row["instance_type"].partition(".")[0] for row in figures.PUBLISHED}
    whole = [row for row in figures.PUBLISHED if row["cpu"] and row["memory"] and row["pods"]]
    assert len(whole) >= 60
    assert len(families) >= 115
    assert all(row["source"] for row in figures.PUBLISHED)


@pytest.mark.parametrize(("name", "published"), figures.LABELS.items())
def test_labels_are_the_published_ones(name, published):
    found = shapes.type_labels(TYPES[name], "us-east-1", KNOWN.network_mbps)
    assert {key: found[f"karpenter.k8s.aws/{key}"] for key in published} == published


def test_accelerators_of_p5():
    found = capacity.capacity(TYPES["p5.48xlarge"], node_class(), SIZING)
    assert found["nvidia.com/gpu"] == 8 * quantity.ONE
    assert found["vpc.amazonaws.com/efa"] == 32 * quantity.ONE


def test_max_pods_sets_pods_but_not_the_memory_reserved_on_al2023():
    few = node_class(kubelet=Kubelet(max_pods=5))
    assert allocatable("m5.large", few)["pods"] == 5 * quantity.ONE
    assert allocatable("m5.large", few)["memory"] == allocatable("m5.large", node_class())["memory"]


def test_bottlerocket_reserves_memory_for_the_pods_it_runs_and_ignores_pods_per_core():
    few = node_class("Bottlerocket", kubelet=Kubelet(max_pods=5, pods_per_core=1))
    assert allocatable("m5.large", few)["pods"] == 5 * quantity.ONE
    freed = allocatable("m5.large", few)["memory"] - allocatable("m5.large", node_class("Bottlerocket"))["memory"]
    assert freed == 11 * 24 * capacity.MIB


def test_what_the_user_reserves_wins_key_by_key():
    ours = node_class(
        kubelet=Kubelet(kube_reserved={"cpu": "1"}, system_reserved={"cpu": "100m"}, eviction_hard={"memory.available": "5%"})
    )
    found = allocatable("m5.large", ours)
    assert found["cpu"] == quantity.parse("900m")
    estimated = capacity.memory(TYPES["m5.large"], SIZING.vm_memory_overhead)
    assert found["memory"] < estimated - estimated // 20


def test_a_hundred_percent_switches_a_threshold_off():
    off = node_class(kubelet=Kubelet(eviction_hard={"memory.available": "100%"}))
    assert allocatable("m5.large", off)["memory"] - allocatable("m5.large", node_class())["memory"] == 100 * capacity.MIB


def test_disks():
    raid = node_class(instance_store_policy="RAID0")
    assert capacity.ephemeral_storage(TYPES["i3.large"], raid) == 475 * capacity.GB
    assert capacity.ephemeral_storage(TYPES["m5.large"], raid) == 20 * capacity.GIB
    mappings = (
        BlockDeviceMapping(device_name="/dev/xvdc", ebs=BlockDevice(volume_size="7Gi")),
        BlockDeviceMapping(device_name="/dev/xvda", ebs=BlockDevice(volume_size="50Gi")),
    )
    assert capacity.ephemeral_storage(TYPES["m5.large"], node_class(block_device_mappings=mappings)) == 50 * capacity.GIB
    assert (
        capacity.ephemeral_storage(TYPES["m5.large"], node_class("Custom", block_device_mappings=mappings)) == 50 * capacity.GIB
    )
    assert (
        capacity.ephemeral_storage(TYPES["m5.large"], node_class("Custom", block_device_mappings=mappings[:1]))
        == 7 * capacity.GIB
    )


@given(st.sampled_from(sorted(TYPES)), st.sampled_from(["AL2023", "Bottlerocket", "Custom"]), st.integers(0, 3))
def test_allocatable_is_less_than_capacity_and_reserving_interfaces_never_adds_pods(name, family, reserved):
    info, of = TYPES[name], node_class(family)
    kept = capacity.overhead(info, of, SIZING)
    assert all(amount >= 0 for amount in kept.values())
    fewer = Sizing(Fraction(75, 1000), reserved)
    assert capacity.pods(info, of, fewer) <= capacity.pods(info, of, SIZING)
