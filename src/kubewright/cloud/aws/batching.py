"""Equal or similar calls that come close together become one. Source: spec/aws 7.5."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from kubewright.cloud.aws.measures import Measures

Q = TypeVar("Q")
A = TypeVar("A")

AT_ONCE = 100
"""Batches of one kind that may be under way at a time."""


class _Open(Generic[Q, A]):
    """A batch that still takes requests."""

    def __init__(self, end: float) -> None:
        self.began = end
        self.end = end
        self.items: list[Q] = []
        self.answers: list[asyncio.Future[A]] = []
        self.waiting = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class Batcher(Generic[Q, A]):
    """`add` waits for its own answer; `do` gets what was gathered and gives one answer, or one error, for each.

    A batch with equal `key` goes out `idle` after its last request, `longest` after its first, or when it has `most`. When all
    who wait for a batch are cancelled, so is the batch: nothing is bought for a process that has ended.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        *,
        key: Callable[[Q], Hashable] = lambda _: None,
        idle: timedelta,
        longest: timedelta = timedelta(seconds=1),
        most: int,
        measures: Measures | None = None,
    ) -> None:
        self._name = name
        self._do = do
        self._key = key
        self._idle_s = idle.total_seconds()
        self._longest_s = longest.total_seconds()
        self._most = most
        self._measures = measures or Measures()
        self._open: dict[Hashable, _Open[Q, A]] = {}
        self._slots: asyncio.Semaphore | None = None

    async def add(self, item: Q) -> A:
        """Raises whatever `do` gave, or raised, for the item."""
        loop = asyncio.get_running_loop()
        key = self._key(item)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Open(loop.time() + self._longest_s)
            batch.began = loop.time()
        answer: asyncio.Future[A] = loop.create_future()
        batch.items.append(item)
        batch.answers.append(answer)
        batch.waiting += 1
        if batch.timer is not None:
            batch.timer.cancel()
        if len(batch.items) >= self._most:
            self._close(key, batch)
        else:
            batch.timer = loop.call_at(min(loop.time() + self._idle_s, batch.end), self._close, key, batch)
        try:
            return await answer
        finally:
            batch.waiting -= 1
            if batch.waiting == 0:
                self._abandon(key, batch)

    def _abandon(self, key: Hashable, batch: _Open[Q, A]) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
        if batch.task is not None:
            batch.task.cancel()  # nothing happens to one that is done
        elif self._open.get(key) is batch:
            del self._open[key]

    def _close(self, key: Hashable, batch: _Open[Q, A]) -> None:
        del self._open[key]
        if batch.timer is not None:
            batch.timer.cancel()
        batch.task = asyncio.get_running_loop().create_task(self._run(batch), name=f"batch of {self._name}")

    async def _run(self, batch: _Open[Q, A]) -> None:
        self._slots = self._slots or asyncio.Semaphore(AT_ONCE)
        took_s = asyncio.get_running_loop().time() - batch.began
        self._measures.observe("karpenter_cloudprovider_batcher_batch_time_seconds", took_s, batcher=self._name)
        self._measures.observe("karpenter_cloudprovider_batcher_batch_size", len(batch.items), batcher=self._name)
        try:
            async with self._slots:
                found = await self._do(batch.items)
        except asyncio.CancelledError:
            for answer in batch.answers:
                answer.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 — whatever it is, it belongs to those who wait
            found = [error] * len(batch.items)  # type: ignore[list-item]
        for answer, outcome in zip(batch.answers, found, strict=True):
            if answer.done():
                continue
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
