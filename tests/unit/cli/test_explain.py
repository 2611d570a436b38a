"""`kubewright explain pod`: from saved files and from records."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
import yaml

from kubewright import records
from kubewright.api.crds import CRDS
from kubewright.cli import looking, saved
from kubewright.clock import Clock
from kubewright.errors import Forbidden
from kubewright.settings import Settings
from kubewright.sim.apiserver.http import serve, write_kubeconfig
from kubewright.sim.apiserver.store import Store
from kubewright.solver.solve import solve
from tests.builders import ask, node_pool
from tests.builders import pod as built_pod
from tests.unit.cli.shell import Shell

CLUSTER = """
apiVersion: v1
kind: List
items:
- apiVersion: karpenter.k8s.aws/v1
  kind: EC2NodeClass
  metadata: {name: default, generation: 1}
  spec:
    role: KarpenterNodeRole
    amiSelectorTerms: [{alias: al2023@latest}]
    subnetSelectorTerms: [{tags: {karpenter.sh/discovery: shop}}]
    securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: shop}}]
  status:
    instanceProfile: p
    subnets:
    - {id: subnet-1, zone: us-west-2a, zoneID: usw2-az1}
    - {id: subnet-2, zone: us-west-2b, zoneID: usw2-az2}
    securityGroups: [{id: sg-1}]
    amis: [{id: ami-1, requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}]
    conditions:
    - {type: Ready, status: "True", observedGeneration: 1, reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata: {name: general}
  spec:
    template:
      spec:
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
        requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a]}]
        taints: [{key: dedicated, value: batch, effect: NoSchedule}]
  status:
    conditions: [{type: Ready, status: "True", reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, uid: uid-{name}}}
spec:
  nodeName: {node}
  nodeSelector: {selector}
  tolerations: [{{key: dedicated, operator: Exists}}]
  containers: [{{name: app, image: "registry.invalid/web:1", resources: {{requests: {{cpu: "1"}}}}}}]
status: {{phase: Pending, conditions: [{{type: PodScheduled, status: "False", reason: {reason}}}]}}
"""


def pod(name: str, selector: str = "{}", reason: str = "Unschedulable", node: str = '""') -> str:
    return POD.format(name=name, selector=selector, reason=reason, node=node)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    elsewhere = pod("elsewhere", "{topology.kubernetes.io/zone: us-west-2b}")
    file.write_text(CLUSTER + pod("web") + elsewhere + pod("young", reason="SchedulerError"))
    return file


def test_a_pod_that_waits_is_told_why_and_what_helps(kubewright: Shell, cluster: Path) -> None:
    done = kubewright("explain", "pod", "shop/elsewhere", "-f", cluster)
    assert done.code == 1
    assert "nodeSelector topology.kubernetes.io/zone=us-west-2b" in done.out
    assert "add zone us-west-2b to NodePool general" in done.out


def test_a_pod_that_will_get_a_node(kubewright: Shell, cluster: Path) -> None:
    done = kubewright("explain", "pod", "shop/web", "-f", cluster)
    assert done.code == 0
    assert "new node general-1 of NodePool general" in done.out


def test_json(kubewright: Shell, cluster: Path) -> None:
    told = json.loads(kubewright("explain", "pod", "shop/elsewhere", "-f", cluster, "-o", "json").out)
    assert told["placed"] == ""
    assert {m["what"] for m in told["conflict"]} == {
        "nodeSelector topology.kubernetes.io/zone=us-west-2b",
        "requirement topology.kubernetes.io/zone In [us-west-2a]",
    }


def test_a_pod_that_the_scheduler_has_not_refused(kubewright: Shell, cluster: Path) -> None:
    assert "has not called it unschedulable" in kubewright("explain", "pod", "shop/young", "-f", cluster).out


def test_a_pod_that_is_not_there_and_names_that_are_none(kubewright: Shell, cluster: Path) -> None:
    done = kubewright("explain", "pod", "nobody", "-f", cluster)
    assert done.code == 2
    assert "no pod default/nobody" in done.err
    assert "shop/elsewhere" in done.err
    assert kubewright("explain", "pod", "a/b/c", "-f", cluster).code == 2
    assert "no such file" in kubewright("explain", "pod", "a", "-f", cluster.with_name("missing.yaml")).err


def test_zones_of_a_region_that_nobody_knows(kubewright: Shell, cluster: Path) -> None:
    cluster.write_text(cluster.read_text().replace("us-west-2", "moon-north-1"))
    done = kubewright("explain", "pod", "shop/web", "-f", cluster)
    assert done.code == 2
    assert "moon-north-1a" in done.err
    assert "kubewright catalogue refresh" in done.err


def test_from_a_record(kubewright: Shell, tmp_path: Path) -> None:
    problem = ask([built_pod("big", cpu="99")], [node_pool()])
    file = tmp_path / "pass.record"
    records.save(file, problem, solve(problem), Settings())
    done = kubewright("explain", "pod", "default/big", "--record", file)
    assert done.code == 1
    assert "lower the cpu request by 83 to 16" in done.out
    assert kubewright("explain", "pod", "default/small", "--record", file).code == 2
    assert kubewright("explain", "pod", "default/big", "--record", tmp_path / "none").code == 2


def test_a_saved_cluster_takes_no_writes(cluster: Path) -> None:
    with pytest.raises(Forbidden, match="only saved files"):
        asyncio.run(saved.load([cluster]).evict("web", "shop"))


class Server(threading.Thread):
    """An API server with the cluster of the file, in a loop of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__()
        self.kubeconfig = kubeconfig
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.done = asyncio.Event()

    def run(self) -> None:
        self.loop.run_until_complete(self.serve())
        self.loop.close()

    async def serve(self) -> None:
        store = Store(Clock(), crds=list(CRDS.values()))
        documents = [*yaml.safe_load_all(CLUSTER + pod("elsewhere", "{topology.kubernetes.io/zone: us-west-2b}"))]
        store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        for raw in [*documents[0]["items"], *documents[1:]]:
            raw["metadata"].pop("uid", None)
            made = store.create(raw)
            store.update({**made, "status": raw["status"]}, subresource="status")
        server = await serve(store)
        write_kubeconfig(self.kubeconfig, server.url)
        self.ready.set()
        await self.done.wait()
        await server.close()


def test_on_a_live_cluster(kubewright: Shell, tmp_path: Path) -> None:
    server = Server(tmp_path / "kubeconfig")
    server.start()
    try:
        assert server.ready.wait(10)
        done = kubewright("explain", "pod", "shop/elsewhere", "--cloud", "fake-ec2", "--kubeconfig", server.kubeconfig)
    finally:
        server.loop.call_soon_threadsafe(server.done.set)
        server.join()
    assert done.code == 1
    assert "add zone us-west-2b to NodePool general" in done.out


def test_a_server_that_does_not_answer(kubewright: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PATIENCE_S", 0.3)
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9")
    done = kubewright("explain", "pod", "shop/web", "--cloud", "fake-ec2", "--kubeconfig", kubeconfig)
    assert done.code == 2
    assert "127.0.0.1:9" in done.err
