"""`kubewright sandbox --serve` as a process, with plain kubectl beside it: the operator reacts to what people type."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plane.binaries import ROOT, ensure

pytestmark = pytest.mark.needs_go

WAIT_S = 90.0
MANIFESTS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole-sandbox
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5s, budgets: [{nodes: 100%}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: app, image: "registry.invalid/web:1", resources: {requests: {cpu: "1"}}}]
---
apiVersion: sandbox.kubewright.sh/v1
kind: Scenario
metadata: {name: story}
steps:
  - {at: 3s, say: a second service comes, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: from-the-scenario}}}
"""


class Cluster:
    """The process and a kubectl that speaks with it."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "out.txt"
        self._folder = folder
        manifests = folder / "all.yaml"
        manifests.write_text(MANIFESTS, encoding="utf-8")
        argv = [sys.executable, "-m", "kubewright", "sandbox", "--serve", "-f", str(manifests)]
        argv += ["--kubeconfig", str(self.kubeconfig), "--launch-seconds", "0.2", "--join-seconds", "0.2"]
        with self._log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                argv, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, cwd=folder
            )

    @property
    def told(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self._folder), "PATH": os.environ["PATH"]}
        argv = [str(ensure("kubectl")), *arguments]
        return subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=False)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def items(self, kind: str, *more: str) -> list[dict[str, dict[str, object]]]:
        found: list[dict[str, dict[str, object]]] = json.loads(self.kubectl("get", kind, "-o", "json", *more))["items"]
        return found

    def until(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not done():
            assert self.process.poll() is None, self.told
            assert time.monotonic() < end, f"still waiting for: {what}\n{self.told}"
            time.sleep(0.2)

    def running(self) -> int:
        return sum(p["status"]["phase"] == "Running" for p in self.items("pods", "-l", "app=web"))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.until(made.kubeconfig.exists, "the kubeconfig")
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def table(text: str) -> list[list[str]]:
    return [re.split(r" {2,}|\t", line.strip()) for line in text.splitlines()]


def test_the_operator_reacts_to_kubectl(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.running() == 1, "the first pod")
    assert len(cluster.items("nodeclaims")) == 1
    watching = subprocess.Popen(
        [str(ensure("kubectl")), "get", "nodeclaims", "-w", "-o", "name"],
        env={"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.kubeconfig.parent), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("nodeclaim.karpenter.sh/general-")
        cluster.kubectl("scale", "deployment/web", "--replicas=40")
        cluster.until(lambda: len(cluster.items("nodeclaims")) > 1, "another NodeClaim")
        names = {f"nodeclaim.karpenter.sh/{c['metadata']['name']}\n" for c in cluster.items("nodeclaims")}
        old = cluster.items("nodeclaims")[0]["metadata"]["name"]
        while True:
            line = watching.stdout.readline()
            assert line in names
            if str(old) not in line:
                break
    finally:
        watching.terminate()
        watching.communicate()
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    assert cluster.running() == 40
    cluster.kubectl("delete", "deployment", "web")
    cluster.until(lambda: not cluster.items("nodeclaims") and not cluster.items("nodes"), "the empty nodes to go")
    assert "configmap/from-the-scenario" in cluster.kubectl("get", "configmaps", "-o", "name"), "the scenario is played too"
    assert cluster.end(signal.SIGINT) == 0
    told = cluster.told
    assert "a second service comes" in told
    assert "is being removed (Empty)" in told
    assert "There are no nodes at the end." in told
    assert "Every machine of the run" in told
    assert "Traceback" not in told
    assert not cluster.kubeconfig.exists(), "it pointed at nothing"


def test_what_kubectl_shows(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.running() == 1, "the first pod")
    (claim,) = cluster.items("nodeclaims")
    name, node = str(claim["metadata"]["name"]), str(claim["status"]["nodeName"])
    header, row = table(cluster.kubectl("get", "nodeclaims"))
    assert header == ["NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE"]
    assert row[0] == name
    assert row[2:6] == ["on-demand", row[3], node, "True"]
    header, row = table(cluster.kubectl("get", "nodepools"))
    assert header == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
    assert row[:4] == ["general", "default", "1", "True"]
    assert table(cluster.kubectl("get", "ec2nodeclasses"))[1][:2] == ["default", "True"]
    wide = table(cluster.kubectl("get", "nodes", "-o", "wide"))
    assert wide[1][:2] == [node, "Ready"]
    assert "INTERNAL-IP" in wide[0]
    assert node in cluster.kubectl("get", "pods", "-o", "wide")
    assert "nodeName:" in cluster.kubectl("get", "pods", "-o", "yaml")
    (pod,) = cluster.items("pods", "-l", "app=web")
    described = cluster.kubectl("describe", "pod", str(pod["metadata"]["name"]))
    assert "Nominated" in described
    assert "Successfully assigned default/web-" in described
    described = cluster.kubectl("describe", "node", node)
    assert "karpenter.sh/nodepool=general" in described
    assert "Allocated resources:" in described
    assert "Node Class Ref" in cluster.kubectl("describe", "nodepool", "general")
    described = cluster.kubectl("describe", "nodeclaim", name)
    assert "Provider ID:" in described
    assert "Initialized" in described
    assert "Nominated" in cluster.kubectl("get", "events")
    assert "consolidateAfter" in cluster.kubectl("explain", "nodepool.spec.disruption")
    resources = cluster.kubectl("api-resources")
    for kind in ("NodePool", "NodeClaim", "EC2NodeClass", "Deployment", "PodDisruptionBudget"):
        assert kind in resources
    assert cluster.end(signal.SIGTERM) == 0
    assert "Nodes at the end" in cluster.told


def test_a_drained_node_is_replaced(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.running() == 1, "the first pod")
    (claim,) = cluster.items("nodeclaims")
    cluster.kubectl("drain", str(claim["status"]["nodeName"]), "--ignore-daemonsets", "--timeout=60s")
    other = MANIFESTS.split("---")[2].replace("name: web}", "name: api}", 1).replace("app: web", "app: api")
    assert "deployment.apps/api created" in cluster.kubectl("apply", "-f", "-", stdin=other)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    cluster.kubectl("rollout", "status", "deployment/api", "--timeout=90s")
    where = {p["spec"]["nodeName"] for p in cluster.items("pods")}
    assert claim["status"]["nodeName"] not in where
    cluster.kubectl("delete", "nodeclaim", str(claim["metadata"]["name"]), "--timeout=60s")
    assert cluster.end(signal.SIGTERM) == 0
