"""Leader election by a Lease: at most one operator acts, and the next one need not wait for a clock to agree.

Nobody's timestamps are compared with anybody else's. A candidate remembers when *it* saw the Lease change last; if it
does not change for the Lease's own duration, the holder is gone. Compatible with client-go's election, so that kubewright
and Karpenter can hold the same Lease in turn.

Source: the rules (not the code) of client-go leaderelection; the default times are controller-runtime's.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog

from kubewright.api.core import Lease, LeaseSpec
from kubewright.api.meta import ObjectMeta
from kubewright.clock import Clock
from kubewright.errors import AlreadyExists, Conflict, KubeError, KubewrightError, NotFound
from kubewright.kube.client import EventType, KubeClient, MergePatch

LEASE_DURATION = timedelta(seconds=15)
RENEW_DEADLINE = timedelta(seconds=10)
RETRY_PERIOD = timedelta(seconds=2)


class LeaseLost(KubewrightError):
    """Somebody else leads, or nobody could be asked for too long: stop acting at once, and start anew."""


class LeaderElector:
    """One candidate. `identity` must be unique to this process, or two would take themselves for one.

    The Lease is taken for `lease_duration`; the holder renews every `retry_period` and gives up leading when it could
    not renew for `renew_deadline`, which must be shorter, so that it stops before a candidate starts.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: timedelta = LEASE_DURATION,
        renew_deadline: timedelta = RENEW_DEADLINE,
        retry_period: timedelta = RETRY_PERIOD,
    ) -> None:
        if not retry_period < renew_deadline < lease_duration:
            raise ValueError(
                "a lease needs retry_period < renew_deadline < lease_duration, "
                f"got {retry_period}, {renew_deadline} and {lease_duration}"
            )
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._seen: Lease | None = None
        self._seen_at = 0.0
        """Loop time when `_seen` was first seen as it is."""
        self._renewed_at: float | None = None
        """Loop time before the request of our last successful write; None when we do not hold the Lease."""
        self._log = structlog.get_logger("kubewright.leases").bind(lease=f"{namespace}/{name}", identity=identity)

    @property
    def holder(self) -> str:
        """Whose the Lease was when last seen; "" for nobody's."""
        return (self._seen.spec.holder_identity or "") if self._seen else ""

    def leads(self) -> bool:
        """Whether no candidate can have taken the Lease by now; false as soon as that is uncertain."""
        return self._renewed_at is not None and _time() - self._renewed_at < self._renew_deadline.total_seconds()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to lead, then run `lead` while the Lease is held, and hand it on at the end.

        `lead` has ended (or been cancelled and has ended) before the Lease is released.

        Raises:
            LeaseLost: the Lease could not be kept; `lead` was cancelled.
        """
        await self.acquire()
        try:
            async with asyncio.TaskGroup() as tasks:
                keeper = tasks.create_task(self._keep(), name=f"keep lease {self._name}")
                try:
                    await lead()
                finally:
                    keeper.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        finally:
            await self.release()

    async def acquire(self) -> None:
        """Return when the Lease is ours. It is asked about every `retry_period`, and at once when its holder lets go of it."""
        freed = asyncio.Event()
        watcher = asyncio.create_task(self._watch(freed), name=f"watch lease {self._name}")
        try:
            await self._acquire(freed)
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def _acquire(self, freed: asyncio.Event) -> None:
        waiting_for = None
        while True:
            freed.clear()
            try:
                if await self._try(self._renew_deadline):
                    self._log.info("became leader")
                    return
                if self.holder != waiting_for:
                    waiting_for = self.holder
                    self._log.info("waiting for the lease", holder=waiting_for)
            except (KubeError, TimeoutError) as error:
                self._log.warning("lease cannot be taken now", error=str(error) or "timed out")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry_period.total_seconds()):
                    await freed.wait()

    async def _watch(self, freed: asyncio.Event) -> None:
        """Set `freed` when somebody lets go of the Lease. Only haste depends on it: whatever fails, `_acquire` asks anyway."""
        version = ""
        while True:
            try:
                if not version:
                    version = (await self._client.get(Lease, self._name, self._namespace)).metadata.resource_version
                watch = self._client.watch(Lease, self._namespace, resource_version=version, fields=f"metadata.name={self._name}")
                try:
                    async for event in watch:
                        version = event.object.metadata.resource_version
                        mine = event.type is not EventType.BOOKMARK and event.object.name == self._name
                        if mine and (event.type is EventType.DELETED or not event.object.spec.holder_identity):
                            freed.set()
                finally:
                    if isinstance(watch, AsyncGenerator):
                        await watch.aclose()
            except KubeError:
                version = ""
            await asyncio.sleep(self._retry_period.total_seconds())

    async def release(self) -> None:
        """Hand the Lease on at once, if it is ours; failing is only a slower hand-over, so it is logged and no more."""
        if self._renewed_at is None or self._seen is None:
            return
        self._renewed_at = None
        now = _micro_time(self._clock.now())
        try:
            async with asyncio.timeout(self._retry_period.total_seconds()):
                # Removed and not "": newer API servers refuse an empty holder, and all take none for nobody.
                await self._patch(
                    self._seen, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
                )
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease was not released", error=str(error) or "timed out")
        else:
            self._log.info("released the lease")

    async def _keep(self) -> None:
        """Renew until cancelled. Raises LeaseLost."""
        while True:
            await asyncio.sleep(self._retry_period.total_seconds())
            assert self._renewed_at is not None
            left = self._renew_deadline - timedelta(seconds=_time() - self._renewed_at)
            error: KubeError | TimeoutError | None = None
            try:
                # With the deadline past (the loop was blocked), one quick try still tells whose it is.
                if not await self._try(max(left, self._retry_period)):
                    self._renewed_at = None
                    raise LeaseLost(f"lease {self._namespace}/{self._name} is now held by {self.holder or 'nobody'}")
            except (KubeError, TimeoutError) as caught:
                error = caught
                self._log.warning("lease was not renewed", error=str(error) or "timed out")
            if not self.leads():
                raise LeaseLost(
                    f"lease {self._namespace}/{self._name} could not be renewed for {self._renew_deadline.total_seconds():g} s"
                ) from error

    async def _try(self, patience: timedelta) -> bool:
        """Take or renew the Lease if that is allowed now; whether it is ours afterwards."""
        async with asyncio.timeout(patience.total_seconds()):
            asked_at = _time()
            try:
                found = await self._client.get(Lease, self._name, self._namespace)
            except NotFound:
                return await self._create(asked_at)
            self._observe(found)
            ours = found.spec.holder_identity == self._identity
            if not ours and found.spec.holder_identity and not self._is_over(found):
                return False
            now = _micro_time(self._clock.now())
            spec: dict[str, object] = {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._lease_duration.total_seconds()),
                "renewTime": now,
            }
            if not ours:
                spec |= {"acquireTime": now, "leaseTransitions": (found.spec.lease_transitions or 0) + 1}
            try:
                written = await self._patch(found, spec)
            except Conflict:
                # Somebody was quicker; what they wrote is read at the next try.
                return False if not ours else await self._try(patience)
            self._observe(written)
            self._renewed_at = asked_at
            return True

    async def _create(self, asked_at: float) -> bool:
        now = _micro_time(self._clock.now())
        lease = Lease(
            metadata=ObjectMeta(name=self._name, namespace=self._namespace),
            spec=LeaseSpec(
                holder_identity=self._identity,
                lease_duration_seconds=int(self._lease_duration.total_seconds()),
                acquire_time=now,
                renew_time=now,
                lease_transitions=0,
            ),
        )
        try:
            self._observe(await self._client.create(lease))
        except AlreadyExists:
            return False
        self._renewed_at = asked_at
        return True

    async def _patch(self, lease: Lease, spec: dict[str, object]) -> Lease:
        """Change the Lease if nobody changed it since. Raises Conflict."""
        version = lease.metadata.resource_version
        return await self._client.patch(
            Lease, self._name, MergePatch({"metadata": {"resourceVersion": version}, "spec": spec}), self._namespace
        )

    def _observe(self, lease: Lease) -> None:
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = _time()
        self._seen = lease

    def _is_over(self, lease: Lease) -> bool:
        """Whether the holder let the Lease's own duration pass, by our watch, without changing it."""
        duration_s = lease.spec.lease_duration_seconds or self._lease_duration.total_seconds()
        return _time() - self._seen_at >= duration_s


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time() -> float:
    return asyncio.get_running_loop().time()
