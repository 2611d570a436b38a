"""The operator: mirror, controllers and the provider's own work, started together and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import structlog

from kubewright.clock import Clock
from kubewright.cloud.measured import measured
from kubewright.cloud.provider import Background, CloudProvider, HeedsCorrections, Measured, background
from kubewright.controllers.actor import Actor
from kubewright.controllers.ages import Collection, Expiration
from kubewright.controllers.buffers import BufferStatus
from kubewright.controllers.claims import ClaimLifecycle
from kubewright.controllers.consolidation import DisruptionConditions
from kubewright.controllers.context import Context
from kubewright.controllers.disruption import Disruption
from kubewright.controllers.evictions import EvictionQueue
from kubewright.controllers.failures import Say
from kubewright.controllers.health import Consistency, NodeRepair
from kubewright.controllers.nodes import NodeTermination
from kubewright.controllers.orders import OrderQueue
from kubewright.controllers.overlays import OverlayStatus
from kubewright.controllers.podevents import PodEvents
from kubewright.controllers.podtimes import PodTimes
from kubewright.controllers.pools import Hydration, PoolCounter, PoolStatus
from kubewright.controllers.provisioner import Ask, Decide, Provisioner
from kubewright.controllers.purchases import Purchases
from kubewright.controllers.static import StaticDeprovisioning, StaticIsOff, StaticProvisioning
from kubewright.controllers.unused import UnusedPurchases
from kubewright.errors import KubewrightError
from kubewright.kube.client import KubeClient
from kubewright.kube.controller import Controller, Singleton
from kubewright.kube.events import Recorder
from kubewright.kube.instruments import ControllerMetrics
from kubewright.metrics import Registry
from kubewright.operator import deciding
from kubewright.operator.disrupting import Disrupter, Disrupts
from kubewright.operator.observation import Observation
from kubewright.records.keeper import Keeper
from kubewright.settings import Settings
from kubewright.state.mirror import Mirror

FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 1.0, 60.0
"""Between two starts of a part of the provider that fails in ways it should not."""
WARM_EVERY_S = 30.0
"""Between two looks of a standby at what the provider sells."""


class Runs(Protocol):
    async def run(self) -> None: ...


class Keyed(Runs, Protocol):
    @property
    def controller(self) -> Controller | Singleton: ...


class Operator:
    """Everything that acts on one cluster. Make it and run it in one event loop; a stopped one is not started again.

    `client`, `provider` belong to the caller, who closes them. `decide`, `ask`, `say` replace the solver's own; see
    `controllers.provisioner.Provisioner`.
    """

    def __init__(
        self,
        client: KubeClient,
        provider: CloudProvider,
        settings: Settings,
        clock: Clock,
        *,
        registry: Registry | None = None,
        decide: Decide | None = None,
        ask: Ask | None = None,
        say: Say | None = None,
        keeper: Keeper | None = None,
        disrupter: Disrupts | None = None,
        observability: bool = True,
    ) -> None:
        """`keeper` writes a record of every pass; `disrupter` decides about disruption in place of our own rules.

        Without `observability` there are no metrics of each pod, node and condition.
        """
        self.registry = registry or Registry()
        provider = measured(provider, self.registry)
        self.mirror = Mirror(client, provider, clock, settings)
        if isinstance(provider, HeedsCorrections):
            provider.correct_with(self.mirror.corrected)
        if isinstance(provider, Measured):
            provider.measure(self.registry)
        self._recorder = Recorder(client, clock)
        self._provider = provider
        self._clock = clock
        self._log = structlog.get_logger("kubewright.operator")
        actor = Actor(client, self._recorder, self._count, self._measure, self._observe, self.mirror.saw)
        purchases = Purchases(client, self.mirror, actor)
        self.context = Context(client, provider, self.mirror, actor, clock, settings, purchases)
        evictions = EvictionQueue(self.context)
        solver = deciding.Solver(settings, provider)
        self.observation = Observation(
            self.mirror, provider, clock, self.registry, PodTimes(self.context), everything=observability
        )
        decides = self.observation.noting(decide or solver.decide)
        self._keeper = keeper
        if keeper is not None:
            decides = keeper.noting(decides)
        self.provisioner = Provisioner(self.context, decides, ask or solver.ask, say or solver.say)
        self.orders = OrderQueue(self.context)
        disrupts = disrupter or Disrupter(settings, provider)
        self.disruption = Disruption(self.context, self.orders, disrupts.look, disrupts.confirm)
        keyed = (
            PoolStatus(self.context),
            PoolCounter(self.context),
            ClaimLifecycle(self.context),
            NodeTermination(self.context, evictions),
            evictions,
            PodEvents(self.context),
            DisruptionConditions(self.context),
            Expiration(self.context),
            Collection(self.context),
            Hydration(self.context),
            UnusedPurchases(self.context),
            Consistency(self.context),
            self.disruption,
            self.orders,
        )
        gated = self._gated(ask or solver.ask)
        self._controllers: Sequence[Runs] = (*keyed, *gated, self.provisioner)
        listened: Sequence[Keyed] = (*keyed, *gated)
        for part in listened:
            metrics = ControllerMetrics(self.registry, part.controller.name, part.controller.workers)
            part.controller.listen(metrics)
            self.observation.listen(metrics)

    def _gated(self, ask: Ask) -> Sequence[Keyed]:
        """Controllers of alpha features that are on."""
        gates = self.context.settings.feature_gates
        found: list[Keyed] = []
        if gates.node_repair:
            found.append(NodeRepair(self.context))
        if gates.node_overlay:
            found.append(OverlayStatus(self.context))
        if gates.static_capacity:
            found += [StaticProvisioning(self.context, ask), StaticDeprovisioning(self.context)]
        else:
            StaticIsOff(self.context)
        if gates.capacity_buffer:
            buffers = BufferStatus(self.context, self.provisioner.trigger)
            self.provisioner.passed = buffers.passed
            found.append(buffers)
        return found

    @property
    def ready_checks(self) -> Mapping[str, Callable[[], bool]]:
        """For /readyz."""
        return {"caches": lambda: all(i.synced for i in self.mirror.informers)}

    async def watch(self) -> None:
        """Only keep the mirror, as a standby does; `act` may join at any time. Until cancelled."""
        await self.mirror.run()

    async def act(self) -> None:
        """Run the controllers on the mirror that `watch` keeps, until cancelled.

        Raises:
            ExceptionGroup: some part failed in a way that it cannot go on from; the others have been stopped.
        """
        await self.mirror.wait_synced()
        self.orders.recover()  # before anybody plans: what was under way is under way again
        self._log.info("the mirror is complete, starting to act", provider=self._provider.name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.run(), name="events")
            if self._keeper is not None:
                tasks.create_task(self._keeper.run(), name="records")
            for part in background(self._provider):
                tasks.create_task(self._keep_running(part), name=part.name)
            for controller in self._controllers:
                tasks.create_task(controller.run(), name=type(controller).__name__)

    async def run(self) -> None:
        """Watch and act until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch(), name="mirror")
            tasks.create_task(self.act(), name="controllers")

    async def lead(
        self,
        led_by: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        *,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Watch always, act only while elected: `led_by` calls what it is given when this process leads, and cancels it after.

        A standby keeps its caches warm, what the provider sells included. `first` is awaited each time before acting.

        Raises:
            LeaseLost: as `led_by` does.
            ExceptionGroup: as `act` does.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self.watch(), name="mirror")
                warming = tasks.create_task(self._keep_warm(), name="instance types")

                async def act() -> None:
                    warming.cancel()
                    if first is not None:
                        await first()
                    await self.act()

                try:
                    await led_by(act)
                finally:
                    watching.cancel()
                    warming.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1 and isinstance(group.exceptions[0], KubewrightError):
                raise group.exceptions[0] from None
            raise

    async def _keep_warm(self) -> None:
        """Ask for instance types now and then, so that a standby that takes over can plan at once."""
        await self.mirror.wait_synced()
        while True:
            await self.mirror.refresh_pools()
            await asyncio.sleep(WARM_EVERY_S)

    async def _keep_running(self, part: Background) -> None:
        """A provider may be anybody's: a part of it that fails is started again later, and the operator goes on without it."""
        failures = 0
        while True:
            try:
                return await part.run()
            except Exception as error:  # noqa: BLE001 — whatever it is: it is logged, counted, and the part comes back
                delay_s = min(FIRST_BACK_OFF_S * 2 ** min(failures, 10), LAST_BACK_OFF_S)
                failures += 1
                self._log.error(
                    "a part of the cloud provider failed, starting it again",
                    part=part.name,
                    error=str(error) or repr(error),
                    retry_after_s=delay_s,
                    exc_info=error,
                )
                self._provider_failed(part.name, error)
                await asyncio.sleep(delay_s)

    def _provider_failed(self, method: str, error: Exception) -> None:
        labelled = {"controller": "", "method": method, "provider": self._provider.name, "error": type(error).__name__}
        self.registry.inc("karpenter_cloudprovider_errors_total", **labelled)

    def _observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.registry.observe(_prefixed(name), value, **labels)

    def _measure(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self.registry.set(_prefixed(name), value, **labels)

    def _count(self, name: str, labels: Mapping[str, str], amount: int) -> None:
        self.registry.inc(_prefixed(name), amount, **labels)


def _prefixed(name: str) -> str:
    """Metrics are Karpenter's, except for those of our own, which say so."""
    return name if name.startswith("kubewright_") else f"karpenter_{name}"
