"""What listing and watching pods costs: our client, lightkube's own verbs, and aiohttp with our decoding.

    python -m benchmarks.kube_client [pods] [events]

The server is a second process on loopback that answers with bytes baked beforehand; time is the client's wall time, CPU is
the client's own. Figures vary by a third between runs on a shared machine: read ratios.
"""

import asyncio
import json
import multiprocessing
import resource
import sys
import time
from typing import Any

import msgspec
from aiohttp import ClientSession, web
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.async_client import AsyncClient
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
from lightkube.resources.core_v1 import Pod as FullPod

from kubewright.api.core import Pod, PodSpec, PodStatus
from kubewright.api.meta import ObjectMeta
from kubewright.kube import wire
from kubewright.kube.config import Connection
from kubewright.kube.http import HttpClient

PAGE = 500


def pod(index: int) -> dict[str, Any]:
    """About 5 kB of JSON, as a real pod with two containers, managed fields and a filled status."""
    name = f"web-{index // 50:05d}-{index:06d}"
    container = {
        "name": "app",
        "image": "registry.example/app@sha256:" + "ab" * 32,
        "env": [{"name": f"VARIABLE_{i}", "value": f"value of variable {i}"} for i in range(20)],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "resourceVersion": str(1000 + index),
            "creationTimestamp": "2026-11-29T10:00:00Z",
            "labels": {"app": f"web-{index // 50}", "pod-template-hash": "5d4f8c7b9"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{index // 50}", "uid": "u", "controller": True}
            ],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:field{i}": {} for i in range(60)}}],
        },
        "spec": {
            "containers": [container, container | {"name": "sidecar"}],
            "nodeName": f"node-{index % 500}",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "volumes": [
                {
                    "name": "token",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]},
                }
            ],
            "schedulerName": "default-scheduler",
            "priority": 0,
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-11-29T10:00:00Z"}
                for kind in ("Ready", "PodScheduled", "ContainersReady", "Initialized")
            ],
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {"name": "app", "ready": True, "restartCount": 0, "image": "registry.example/app", "imageID": "none"}
            ],
        },
    }


def serve(pods: int, events: int, port: "multiprocessing.Queue[int]") -> None:
    objects = [json.dumps(pod(i)).encode() for i in range(pods)]
    pages = {}
    for start in range(0, pods, PAGE):
        more = b"" if start + PAGE >= pods else str(start + PAGE).encode()
        meta = b'{"resourceVersion":"1","continue":"%s"}' % more
        pages[start] = b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[%s]}' % (
            meta,
            b",".join(objects[start : start + PAGE]),
        )
    lines = [b'{"type":"MODIFIED","object":%s}\n' % objects[i % pods] for i in range(events)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=pages[int(request.query.get("continue", 0))], content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for start in range(0, events, 8):
            await response.write(b"".join(lines[start : start + 8]))
        await response.write_eof()
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


class _Meta(ObjectMeta, frozen=True, kw_only=True):
    @property
    def resourceVersion(self) -> str:  # noqa: N802 — lightkube's watch reads this attribute
        return self.resource_version


class ShimPod(NamespacedResourceG, msgspec.Struct):
    """What our Pod would have to look like for lightkube's verbs: mutable apiVersion and kind, camelCase metadata."""

    _api_info = ApiInfo(ResourceDef("", "v1", "Pod"), "pods", ["get", "list", "watch", "global_list", "global_watch"])
    metadata: _Meta
    spec: PodSpec
    status: PodStatus
    apiVersion: str | None = None  # noqa: N815
    kind: str | None = None


async def ours(url: str) -> tuple[float, float]:
    client = HttpClient(Connection(server=url, verify=True), qps=10_000)
    listed = await timed_list(client)
    started = time.perf_counter()
    count = 0
    async for _ in client.watch(Pod, resource_version="1"):
        count += 1
    took = time.perf_counter() - started
    await client.close()
    return listed, took / count * 1e6


async def timed_list(client: HttpClient) -> float:
    started = time.perf_counter()
    listing = await client.list(Pod)
    took = time.perf_counter() - started
    assert listing.resource_version == "1"
    return took


async def lightkube(url: str, kind: Any) -> tuple[float, float]:
    config = KubeConfig.from_one(cluster=Cluster(server=url), user=User(token="none"))
    client = AsyncClient(config=config, trust_env=False)
    started = time.perf_counter()
    _ = [item async for item in client.list(kind, namespace="*", chunk_size=PAGE)]
    listed = time.perf_counter() - started
    started = time.perf_counter()
    count = 0
    async for _event in client.watch(kind, namespace="*", resource_version="1"):
        count += 1
        if count == EVENTS:
            break
    took = time.perf_counter() - started
    await client.close()
    return listed, took / count * 1e6


async def aiohttp_(url: str) -> tuple[float, float]:
    async with ClientSession(url) as session:
        started = time.perf_counter()
        items: list[Pod] = []
        more = ""
        while True:
            async with session.get(
                "/api/v1/pods", params={"limit": str(PAGE)} | ({"continue": more} if more else {})
            ) as response:
                page, _, more = wire.decode_page(Pod, await response.read())
            items.extend(page)
            if not more:
                break
        listed = time.perf_counter() - started
        started = time.perf_counter()
        count = 0
        async with session.get("/api/v1/pods", params={"watch": "1"}, read_bufsize=2**20) as response:
            async for line in response.content:
                wire.decode_event(Pod, line)
                count += 1
        return listed, (time.perf_counter() - started) / count * 1e6


EVENTS = 0


def main() -> None:
    global EVENTS
    pods, EVENTS = (int(a) for a in (sys.argv[1:] + ["20000", "20000"][len(sys.argv) - 1 :]))
    spawn = multiprocessing.get_context("spawn")
    port: multiprocessing.Queue[int] = spawn.Queue()
    server = spawn.Process(target=serve, args=(pods, EVENTS, port), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}"
    print(f"{pods} pods of {len(json.dumps(pod(1)))} bytes in pages of {PAGE}; {EVENTS} watch events")
    runs = {
        "kubewright (httpx2, narrow structs)": lambda: ours(url),
        "lightkube verbs, narrow shim": lambda: lightkube(url, ShimPod),
        "lightkube verbs, full models": lambda: lightkube(url, FullPod),
        "aiohttp, narrow structs": lambda: aiohttp_(url),
    }
    for name, run in runs.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        listed, event_us = asyncio.run(run())
        cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        print(f"{name:40} list {listed:6.2f} s   watch {event_us:6.0f} µs an event   cpu {cpu:5.2f} s")
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
