"""`kubewright run`: the operator on a real cluster."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.cli import stock

if TYPE_CHECKING:
    from kubewright.clock import Clock
    from kubewright.cloud.aws.catalogue import Catalogue
    from kubewright.cloud.provider import CloudProvider
    from kubewright.kube.client import KubeClient
    from kubewright.operator import Options
    from kubewright.operator.process import MakeProvider


class Command(click.Command):
    """Help that also lists what `operator` reads; that list lives there."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kubewright.cli import flags  # noqa: PLC0415 (so that other commands are quick)
        from kubewright.operator import options  # noqa: PLC0415

        del ctx
        heeded = [f for f in options.FLAGS if not f.why_ignored]
        with formatter.section("Karpenter's flags, also as variables (CLUSTER_NAME, ...), with their defaults"):
            formatter.write_dl([flags.told(f.name, f.field) for f in heeded if f.name in flags.KARPENTERS])
        with formatter.section("Our own flags, also as variables (KUBEWRIGHT_PACKING, ...), with their defaults"):
            formatter.write_dl([flags.told(f.name, f.field) for f in heeded if f.name not in flags.KARPENTERS])
        with formatter.section("Flags of the AWS provider"):
            formatter.write_dl([(f"--{name}", words) for name, words in flags.AWS.items()])
        with formatter.section("Taken with a warning, and not heeded"):
            formatter.write_dl([(f"--{f.name}", f.why_ignored) for f in options.FLAGS if f.why_ignored])


@click.command(
    "run",
    cls=Command,
    short_help="Run the operator on a real cluster.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--cloud",
    envvar="KUBEWRIGHT_CLOUD",
    show_envvar=True,
    default="aws",
    show_default=True,
    help="aws; fake-ec2, a pretend EC2 in this process, whose Nodes kwok keeps alive; or the name of a third party's provider.",
)
@click.option(
    "--fake-launch-seconds", default=15.0, show_default=True, help="fake-ec2 only: from the launch call to a running machine."
)
@click.option("--fake-join-seconds", default=20.0, show_default=True, help="fake-ec2 only: from a running machine to its Node.")
@click.option(
    "--fake-state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="fake-ec2 only: a file for its account, so that an operator started again finds its machines.",
)
@click.option(
    "--fake-kubeconfig",
    type=click.Path(dir_okay=False),
    default="",
    help="fake-ec2 only: whose credentials make the Nodes, as kubelets do; those of the operator when left out.",
)
@stock.option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def command(
    cloud: str,
    fake_launch_seconds: float,
    fake_join_seconds: float,
    fake_state: Path | None,
    fake_kubeconfig: str,
    catalogue: Path | None,
    flags: tuple[str, ...],
) -> int:
    """Run the operator on the cluster that KUBECONFIG, ~/.kube/config or the pod's service account names.

    It runs until SIGTERM or Ctrl-C and then gives its lease back.

    Exit code: 0 after a signal; 1 when it cannot go on, for example because the lease was lost; 2 when something it was started
    with cannot be used: the text says which flag, variable or file, what was found there, and what to write instead.

    \b
    From a shell, beside nobody:   kubewright run --cluster-name my-cluster --disable-leader-election
    In a pod, by its environment:  CLUSTER_NAME=my-cluster kubewright run
    With machines that kwok plays: kubewright run --cloud fake-ec2 --disable-leader-election
    """  # noqa: D301 (click wants the control character)
    from kubewright import logs, operator  # noqa: PLC0415 (so that --help is quick)

    options = operator.parse(flags, os.environ)
    outputs = tuple(filter(None, options.log_output_paths.split(",")))
    known = stock.load(catalogue)
    close = logs.configure(level=options.log_level, outputs=outputs)
    try:
        asyncio.run(
            operator.run(
                options, maker(cloud, options, fake_launch_seconds, fake_join_seconds, fake_state, fake_kubeconfig, known)
            )
        )
    finally:
        close()
    return 0


def maker(
    cloud: str, options: "Options", launch_s: float, join_s: float, state: Path | None, kubeconfig: str, known: "Catalogue"
) -> "MakeProvider":
    """What makes the provider that `cloud` names, once there is a client. Raises ConfigError: nobody provides it."""
    from kubewright.cloud import plugins  # noqa: PLC0415 (so that --help is quick)

    if cloud == "fake-ec2":
        from kubewright.sim.plane import fake_ec2  # noqa: PLC0415

        return lambda client, clock: fake_ec2(
            client, clock, options.settings, launch_s=launch_s, join_s=join_s, state=state, known=known, kubelets=kubeconfig
        )
    if cloud == "aws":
        return lambda client, clock: _aws(client, clock, options, known)
    make = plugins.find(cloud, ("aws", "fake-ec2"))
    return lambda client, clock: make(
        plugins.Startup(client=client, clock=clock, settings=options.settings, environment=dict(os.environ))
    )


async def _aws(client: "KubeClient", clock: "Clock", options: "Options", known: "Catalogue") -> "CloudProvider":
    from kubewright.cloud.aws import settings  # noqa: PLC0415
    from kubewright.cloud.aws.boto import BotoApi, region  # noqa: PLC0415
    from kubewright.cloud.aws.provider import AwsProvider  # noqa: PLC0415

    aws = settings.read(options.provider, region())
    return AwsProvider(BotoApi(aws.region), client, clock, options.settings, aws, known=known)
