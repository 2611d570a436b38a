"""Providers of third parties, found by the entry point group `kubewright.cloud`.

An entry point names a function that takes a `Startup` and returns a provider; `examples/kwok` is a whole one.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata

import msgspec

from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.errors import ConfigError
from kubewright.kube.client import KubeClient
from kubewright.settings import Settings

GROUP = "kubewright.cloud"


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is made from. Fields may be added; none goes."""

    client: KubeClient
    """With the operator's own rights; it is closed by the operator."""
    clock: Clock
    settings: Settings
    environment: Mapping[str, str]
    """The operator's environment variables, for settings of the provider's own."""


Make = Callable[[Startup], Awaitable[CloudProvider]]


def find(name: str, also: tuple[str, ...] = ()) -> Make:
    """The function that makes the provider `name`; `also` are other names that the caller knows, for the error's text.

    Raises:
        ConfigError: no installed package offers it, two do, or it cannot be imported.
    """
    found = [point for point in metadata.entry_points(group=GROUP) if point.name == name]
    if not found:
        known = sorted({*also, *metadata.entry_points(group=GROUP).names})
        raise ConfigError(
            f"--cloud: found {name!r}, which is neither built in nor offered by an installed package (entry point group"
            f" {GROUP}); write one of {', '.join(known)}"
        )
    if len({point.value for point in found}) > 1:
        raise ConfigError(f"--cloud {name}: several packages offer it ({', '.join(sorted(p.value for p in found))}); remove one")
    try:
        make: Make = found[0].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--cloud {name}: {found[0].value} cannot be loaded: {error}") from error
    return make
