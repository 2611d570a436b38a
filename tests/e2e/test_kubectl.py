"""Plain kubectl, built from its own source, against the in-memory API server: what people will type at a sandbox."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kubewright.api.crds import CRDS
from kubewright.clock import Clock
from kubewright.sim.apiserver.http import serve, write_kubeconfig
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.plane.binaries import ensure

pytestmark = pytest.mark.needs_go

WAIT_S = 30.0

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {name: app, image: "registry.invalid/app:1", resources: {requests: {cpu: 500m}}}
"""
DAEMON = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: app, image: "registry.invalid/agent:1"}]
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: b}
"""
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  weight: 10
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
"""


class Shell:
    """kubectl with a kubeconfig for the sandbox's server."""

    def __init__(self, store: Store, kubeconfig: Path) -> None:
        self.store = store
        self._program = str(ensure("kubectl"))
        self._environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent), "PATH": os.environ["PATH"]}

    async def start(self, *arguments: str, stdin: str | None = None) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        if stdin is not None:
            process.stdin.write(stdin.encode())
        process.stdin.close()
        return process

    async def run(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        process = await self.start(*arguments, stdin=stdin)
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(2 * WAIT_S):
            out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
            return await process.wait(), out.decode(), err.decode()

    async def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        code, out, err = await self.run(*arguments, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(arguments)}: {out}{err}"
        assert "Warning" not in err
        return out

    async def until(self, done: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await done():  # noqa: ASYNC110  # the cluster runs beside us on the wall clock
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def sandbox(folder: Path, *, nodes: int) -> AsyncIterator[Shell]:
    store = Store(Clock(), crds=list(CRDS.values()))
    server = await serve(store)
    try:
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url)
        for n in range(nodes):
            room = {"cpu": "4", "memory": "16Gi", "pods": "58"}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            store.create(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": f"node-{n}", "labels": {"kubernetes.io/hostname": f"node-{n}"}},
                    "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
                }
            )
        async with PretendCluster(store):
            yield Shell(store, kubeconfig)
    finally:
        await server.close()


