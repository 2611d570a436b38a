import asyncio
from datetime import timedelta

import pytest
import structlog

from kubewright.errors import Conflict, NotFound
from kubewright.kube.controller import CONFLICT_DELAY, Controller, Singleton
from kubewright.kube.instruments import ControllerMetrics
from kubewright.metrics import Registry
from kubewright.sim.loop import run


def now() -> float:
    return asyncio.get_running_loop().time()


async def for_a_while(controller: Controller | Singleton, seconds: float) -> None:
    """Run, then cancel, and see that cancelling is clean."""
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_failure_is_logged_with_its_object_counted_and_tried_again() -> None:
    registry = Registry()

    async def main() -> list[float]:
        at: list[float] = []

        async def reconcile(key: str) -> timedelta | None:
            at.append(now())
            if len(at) < 4:
                raise NotFound(404, "NotFound", "nodepools.karpenter.sh not found")
            return None

        controller = Controller("nodepool.hash", reconcile, hooks=ControllerMetrics(registry, "nodepool.hash"))
        controller.enqueue("default/web")
        await for_a_while(controller, 100)
        return at

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        assert run(main()) == [0, 1, 3, 7]
    errors = [line for line in logs if line["log_level"] == "error"]
    assert len(errors) == 3
    first = errors[0]
    assert (first["controller"], first["namespace"], first["name"]) == ("nodepool.hash", "default", "web")
    assert first["error"] == "nodepools.karpenter.sh not found"
    assert len({line["reconcileID"] for line in errors}) == 3
    assert registry.value("controller_runtime_reconcile_errors_total", controller="nodepool.hash") == 3
    assert registry.value("controller_runtime_reconcile_total", controller="nodepool.hash", result="success") == 1
    assert registry.value("workqueue_retries_total", name="nodepool.hash", controller="nodepool.hash") == 3
    assert registry.value("controller_runtime_active_workers", controller="nodepool.hash") == 0


def test_two_runs_in_virtual_time_log_the_same() -> None:
    async def main() -> None:
        async def reconcile(key: str) -> timedelta | None:
            raise ValueError(key)

        controller = Controller("x", reconcile, workers=2)
        for key in ("b", "a", "n/c"):
            controller.enqueue(key)
        await for_a_while(controller, 50)

    def logs() -> list[dict[str, object]]:
        with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            run(main())
        return [{k: v for k, v in line.items() if k != "exc_info"} for line in lines]

    assert logs() == logs()


def test_a_conflict_is_tried_again_at_once_and_is_no_error() -> None:
    async def main() -> list[float]:
        at: list[float] = []

        async def reconcile(key: str) -> timedelta | None:
            at.append(now())
            if len(at) < 3:
                raise Conflict(409, "Conflict", "the object has been modified")
            return None

        controller = Controller("x", reconcile)
        controller.enqueue("a")
        await for_a_while(controller, 10)
        return at

    with structlog.testing.capture_logs() as logs:
        delay = CONFLICT_DELAY.total_seconds()
        assert run(main()) == pytest.approx([0, delay, 3 * delay])
    assert not [line for line in logs if line["log_level"] == "error"]


def test_a_reconcile_that_wants_to_be_called_again_is() -> None:
    async def main() -> list[float]:
        at: list[float] = []

        async def reconcile(key: str) -> timedelta | None:
            at.append(now())
            return timedelta(seconds=30) if len(at) < 3 else None

        controller = Controller("x", reconcile)
        controller.enqueue("a")
        await for_a_while(controller, 1000)
        return at

    assert run(main()) == [0, 30, 60]


def test_workers_bound_what_runs_at_a_time() -> None:
    async def main() -> int:
        running = most = 0

        async def reconcile(key: str) -> timedelta | None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            return None

        controller = Controller("x", reconcile, workers=3)
        for index in range(10):
            controller.enqueue(f"{index}")
        await for_a_while(controller, 3.5)
        return most

    assert run(main()) == 3


def test_cancelling_reaches_the_reconciles_in_the_order_they_began() -> None:
    async def main() -> list[str]:
        ended: list[str] = []

        async def reconcile(key: str) -> timedelta | None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(key)
            return None

        controller = Controller("x", reconcile, workers=50)
        for index in range(50):
            controller.enqueue(f"{index:02}")
        await for_a_while(controller, 1)
        return ended

    assert run(main()) == [f"{index:02}" for index in range(50)]


def test_what_is_no_exception_is_not_caught() -> None:
    class Killed(BaseException):
        pass

    async def main() -> None:
        async def reconcile(key: str) -> timedelta | None:
            raise Killed

        controller = Controller("x", reconcile)
        controller.enqueue("a")
        with pytest.raises(BaseExceptionGroup) as caught:
            await controller.run()
        assert isinstance(caught.value.exceptions[0], Killed)

    run(main())


def test_a_singleton_starts_by_itself_repeats_and_can_be_triggered() -> None:
    async def main() -> list[float]:
        at: list[float] = []

        async def step() -> timedelta | None:
            at.append(now())
            return timedelta(seconds=10)

        singleton = Singleton("pricing", step)
        task = asyncio.create_task(singleton.run())
        await asyncio.sleep(4)
        singleton.trigger()
        await asyncio.sleep(21)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return at

    # The trigger at 4 does not move the run that was due at 10, and asks for none later than that.
    assert run(main()) == [0, 4, 10, 20]


def test_success_lets_the_next_failure_be_the_first_again() -> None:
    async def main() -> list[float]:
        at: list[float] = []

        async def reconcile(key: str) -> timedelta | None:
            at.append(now())
            if len(at) in {1, 2, 4}:
                raise ValueError(key)
            return timedelta(seconds=100) if len(at) == 3 else None

        controller = Controller("x", reconcile)
        controller.enqueue("a")
        await for_a_while(controller, 1000)
        return at

    assert run(main()) == [0, 1, 3, 103, 104]


def test_metrics_can_be_wired_to_a_controller_made_elsewhere() -> None:
    registry = Registry()

    async def main() -> None:
        async def reconcile(key: str) -> timedelta | None:
            return None

        controller = Controller("x", reconcile, workers=7)
        controller.listen(ControllerMetrics(registry, controller.name, controller.workers))
        controller.enqueue("a")
        await for_a_while(controller, 1)

    run(main())
    assert registry.value("controller_runtime_max_concurrent_reconciles", controller="x") == 7
    assert registry.value("controller_runtime_reconcile_total", controller="x", result="success") == 1
    assert registry.value("workqueue_adds_total", name="x", controller="x") == 1
