"""Three doors to a Kubernetes API, each behind `KubeClient`: the store in this process, the same over HTTP, and a real server."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubewright.api.core import Namespace, PodDisruptionBudget
from kubewright.api.crds import CRDS, render
from kubewright.api.meta import ObjectMeta
from kubewright.clock import Clock
from kubewright.kube.client import KubeClient, MergePatch
from kubewright.kube.config import load
from kubewright.kube.http import HttpClient
from kubewright.sim import loop
from kubewright.sim.apiserver.direct import DirectClient
from kubewright.sim.apiserver.http import serve, write_kubeconfig
from kubewright.sim.apiserver.store import Store
from tests.plane.plane import Plane

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = 3
"""Small, so that a list of a few objects takes several pages."""


class Door:
    """What a contract test gets. `namespace` is a new one."""

    def __init__(self, client: KubeClient, namespace: str, *, store: Store | None) -> None:
        self.client = client
        self.namespace = namespace
        self._store = store

    async def forget(self) -> None:
        """Make version 1 too old to watch from; on a real server it is, since its cache begins later."""
        if self._store is not None:
            self._store.compact()

    async def settled(self, budget: str, *, allowed: int, healthy: int, desired: int) -> PodDisruptionBudget:
        """The budget once a controller has counted its pods: the real one, or this helper in its place."""
        if self._store is not None:
            now = await self.client.get(PodDisruptionBudget, budget, self.namespace)
            counted = {
                "observedGeneration": now.metadata.generation,
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": healthy,
            }
            patch = MergePatch({"status": counted})
            return await self.client.patch(PodDisruptionBudget, budget, patch, self.namespace, subresource="status")

        async def counts() -> PodDisruptionBudget | None:
            found = await self.client.get(PodDisruptionBudget, budget, self.namespace)
            status = found.status
            same = (status.disruptions_allowed, status.current_healthy, status.desired_healthy) == (allowed, healthy, desired)
            return found if same and status.observed_generation == found.metadata.generation else None

        return await eventually(counts)


async def eventually(ask: Callable[[], Awaitable[Any]], within_s: float = 20.0) -> Any:
    """The first answer that is not None or False."""
    async with asyncio.timeout(within_s):
        while not (answer := await ask()):  # noqa: ASYNC110  # the server is another process
            await asyncio.sleep(0.05)
        return answer


class DirectDoor:
    """Calls into the store, on virtual time."""

    def run(self, test: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            store = _store()
            client = DirectClient(store)
            await test(Door(client, await _new_namespace(client), store=store))

        loop.run(whole(), limit_s=7200)


class HttpDoor:
    """The production client, over loopback, to the store behind its HTTP door."""

    def run(self, test: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            store = _store()
            server = await serve(store)
            try:
                with tempfile.TemporaryDirectory() as folder:
                    kubeconfig = Path(folder, "kubeconfig")
                    write_kubeconfig(kubeconfig, server.url)
                    async with _client(kubeconfig) as client:
                        await test(Door(client, await _new_namespace(client), store=store))
            finally:
                await server.close()

        asyncio.run(whole())


class RealDoor:
    """The production client and a kube-apiserver, with kube-controller-manager counting budgets."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._has_crds = False

    def run(self, test: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
        self._install_crds()

        async def whole() -> None:
            async with _client(self._plane.kubeconfig()) as client:
                namespace = await _new_namespace(client)
                try:
                    await test(Door(client, namespace, store=None))
                finally:
                    await client.delete(Namespace, namespace)

        asyncio.run(whole())

    def _install_crds(self) -> None:
        if self._has_crds:
            return
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(render())
            file.flush()
            self._plane.apply(Path(file.name))
        self._has_crds = True


def _store() -> Store:
    return Store(Clock(EPOCH), seed=7, crds=list(CRDS.values()))


def _client(kubeconfig: Path) -> AbstractAsyncContextManager[HttpClient]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[HttpClient]:
        client = HttpClient(load(str(kubeconfig)), page=PAGE)
        try:
            yield client
        finally:
            await client.close()

    return opened()


async def _new_namespace(client: KubeClient) -> str:
    made = await client.create(Namespace(metadata=ObjectMeta(generate_name="contract-")))
    return made.name
