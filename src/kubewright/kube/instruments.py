"""Listeners that turn what the runtime tells into the reference's metrics."""

import asyncio
from datetime import timedelta

from kubewright.api.meta import Object
from kubewright.kube.controller import ControllerHooks
from kubewright.kube.http import ClientHooks
from kubewright.metrics import Registry


class ControllerMetrics(ControllerHooks):
    """controller_runtime_* and workqueue_* of one controller."""

    def __init__(self, registry: Registry, controller: str, workers: int = 1) -> None:
        self._registry = registry
        self._controller = controller
        self._active = 0
        self._since: dict[str, float] = {}
        """Key under way → loop time at which it began."""
        self._queue = {"name": controller, "controller": controller}
        registry.set("controller_runtime_max_concurrent_reconciles", workers, controller=controller)

    def added(self, key: str, depth: int) -> None:
        del key
        self._registry.inc("workqueue_adds_total", **self._queue)
        self._registry.set("workqueue_depth", depth, **self._queue)

    def taken(self, key: str, depth: int, waited_s: float) -> None:
        del key
        self._registry.set("workqueue_depth", depth, **self._queue)
        self._registry.observe("workqueue_queue_duration_seconds", waited_s, **self._queue)

    def finished(self, key: str, worked_s: float) -> None:
        self._since.pop(key, None)
        # Here and not in _ended: a cancelled reconcile neither succeeds nor fails.
        self._active -= 1
        self._registry.set("controller_runtime_active_workers", self._active, controller=self._controller)
        self._registry.observe("workqueue_work_duration_seconds", worked_s, **self._queue)

    def retried(self, key: str, delay: timedelta) -> None:
        del key, delay
        self._registry.inc("workqueue_retries_total", **self._queue)

    def tick(self) -> None:
        """Bring the gauges of work under way up to date."""
        now = asyncio.get_running_loop().time()
        ages = [now - since for since in self._since.values()]
        self._registry.set("workqueue_unfinished_work_seconds", sum(ages), **self._queue)
        self._registry.set("workqueue_longest_running_processor_seconds", max(ages, default=0.0), **self._queue)

    def started(self, key: str) -> None:
        self._since[key] = asyncio.get_running_loop().time()
        self._active += 1
        self._registry.set("controller_runtime_active_workers", self._active, controller=self._controller)

    def succeeded(self, key: str, took_s: float, again: timedelta | None) -> None:
        del key
        self._ended("success" if again is None else "requeue_after", took_s)

    def failed(self, key: str, took_s: float, error: Exception) -> None:
        del key, error
        self._registry.inc("controller_runtime_reconcile_errors_total", controller=self._controller)
        self._ended("error", took_s)

    def _ended(self, result: str, took_s: float) -> None:
        self._registry.inc("controller_runtime_reconcile_total", controller=self._controller, result=result)
        self._registry.observe("controller_runtime_reconcile_time_seconds", took_s, controller=self._controller)


class ClientMetrics(ClientHooks):
    """client_go_request_*, under the reference's names though no Go is near."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answered(self, method: str, kind: type[Object], subresource: str, code: int, took_s: float) -> None:
        resource = kind.RESOURCE
        # client-go counts a request without an answer as "<error>".
        self._registry.inc("client_go_request_total", code=str(code) if code else "<error>", method=method)
        self._registry.observe(
            "client_go_request_duration_seconds",
            took_s,
            verb=method,
            group=resource.group,
            version=resource.version,
            kind=resource.kind,
            subresource=subresource,
        )
