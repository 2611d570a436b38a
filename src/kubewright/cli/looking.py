"""Reading a cluster once, as the operator would see it: a live one, or objects saved to files. Nothing is changed anywhere."""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kubewright.api.karpenter import NodeClaim
from kubewright.cli import saved, stock
from kubewright.errors import CloudError, ConfigError, KubeError
from kubewright.settings import Settings
from kubewright.solver.problem import Snapshot, SolverSettings

if TYPE_CHECKING:
    from kubewright.clock import Clock
    from kubewright.cloud.aws.catalogue import Catalogue
    from kubewright.cloud.provider import CloudProvider
    from kubewright.kube.client import KubeClient
    from kubewright.operator import Options

PATIENCE_S = 30.0
"""How long the API server may take to list everything."""
SANDBOX = "kubewright-sandbox"
"""The context in kubeconfigs of the sandbox; its cloud is the fake EC2."""


class Wanted(msgspec.Struct, frozen=True):
    """Which cluster is meant; see `options`."""

    files: tuple[Path, ...]
    cloud: str | None
    catalogue: Path | None
    flags: tuple[str, ...]


class Look(msgspec.Struct, frozen=True):
    """The cluster at one instant, and what deciding about it depends on."""

    snapshot: Snapshot
    claims: Mapping[str, NodeClaim]
    """By name; those without a machine, too."""
    settings: Settings
    solver: SolverSettings


def look(wanted: Wanted) -> Look:
    """
    Raises:
        ConfigError: the cluster cannot be read; the text says which file, flag or server.
        ManifestError: files of objects that are none.
    """
    from kubewright import logs  # noqa: PLC0415 (so that --help is quick)

    close = logs.configure(level="error", outputs=("stderr",))
    try:
        return asyncio.run(_look(wanted))
    finally:
        close()


async def _look(wanted: Wanted) -> Look:
    from kubewright import operator  # noqa: PLC0415
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.kube import config  # noqa: PLC0415
    from kubewright.kube.http import HttpClient  # noqa: PLC0415
    from kubewright.operator.deciding import solver_settings  # noqa: PLC0415
    from kubewright.state.mirror import Mirror  # noqa: PLC0415

    options = operator.parse(wanted.flags, os.environ)
    clock = Clock()
    connection = None if wanted.files else config.load(options.kubeconfig, options.context)
    where = connection.server if connection is not None else "the files"
    client: KubeClient = HttpClient(connection) if connection is not None else saved.load(wanted.files)
    cloud = wanted.cloud or ("fake-ec2" if connection is None or SANDBOX in connection.source else "aws")
    try:
        provider = await _provider(cloud, client, clock, options, stock.load(wanted.catalogue))
        try:
            mirror = Mirror(client, provider, clock, options.settings)
            watching = asyncio.create_task(mirror.run())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await _first(mirror.wait_synced(), watching)
                await _learn(provider)
                await mirror.refresh_pools()
                snapshot = mirror.snapshot(clock.now())
            except TimeoutError as error:
                late = ", ".join(i.kind.RESOURCE.plural for i in mirror.informers if not i.synced)
                raise ConfigError(
                    f"{where}: no list of {late} within {PATIENCE_S:.0f} s; see that the server answers and may be read from"
                ) from error
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            claims = dict(mirror.node_claims.objects)
            return Look(snapshot, claims, options.settings, solver_settings(options.settings, provider))
        finally:
            await provider.close()
    except KubeError as error:
        raise ConfigError(f"cannot read the cluster at {where}: {error}") from error
    finally:
        await client.close()


async def _learn(provider: "CloudProvider") -> None:
    """Let the cloud say what is not for sale at present."""
    from kubewright.cloud.provider import LooksOnce  # noqa: PLC0415

    if isinstance(provider, LooksOnce):
        try:
            await provider.look()
        except CloudError as error:
            raise ConfigError(f"cannot ask the cloud what is not for sale at present: {error}") from error


async def _first(work: Coroutine[None, None, None], watching: "asyncio.Task[None]") -> None:
    """Wait for `work`, but not past the end of the watch that it depends on."""
    waiting = asyncio.create_task(work)
    await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        waiting.cancel()
        await watching
    await waiting


async def _provider(cloud: str, client: "KubeClient", clock: "Clock", options: "Options", known: "Catalogue") -> "CloudProvider":
    if cloud == "fake-ec2":
        from kubewright.cloud.aws.provider import AwsProvider  # noqa: PLC0415
        from kubewright.sim.ec2 import FakeEc2, Faults  # noqa: PLC0415

        ec2 = FakeEc2(clock, faults=Faults(call_s=0.0), region=await _region(client, known), known=known)
        return AwsProvider(ec2, client, clock, options.settings, ec2.settings, known=known)
    from kubewright.cli.run import maker  # noqa: PLC0415

    return await maker(cloud, options, 0.0, 0.0, None, "", known)(client, clock)


async def _region(client: "KubeClient", known: "Catalogue") -> str:
    """The region whose zones the NodeClasses' subnets are in; the sandbox's when they name none."""
    from kubewright.api.aws import EC2NodeClass  # noqa: PLC0415
    from kubewright.sim.plane import selling_region  # noqa: PLC0415

    for node_class in (await client.list(EC2NodeClass)).items:
        for subnet in node_class.status.subnets:
            for name in sorted(known.regions):
                if subnet.zone.startswith(name):
                    return name
            raise ConfigError(
                f"EC2NodeClass {node_class.name}: its subnets are in {subnet.zone}, of which the catalogue knows nothing; "
                "make one with kubewright catalogue refresh, and name it with --catalogue"
            )
    return selling_region(known)


def some(keys: Iterable[str]) -> str:
    """A few names of what there is instead, for messages."""
    listed = sorted(keys)
    more = f" and {len(listed) - 5} others" if len(listed) > 5 else ""
    return (", ".join(listed[:5]) or "none") + more
