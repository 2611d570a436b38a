"""`kubewright explain`: why a pod waits, or why it goes where it goes."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.cli import saved, stock
from kubewright.errors import ConfigError, KubeError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from kubewright.clock import Clock
    from kubewright.cloud.aws.catalogue import Catalogue
    from kubewright.cloud.provider import CloudProvider
    from kubewright.explain.why import Explanation
    from kubewright.kube.client import KubeClient
    from kubewright.operator import Options
    from kubewright.solver.problem import Snapshot, SolverSettings

PATIENCE_S = 30.0
"""How long the API server may take to list everything."""


@click.group("explain", short_help="Say why a pod has no node, or why this one.")
def command() -> None:
    """Say why a pod has no node, which constraints conflict, and what the nearest fix is.

    \b
    On the cluster of your kubeconfig:  kubewright explain pod shop/web-1
    From files:                         kubectl get -o yaml -A pods,nodes,... > cluster.yaml
                                        kubewright explain pod shop/web-1 -f cluster.yaml
    From a record of a pass:            kubewright explain pod shop/web-1 --record FILE
    """  # noqa: D301 (click wants the control character)


@command.command("pod", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("pod", metavar="NAMESPACE/NAME")
@click.option(
    "-f", "--filename", "files", multiple=True, type=click.Path(path_type=Path), help="Saved objects instead of a cluster."
)
@click.option("--record", type=click.Path(path_type=Path), help="A record that `kubewright run --record` wrote.")
@click.option("--cloud", default=None, help="aws, or fake-ec2 for clusters of the sandbox. [default: aws; with -f the catalogue]")
@stock.option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def pod_command(
    pod: str,
    files: tuple[Path, ...],
    record: Path | None,
    cloud: str | None,
    catalogue: Path | None,
    output: str,
    flags: tuple[str, ...],
) -> int:
    """Explain one pod. FLAGS are those of `kubewright run` that planning depends on, such as --preference-policy.

    Nothing is changed anywhere. Exit code 0 if the pod has a place or will get one, 1 if it waits.
    """
    from kubewright import logs  # noqa: PLC0415 (so that --help is quick)
    from kubewright.explain import why  # noqa: PLC0415

    if pod.count("/") > 1 or not pod.strip("/"):
        raise ConfigError(f"found {pod!r}; write NAMESPACE/NAME, or NAME for the namespace default")
    key = pod if "/" in pod else f"default/{pod}"
    if record is not None:
        told = _from_record(record, key)
    else:
        close = logs.configure(level="error", outputs=("stderr",))
        try:
            told = asyncio.run(_from_cluster(key, files, cloud, catalogue, flags))
        finally:
            close()
    click.echo(told.as_json().decode() if output == "json" else why.text(told))
    return 0 if told.placed else 1


def _from_record(path: Path, key: str) -> "Explanation":
    from kubewright import records  # noqa: PLC0415
    from kubewright.explain.why import explain  # noqa: PLC0415

    try:
        record = records.load(path)
    except OSError as error:
        raise ConfigError(
            f"--record: found {str(path)!r}, which cannot be read ({error.strerror}); write another path"
        ) from error
    if all(p.key != key for p in record.problem.pods):
        raise ConfigError(f"{path}: no pod {key} in this pass; write one of {_some(p.key for p in record.problem.pods)}")
    return explain(record.problem, record.plan, key)


async def _from_cluster(
    key: str, files: tuple[Path, ...], cloud: str | None, catalogue: Path | None, flags: tuple[str, ...]
) -> "Explanation":
    from kubewright import operator  # noqa: PLC0415
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.kube import config  # noqa: PLC0415
    from kubewright.kube.http import HttpClient  # noqa: PLC0415
    from kubewright.operator.deciding import solver_settings  # noqa: PLC0415
    from kubewright.state.mirror import Mirror  # noqa: PLC0415

    options = operator.parse(flags, os.environ)
    clock = Clock()
    connection = None if files else config.load(options.kubeconfig, options.context)
    where = connection.server if connection is not None else "the files"
    client: KubeClient = HttpClient(connection) if connection is not None else saved.load(files)
    try:
        provider = await _provider(cloud or ("fake-ec2" if files else "aws"), client, clock, options, stock.load(catalogue))
        try:
            mirror = Mirror(client, provider, clock)
            watching = asyncio.create_task(mirror.run())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await _first(mirror.wait_synced(), watching)
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
        finally:
            await provider.close()
    except KubeError as error:
        raise ConfigError(f"cannot read the cluster at {where}: {error}") from error
    finally:
        await client.close()
    return _explain(snapshot, solver_settings(options.settings, provider), key)


async def _first(work: "Coroutine[None, None, None]", watching: "asyncio.Task[None]") -> None:
    """Wait for `work`, but not past the end of the watch that it depends on."""
    waiting = asyncio.create_task(work)
    await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        waiting.cancel()
        await watching
    await waiting


async def _provider(cloud: str, client: "KubeClient", clock: "Clock", options: "Options", known: "Catalogue") -> "CloudProvider":
    from kubewright.cloud.aws.provider import AwsProvider  # noqa: PLC0415

    if cloud == "fake-ec2":
        from kubewright.sim.ec2 import FakeEc2, Faults  # noqa: PLC0415

        ec2 = FakeEc2(clock, faults=Faults(call_s=0.0), region=await _region(client, known), known=known)
        return AwsProvider(ec2, client, clock, options.settings, ec2.settings, known=known)
    if cloud == "aws":
        from kubewright.cloud.aws import settings  # noqa: PLC0415
        from kubewright.cloud.aws.boto import BotoApi, region  # noqa: PLC0415

        aws = settings.read(options.provider, region())
        return AwsProvider(BotoApi(aws.region), client, clock, options.settings, aws, known=known)
    raise ConfigError(f"--cloud: found {cloud!r}; write aws or fake-ec2")


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


def _explain(snapshot: "Snapshot", settings: "SolverSettings", key: str) -> "Explanation":
    from kubewright.explain.why import Explanation, explain, explain_ignored  # noqa: PLC0415
    from kubewright.solver.select import select  # noqa: PLC0415
    from kubewright.solver.solve import solve  # noqa: PLC0415

    for place in snapshot.nodes:
        if any(p.key == key for p in place.pods) and place.node is not None:
            return Explanation(key, f"node {place.node.name}", notes=("It runs there already.",))
    chosen = select(snapshot, settings)
    pending = next((p for p in snapshot.pods if p.key == key), None)
    if pending is None:
        raise ConfigError(f"no pod {key} in the cluster; pods that wait: {_some(p.key for p in snapshot.pods)}")
    if key in chosen.ignored:
        return explain_ignored(chosen.problem, pending, chosen.ignored[key])
    if all(p.key != key for p in chosen.problem.pods):
        return Explanation(key, "", reasons=("kube-scheduler has not called it unschedulable, so no node is planned for it.",))
    return explain(chosen.problem, solve(chosen.problem), key)


def _some(keys: "Iterable[str]") -> str:
    listed = sorted(keys)
    more = f" and {len(listed) - 5} others" if len(listed) > 5 else ""
    return (", ".join(listed[:5]) or "none") + more
