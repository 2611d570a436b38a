"""A provider with its calls timed and its errors counted, whoever made it. Source: spec/scheduling 12.1."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import structlog

from kubewright.cloud.provider import CloudProvider
from kubewright.errors import CloudError, InstanceNotFound, InsufficientCapacity, LaunchFailed, NodeClassNotReady
from kubewright.metrics import Registry

T = TypeVar("T")
CALLS = {
    "create": "Create",
    "delete": "Delete",
    "get": "Get",
    "list": "List",
    "instance_types": "GetInstanceTypes",
    "drift_reason": "IsDrifted",
}
"""Method → its name in the reference's metrics."""
_ERRORS: tuple[tuple[type[CloudError], str], ...] = (
    (InstanceNotFound, "NodeClaimNotFoundError"),
    (InsufficientCapacity, "InsufficientCapacityError"),
    (NodeClassNotReady, "NodeClassNotReadyError"),
    (LaunchFailed, "CreateError"),
)


def measured(provider: CloudProvider, registry: Registry) -> CloudProvider:
    """`provider`, with `karpenter_cloudprovider_duration_seconds` and `…_errors_total` kept for its calls.

    Everything else of it, what it offers beyond the contract included, is as it was.
    """
    return cast("CloudProvider", _Measured(provider, registry))


class _Measured:
    def __init__(self, provider: CloudProvider, registry: Registry) -> None:
        self._provider = provider
        # Copied and not looked up: whether a provider offers more is asked by isinstance, which looks at what is really there.
        for name in dir(provider):
            if not name.startswith("_"):
                found = getattr(provider, name)
                self.__dict__[name] = _timed(found, provider.name, CALLS[name], registry) if name in CALLS else found

    def __getattr__(self, name: str) -> Any:
        """What a provider hands on without listing it."""
        return getattr(self._provider, name)


def _timed(call: Callable[..., Awaitable[T]], provider: str, method: str, registry: Registry) -> Callable[..., Awaitable[T]]:
    async def timed(*args: Any, **kwargs: Any) -> T:
        loop = asyncio.get_running_loop()
        controller = structlog.contextvars.get_contextvars().get("controller", "")
        labelled = {"controller": controller, "method": method, "provider": provider}
        began = loop.time()
        try:
            return await call(*args, **kwargs)
        except Exception as error:
            registry.inc("karpenter_cloudprovider_errors_total", **labelled, error=error_name(error))
            raise
        finally:
            registry.observe("karpenter_cloudprovider_duration_seconds", loop.time() - began, **labelled)

    return timed


def error_name(error: Exception) -> str:
    """What the reference calls such an error; our own name where it has none."""
    return next((name for kind, name in _ERRORS if isinstance(error, kind)), type(error).__name__)
