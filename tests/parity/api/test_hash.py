"""Hashes equal to the reference's: from its library (NodePool v3), its own tests (EC2NodeClass v5), and its successor (v6)."""

from typing import Any

import msgspec
import pytest

from kubewright.api import hash as hashes
from kubewright.api.aws import EC2NodeClass
from kubewright.api.karpenter import NodePool

REF = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
EXP = {"expireAfter": "720h"}


def pool(spec: dict[str, Any], **metadata: Any) -> NodePool:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": {"template": {"metadata": metadata, "spec": spec}}}, NodePool)


TAINTS = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]
AGENT = [{"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}]
POOLS = [
    (pool({}), "17307646073972311821"),
    (pool(REF | EXP), "6821555240594823858"),
    (pool(REF | {"expireAfter": "Never"}), "17369979337536258260"),
    (pool(REF | EXP, labels={"team": "a", "env": "prod"}), "14252226014800573201"),
    (pool(REF | EXP | {"taints": TAINTS}), "411448575382676992"),
    (pool(REF | EXP | {"taints": []}), "17700736223175069915"),
    (pool(REF | EXP, labels={}), "1287117484082965808"),
    (pool(REF | EXP | {"terminationGracePeriod": "48h"}), "15015733878877233177"),
    (pool(REF | EXP | {"startupTaints": AGENT}, annotations={"example.com/owner": "my-team"}), "955582611586405881"),
]


@pytest.mark.parametrize(("found", "expected"), POOLS)
def test_a_node_pool_hashes_as_the_reference_does(found: NodePool, expected: str) -> None:
    assert hashes.node_pool_hash(found) == expected


def test_requirements_and_disruption_do_not_count() -> None:
    requirement = {"requirements": [{"key": "a", "operator": "Exists"}]}
    assert hashes.node_pool_hash(pool(REF | EXP | requirement)) == hashes.node_pool_hash(pool(REF | EXP))


def test_the_same_time_written_otherwise_hashes_the_same() -> None:
    assert hashes.node_pool_hash(pool(REF | {"expireAfter": "719h60m"})) == hashes.node_pool_hash(pool(REF | EXP))


FIRST = {
    "deviceName": "map-device-1",
    "ebs": {
        "deleteOnTermination": False,
        "encrypted": False,
        "iops": 0,
        "kmsKeyID": "fakeKMSKeyID",
        "snapshotID": "fakeSnapshot",
        "throughput": 0,
        "volumeSize": "2G",
        "volumeType": "standard",
    },
}
SECOND = {"deviceName": "map-device-2"}
OPTIONS = {
    "httpEndpoint": "disabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "optional",
}
TAGS = {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"}
BASE: dict[str, Any] = {
    "role": "role-1",
    "tags": TAGS,
    "context": "fake-context",
    "detailedMonitoring": False,
    "associatePublicIPAddress": False,
    "metadataOptions": OPTIONS,
    "blockDeviceMappings": [FIRST, SECOND],
    "userData": "userdata-test-1",
}


def disk(**ebs: Any) -> dict[str, Any]:
    return {"blockDeviceMappings": [FIRST | {"ebs": FIRST["ebs"] | ebs}, SECOND]}  # type: ignore[operator]


def options(**more: Any) -> dict[str, Any]:
    return {"metadataOptions": OPTIONS | more}


def node_class(change: dict[str, Any]) -> EC2NodeClass:
    spec = {key: value for key, value in (BASE | change).items() if value is not None}
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, EC2NodeClass)


V6 = [
    ({}, "11148166120438674859"),
    ({"userData": "userdata-test-2"}, "11774429238106843388"),
    ({"context": "context-2"}, "2279761750428738028"),
    ({"detailedMonitoring": True}, "1936848126751988570"),
    ({"instanceStorePolicy": "RAID0"}, "16697988646989909967"),
    ({"associatePublicIPAddress": True}, "16141801171825097963"),
    (options(httpPutResponseHopLimit=10), "14046948658064232764"),
    (options(httpTokens="required"), "1346719102507290084"),
    ({"connectionTracking": {"tcpEstablishedTimeout": 300}}, "1619669030802245540"),
    ({"connectionTracking": {"udpStreamTimeout": 120}}, "13743705849402595405"),
    ({"cpuOptions": {"nestedVirtualization": "enabled"}}, "6157846767212910604"),
    (disk(volumeSize="10G"), "10372902467896351912"),
    (disk(kmsKeyID="test"), "1488385067008138755"),
    ({"blockDeviceMappings": [FIRST | {"rootVolume": True}, SECOND]}, "8875796205856543692"),
    ({"tags": TAGS | {"keyTag-test-3": "valueTag-test-3"}}, "9327338697296909506"),
    ({"role": None, "instanceProfile": "test-instance-profile"}, "10323991363677716244"),
]
V5 = [
    ({}, "2608468723537941485"),
    ({"userData": "userdata-test-2"}, "2153344579995979450"),
    ({"tags": TAGS | {"keyTag-test-3": "valueTag-test-3"}}, "4608386791045313156"),
    ({"context": "context-2"}, "11612053647989098410"),
    ({"detailedMonitoring": True}, "11845605438531206428"),
    ({"instanceStorePolicy": "RAID0"}, "6430637013089544585"),
    ({"associatePublicIPAddress": True}, "6811176403923819181"),
    (options(httpEndpoint="enabled"), "8158886403801636337"),
    (options(httpProtocolIPv6="enabled"), "12355196004817691031"),
    (options(httpPutResponseHopLimit=10), "8968306366664488826"),
    (options(httpTokens="required"), "12408995450371615650"),
    ({"blockDeviceMappings": [FIRST | {"deviceName": "map-device-test-3"}, SECOND]}, "13986335469721503441"),
    ({"blockDeviceMappings": [FIRST | {"rootVolume": True}, SECOND]}, "14242690863945643402"),
    (disk(deleteOnTermination=True), "12316454167870753581"),
    (disk(encrypted=True), "17753517657333560591"),
    (disk(iops=10), "2249322442135400321"),
    (disk(kmsKeyID="test"), "12259594419287406661"),
    (disk(snapshotID="test"), "1149563513090550380"),
    (disk(throughput=10), "12068199760789564545"),
    (disk(volumeType="io1"), "16361719363399715944"),
    (disk(volumeSize="10G"), "3564293065344858862"),
    ({"connectionTracking": {"tcpEstablishedTimeout": 300}}, "12177489405137904098"),
    ({"connectionTracking": {"udpStreamTimeout": 120}}, "17567831983996427"),
    ({"connectionTracking": {"udpTimeout": 45}}, "5078825826133662844"),
    ({"cpuOptions": {"nestedVirtualization": "enabled"}}, "17001101224536964682"),
]


@pytest.mark.parametrize(("change", "expected"), V6)
def test_an_ec2_node_class_hashes_as_the_next_release_does(change: dict[str, Any], expected: str) -> None:
    assert hashes.ec2_node_class_hash_v6(node_class(change), "test-ca-bundle") == expected


@pytest.mark.parametrize(("change", "expected"), V5)
def test_an_ec2_node_class_hashes_as_the_release_does(change: dict[str, Any], expected: str) -> None:
    assert hashes.ec2_node_class_hash(node_class(change), "test-ca-bundle") == expected


def test_the_family_counts_as_it_is_resolved() -> None:
    alias = {"amiSelectorTerms": [{"alias": "al2023@latest"}]}
    assert hashes.ec2_node_class_hash(node_class(alias)) == hashes.ec2_node_class_hash(
        node_class(alias | {"amiFamily": "AL2023"})
    )
    assert hashes.ec2_node_class_hash(node_class(alias)) != hashes.ec2_node_class_hash(node_class({}))


KUBELET = {
    "clusterDNS": ["10.0.0.10", "10.0.0.11"],
    "maxPods": 0,
    "podsPerCore": 7,
    "systemReserved": {"cpu": "100m", "memory": "1Gi"},
    "evictionSoft": {"memory.available": "5%"},
    "evictionSoftGracePeriod": {"memory.available": "1m30s", "pid.available": "0s"},
    "evictionMaxPodGracePeriod": -3,
    "cpuCFSQuota": False,
}


@pytest.mark.parametrize(("kubelet", "expected"), [(KUBELET, "3896931424669111837"), ({}, "6939637969505805296")])
def test_kubelet_settings_hash_as_the_reference_library_hashes_them(kubelet: dict[str, Any], expected: str) -> None:
    # computed with the library itself from a struct of the same type and field names
    found = msgspec.convert({"spec": {"role": "r", "kubelet": kubelet}}, EC2NodeClass)
    assert hashes.ec2_node_class_hash(found, "ca") == expected
