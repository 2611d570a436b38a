"""An event loop whose clock jumps: simulated hours in seconds, with the real controllers.

While something is ready it runs, and no time passes; when nothing is, the clock moves to the next timer. There are no sockets, no
pipes and no threads in such a world: the first two are refused, and work for an executor runs inline and takes no virtual time,
so that `asyncio.to_thread` in production code needs no special case here.

Everything runs in the same order every time, with one exception that asyncio brings along: sets of futures (`asyncio.wait`, a
TaskGroup that aborts) are walked in the order of their addresses. Keep decisions out of those.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from kubewright.errors import KubewrightError

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The date at virtual second zero, for `Clock(EPOCH)`. Any fixed date would do."""


class Deadlock(KubewrightError):
    """Everybody waits and no timer is set, so nothing can ever happen again; the text lists who waits."""


class OutOfTime(KubewrightError):
    """The clock passed the limit given to `run`, or a condition did not come true in time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, starting at second zero.

    `limit_s` ends a run that would otherwise go on for ever on its periodic timers.

    Raises:
        Deadlock: nothing is ready and no timer is set.
        OutOfTime: the clock would pass `limit_s`.
        RuntimeError: somebody wants to wait for a file descriptor.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._jump = _Jump(limit_s, self._waiting)
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Call `func` here and now; whatever `executor` is, no thread or process is used."""
        del executor
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # the caller gets it by awaiting, as with any executor
            answer.set_exception(error)
        return answer

    def _waiting(self) -> list[str]:
        return sorted(_place(task) for task in asyncio.all_tasks(self) if not task.done())


def run(main: Coroutine[Any, Any, T], *, real_time: bool = False, limit_s: float | None = None) -> T:
    """Run `main` to its end on virtual time, or on the wall clock with `real_time`, and return its result.

    `limit_s` counts only on virtual time.
    """
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None if real_time else lambda: VirtualLoop(limit_s)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def until(condition: Callable[[], bool], *, within_s: float, every_s: float = 0.1, what: str = "") -> float:
    """Wait until `condition()` is true, asking every `every_s`; returns the loop's time then.

    Raises:
        OutOfTime: it was not true `within_s` from now; `what` says in the text what was awaited.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        left = deadline - loop.time()
        if left <= 0:
            wanted = what or getattr(condition, "__qualname__", repr(condition))
            raise OutOfTime(f"still waiting after {within_s:g} s for: {wanted}")
        await asyncio.sleep(min(every_s, left))
    return loop.time()


async def at(moment_s: float) -> None:
    """Wait until the loop's clock shows `moment_s`; at once when it already does."""
    await asyncio.sleep(max(0.0, moment_s - asyncio.get_running_loop().time()))


class _Jump(selectors.BaseSelector):
    """Instead of waiting for `timeout`, says that it has passed. Knows one file: the loop's own wake-up pipe."""

    def __init__(self, limit_s: float | None, waiting: Callable[[], list[str]]) -> None:
        self.now_s = 0.0
        self._limit_s = limit_s
        self._waiting = waiting
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set; waiting: " + ("; ".join(self._waiting()) or "nobody"))
        if timeout > 0:
            # Rounded so that 0.1 + 0.2 reads 0.3; the loop treats what is due within a nanosecond as due.
            then_s = round(self.now_s + timeout, 9)
            if self._limit_s is not None and then_s > self._limit_s:
                raise OutOfTime(f"still running at the limit of {self._limit_s:g} virtual seconds")
            self.now_s = then_s if then_s > self.now_s else self.now_s + timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:
            raise RuntimeError("virtual time has no sockets or pipes: use the in-memory doors, or run with real_time=True")
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


def _place(task: "asyncio.Task[Any]") -> str:
    """A task's name and the innermost line at which it waits."""
    stack = task.get_stack(limit=1)
    if not stack:
        return task.get_name()
    code = stack[0].f_code
    return f"{task.get_name()} in {code.co_qualname}"
