"""What a machine's kubelet reports, against figures published for real ones."""

import pytest

from kubewright.api import quantity
from kubewright.api.core import Taint
from kubewright.cloud.aws import catalogue
from kubewright.cloud.aws.api import Ec2Instance, InstanceState, InstanceTypeInfo, Placement
from kubewright.sim.joiner import Machine
from kubewright.sim.machines import Hardware, machine_of

TYPES: dict[str, InstanceTypeInfo] = {}


def machine(name: str, hardware: Hardware | None = None) -> Machine:
    if not TYPES:
        TYPES.update({t.instance_type: t for t in catalogue.embedded().types})
    instance = Ec2Instance(
        instance_id="i-1",
        instance_type=name,
        state=InstanceState(name="running"),
        placement=Placement(availability_zone="us-west-2b"),
        private_dns_name="ip-10-0-0-1.us-west-2.compute.internal",
        private_ip_address="10.0.0.1",
        architecture="x86_64",
    )
    return machine_of(instance, TYPES[name], {"a": "b"}, (Taint(key="k", effect="NoSchedule"),), hardware)


@pytest.mark.parametrize(
    ("name", "cpu", "memory_mib_at_7_5_percent", "pods", "storage_gib"),
    [("m5.large", "1930m", 6903, "29", 17), ("p5.48xlarge", "191450m", 1938410, "100", 17)],
)
def test_what_is_left_for_pods(name: str, cpu: str, memory_mib_at_7_5_percent: int, pods: str, storage_gib: int) -> None:
    left = machine(name, Hardware(hidden_memory_percent=7.5)).allocatable
    assert (left["cpu"], left["pods"]) == (cpu, pods)
    assert quantity.parse(left["memory"]) // quantity.ONE // 2**20 == pytest.approx(memory_mib_at_7_5_percent, abs=1)
    assert quantity.parse(left["ephemeral-storage"]) // quantity.ONE // 2**30 == storage_gib


def test_devices_are_capacity() -> None:
    assert machine("p5.48xlarge").capacity["nvidia.com/gpu"] == "8"
    assert machine("p5.48xlarge").capacity["vpc.amazonaws.com/efa"] == "32"
    assert machine("inf2.48xlarge").capacity["aws.amazon.com/neuron"] == "12"
    assert "nvidia.com/gpu" not in machine("m5.large").capacity


def test_where_it_is_and_what_it_was_told() -> None:
    found = machine("m5.large")
    assert (found.provider_id, found.zone, found.region) == ("aws:///us-west-2b/i-1", "us-west-2b", "us-west-2")
    assert (found.labels, found.taints) == ({"a": "b"}, (Taint(key="k", effect="NoSchedule"),))
    assert found.volume_limit is not None
    assert 0 < found.volume_limit < 40


def test_max_pods_of_the_user_data_wins_but_reserves_nothing_more() -> None:
    few, many = machine("m5.large"), machine("m5.large", Hardware(max_pods=110))
    assert (many.capacity["pods"], many.allocatable["pods"]) == ("110", "110")
    assert many.allocatable["memory"] == few.allocatable["memory"]