def play(folder: Path, story: Callable[[Shell], Coroutine[Any, Any, None]], *, nodes: int = 2) -> None:
    async def whole() -> None:
        async with sandbox(folder, nodes=nodes) as kubectl:
            await story(kubectl)

    asyncio.run(whole())


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_apply_get_scale_and_delete(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        assert await kubectl("apply", "-f", "-", stdin=WEB) == "deployment.apps/web created\n"
        assert await kubectl("apply", "-f", "-", stdin=WEB) == "deployment.apps/web unchanged\n"
        more = WEB.replace("cpu: 500m", "cpu: 600m")
        assert await kubectl("apply", "-f", "-", stdin=more) == "deployment.apps/web configured\n"
        await kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        assert lines(await kubectl("get", "deployments"))[1][:4] == ["web", "3/3", "3", "3"]
        assert "600m" in await kubectl("get", "deployment", "web", "-o", "yaml")
        # those of the first revision may still be on their way out
        await kubectl("wait", "pod", "-l", "app=web", "--for=condition=Ready", "--timeout=30s")

        async def three() -> bool:
            return len(lines(await kubectl("get", "pods", "--no-headers"))) == 3

        await kubectl.until(three)
        header, *rows = lines(await kubectl("get", "pods", "-o", "wide"))
        assert header[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
        assert [row[1:3] for row in rows] == [["1/1", "Running"]] * 3
        assert {row[6] for row in rows} <= {"node-0", "node-1"}
        assert await kubectl("scale", "deployment/web", "--replicas=5") == "deployment.apps/web scaled\n"
        await kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        assert len(lines(await kubectl("get", "pods", "--no-headers", "-l", "app=web"))) == 5
        assert "deployment.apps/web" in await kubectl("get", "all")
        assert 'deployment.apps "web" deleted' in await kubectl("delete", "deployment", "web", "--cascade=foreground")
        assert await kubectl("get", "pods,replicasets") == ""

    play(tmp_path, story)


def test_our_kinds_have_their_columns_and_explanations(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        assert await kubectl("apply", "-f", "-", stdin=POOL) == "nodepool.karpenter.sh/general created\n"
        header, row = lines(await kubectl("get", "nodepools"))
        assert header == ["NAME", "NODECLASS", "NODES", "READY", "AGE"]
        assert row[:2] == ["general", "default"]
        assert "WEIGHT" in (await kubectl("get", "nodepool", "general", "-o", "wide")).splitlines()[0]
        assert "Consolidation Policy:  WhenEmptyOrUnderutilized" in await kubectl("describe", "nodepool", "general")
        assert "FIELDS:" in await kubectl("explain", "nodepool.spec.disruption")
        assert "budgets" in await kubectl("explain", "nodepool.spec.disruption")
        assert "containers" in await kubectl("explain", "pod.spec")
        await kubectl("wait", "crd/nodepools.karpenter.sh", "--for=condition=Established", "--timeout=5s")
        listed = await kubectl("api-resources", "--api-group=karpenter.sh")
        assert "nodepools" in listed
        assert "nodeclaims" in listed
        assert "karpenter.k8s.aws/v1" in await kubectl("api-versions")

    play(tmp_path, story, nodes=0)


def test_what_the_server_refuses_kubectl_says(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        code, _, err = await kubectl.run("apply", "-f", "-", stdin=POOL.replace("weight: 10", "weight: 101"))
        assert code == 1
        assert "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100" in err
        code, _, err = await kubectl.run("apply", "-f", "-", stdin=POOL.replace("weight:", "wieght:"))
        assert code == 1
        assert 'strict decoding error: unknown field "spec.wieght"' in err
        code, _, err = await kubectl.run("apply", "-f", "-", stdin=WEB.replace("image:", "imagine:"))
        assert code == 1
        assert 'unknown field "spec.template.spec.containers[0].imagine"' in err
        code, _, err = await kubectl.run("apply", "--server-side", "-f", "-", stdin=WEB)
        assert code == 1
        assert "use `kubectl apply` without --server-side" in err
        code, _, err = await kubectl.run("create", "configmap", "one", "--from-literal=a=b")
        assert code == 1
        assert "--dry-run=client -o yaml | kubectl apply -f -" in err
        assert await kubectl("get", "deployments,nodepools") == ""
        code, _, err = await kubectl.run("get", "limitranges")
        assert code == 1
        assert 'the server doesn\'t have a resource type "limitranges"' in err

    play(tmp_path, story, nodes=0)


def test_a_watch_shows_what_happens(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        watching = await kubectl.start("get", "configmaps", "-w", "-o", "name")
        table = await kubectl.start("get", "configmaps", "-w")
        assert watching.stdout is not None
        assert table.stdout is not None
        await kubectl("apply", "-f", "-", stdin=CONFIG)
        await kubectl("label", "configmap", "one", "c=d")
        async with asyncio.timeout(WAIT_S):
            assert await watching.stdout.readline() == b"configmap/one\n"
            assert await watching.stdout.readline() == b"configmap/one\n"
            assert (await table.stdout.readline()).split() == [b"NAME", b"DATA", b"AGE"]
            assert (await table.stdout.readline()).split()[:2] == [b"one", b"1"]
        for process in (watching, table):
            process.terminate()
            await process.wait()

    play(tmp_path, story, nodes=0)


def test_describe_tells_of_events(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        await kubectl("apply", "-f", "-", stdin=WEB)
        await kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        name = lines(await kubectl("get", "pods", "--no-headers"))[0][0]
        described = await kubectl("describe", "pod", name)
        assert "Controlled By:  ReplicaSet/web-" in described
        assert "default-scheduler  Successfully assigned" in described
        node = await kubectl("describe", "node", "node-0")
        assert "Allocated resources:" in node
        assert "Taints:             <none>" in node
        assert "Scheduled" in await kubectl("get", "events")
        assert "Scheduled" in await kubectl("events")

    play(tmp_path, story)


def test_drain_evicts_and_respects_budgets(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        await kubectl("apply", "-f", "-", stdin=f"{WEB}---{DAEMON}---{BUDGET}")
        await kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        code, _, err = await kubectl.run("drain", "node-0")
        assert code == 1
        assert "cannot delete DaemonSet-managed Pods" in err
        code, out, err = await kubectl.run("drain", "node-0", "--ignore-daemonsets", "--timeout=40s")
        assert code == 0, err
        assert "node/node-0 drained" in out
        assert "Warning: ignoring DaemonSet-managed Pods: default/agent-" in err
        left = json.loads(await kubectl("get", "pods", "-o", "json", "--field-selector=spec.nodeName=node-0"))["items"]
        assert {pod["metadata"]["labels"]["app"] for pod in left} <= {"agent"}
        assert ["node-0", "Ready,SchedulingDisabled"] in [row[:2] for row in lines(await kubectl("get", "nodes"))]
        await kubectl("uncordon", "node-0")

    play(tmp_path, story)


def test_edits_by_patch_and_whole_objects(tmp_path: Path) -> None:
    async def story(kubectl: Shell) -> None:
        await kubectl("apply", "-f", "-", stdin=WEB.replace("replicas: 3", "replicas: 0"))
        await kubectl("set", "image", "deployment/web", "app=registry.invalid/app:2")
        await kubectl("set", "env", "deployment/web", "A=b", "C=d")
        await kubectl(
            "patch", "deployment", "web", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]'
        )
        await kubectl("annotate", "deployment", "web", "example.com/note=yes")
        found = json.loads(await kubectl("get", "deployment", "web", "-o", "json"))
        container = found["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == "registry.invalid/app:2"
        assert container["env"] == [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}]
        assert container["resources"] == {"requests": {"cpu": "500m"}}, "the merge by name kept what was there"
        assert found["metadata"]["annotations"]["example.com/note"] == "yes"
        found["spec"]["replicas"] = 1
        await kubectl("replace", "-f", "-", stdin=json.dumps(found))
        assert await kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "1"
        await kubectl("set", "env", "deployment/web", "A-")
        found = json.loads(await kubectl("get", "deployment", "web", "-o", "json"))
        assert found["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "C", "value": "d"}]
        out = await kubectl("diff", "-f", "-", stdin=json.dumps(found))
        assert out == ""
        await kubectl("apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
        await kubectl("delete", "namespace", "other", "--timeout=20s")

    play(tmp_path, story)
