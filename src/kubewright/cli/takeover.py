"""`kubewright takeover`: coming from Karpenter."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.cli import stock
from kubewright.errors import ConfigError, KubeError

if TYPE_CHECKING:
    from kubewright.install.takeover import Report
    from kubewright.operator import Options


@click.group("takeover", short_help="What would change in a cluster that Karpenter runs.")
def command() -> None:
    """Take a cluster over from Karpenter, knowing beforehand what will change."""


@command.command(
    "check",
    short_help="Say what would change; write nothing.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option("--cloud", envvar="KUBEWRIGHT_CLOUD", default="aws", show_default=True, help="aws, or a third party's provider.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--karpenter-namespace", default="kube-system", show_default=True, help="Where Karpenter's Lease is.")
@stock.option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def check(cloud: str, output: str, karpenter_namespace: str, catalogue: Path | None, flags: tuple[str, ...]) -> int:
    """Read the cluster that KUBECONFIG names and say what would change if kubewright ran it from now on.

    Flags of `kubewright run` count here too: give those that it will run with. Nothing is written.

    \b
    Exit code 0: nothing would change.
    Exit code 1: something would change, or is in the way; the lines say what, and what to do.
    Exit code 2: it was asked wrongly, or the cluster cannot be read.
    """  # noqa: D301 (click wants the control character)
    from kubewright import operator  # noqa: PLC0415 (so that --help is quick)
    from kubewright.install import reading  # noqa: PLC0415

    options = operator.parse(flags, os.environ)
    report = asyncio.run(_check(cloud, options, karpenter_namespace, catalogue))
    if output == "json":
        click.echo(reading.as_json(report))
    else:
        _show(report)
    return int(report.changes)


async def _check(cloud: str, options: "Options", namespace: str, catalogue: Path | None) -> "Report":
    from kubewright.cli.run import maker  # noqa: PLC0415
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.install import reading, takeover  # noqa: PLC0415
    from kubewright.kube import config  # noqa: PLC0415
    from kubewright.kube.http import HttpClient  # noqa: PLC0415

    clock = Clock()
    connection = config.load(options.kubeconfig, options.context)
    client = HttpClient(connection)
    try:
        provider = await maker(cloud, options, 0, 0, None, "", stock.load(catalogue))(client, clock)
        try:
            lease = (options.leader_election_namespace or namespace, options.leader_election_name)
            return takeover.judge(await reading.read(client, provider, clock, options, lease))
        finally:
            await provider.close()
    except KubeError as error:
        raise ConfigError(f"cannot read the cluster at {connection.server}: {error}") from error
    finally:
        await client.close()


def _show(report: "Report") -> None:
    from rich.table import Table  # noqa: PLC0415

    from kubewright.cli import tables  # noqa: PLC0415

    out = tables.console()
    if report.findings:
        table = Table(title="If kubewright took over now", title_justify="left", box=None, pad_edge=False)
        for name in ("weight", "about", "what", "do"):
            table.add_column(name, overflow="fold")
        for one in report.findings:
            table.add_row(one.weight.value, one.about, one.what, one.mend)
        out.print(table)
    out.print(
        f"{report.node_pools} NodePool(s), {report.node_claims} NodeClaim(s); {report.drifting} would drift."
        f" Pods that wait: {report.waiting_pods}, for ${report.bought_usd_per_hour:.4f}/h."
        f" A first look for savings: ${report.removed_usd_per_hour:.4f}/h.",
        highlight=False,
    )
    out.print("Something would change." if report.changes else "Nothing would change.", highlight=False)
