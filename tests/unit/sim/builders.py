"""Wire objects with full defaults, and a cluster to put them in."""

from collections.abc import Callable, Coroutine
from typing import Any

from kubewright.clock import Clock
from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import ClusterSettings, PretendCluster

Item = dict[str, Any]
Story = Callable[[Store, PretendCluster], Coroutine[Any, Any, Any]]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def play(story: Story, *, seed: int = 0, settings: ClusterSettings | None = None) -> Any:
    """Run a story on a fresh cluster in virtual time, and return what it returns; two days are enough for any."""

    async def main() -> Any:
        store = Store(Clock(loop.EPOCH), seed=seed)
        async with PretendCluster(store, settings) as cluster:
            return await story(store, cluster)

    return loop.run(main(), limit_s=172_800)


def node(
    name: str, *, zone: str = "a", cpu: str = "4", memory: str = "16Gi", pods: str = "110", ready: bool = True, **more: Any
) -> Item:
    room = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("room", {})}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}] if ready else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone, **more.pop("labels", {})}},
        "spec": more,
        "status": {"capacity": room, "allocatable": room, "conditions": conditions},
    }


def container(cpu: str = "500m", memory: str = "512Mi", **more: Any) -> Item:
    return {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def pod(name: str = "p", *, cpu: str = "500m", namespace: str = "default", labels: Item | None = None, **spec: Any) -> Item:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": [container(cpu)], **spec},
    }


def template(labels: Item, *, annotations: Item | None = None, **spec: Any) -> Item:
    return {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": {"containers": [container()], **spec}}


def workload(kind: str, name: str = "web", *, replicas: int | None = 3, pods: Item | None = None, **spec: Any) -> Item:
    labels = {"app": name}
    body: Item = {"selector": {"matchLabels": labels}, "template": template(labels, **(pods or {})), **spec}
    if replicas is not None:
        body["replicas"] = replicas
    if kind == "StatefulSet":
        body.setdefault("serviceName", name)
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": body}


def job(name: str = "batch", *, annotations: Item | None = None, pods: Item | None = None, **spec: Any) -> Item:
    body = template({}, annotations=annotations, restartPolicy="Never", **(pods or {}))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": body, **spec},
    }


def budget(name: str = "web", **spec: Any) -> Item:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def pods(store: Store, app: str = "") -> list[Item]:
    found, _ = store.list("v1", "Pod", labels=f"app={app}" if app else "")
    return found


def ready(store: Store, app: str = "") -> list[Item]:
    return [
        p
        for p in pods(store, app)
        if "deletionTimestamp" not in p["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))
    ]


def nodes_of(found: list[Item]) -> list[str]:
    return sorted(p["spec"].get("nodeName", "") for p in found)


def names(found: list[Item]) -> list[str]:
    return sorted(p["metadata"]["name"] for p in found)
