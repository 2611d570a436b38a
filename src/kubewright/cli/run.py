"""`kubewright run`: the operator on a real cluster."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.cli import stock
from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from kubewright.clock import Clock
    from kubewright.cloud.aws.catalogue import Catalogue
    from kubewright.cloud.provider import CloudProvider
    from kubewright.kube.client import KubeClient
    from kubewright.operator import Options


@click.command(
    "run",
    short_help="Run the operator on a real cluster.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option(
    "--cloud",
    default="aws",
    show_default=True,
    help="aws, or fake-ec2: a pretend EC2 in this process, whose Nodes kwok keeps alive.",
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
@stock.option
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def command(
    cloud: str,
    fake_launch_seconds: float,
    fake_join_seconds: float,
    fake_state: Path | None,
    catalogue: Path | None,
    flags: tuple[str, ...],
) -> int:
    """Run the operator on the cluster that KUBECONFIG, ~/.kube/config or the pod's service account names.

    FLAGS are Karpenter's: --cluster-name, --batch-max-duration 10s, --batch-idle-duration 1s, --preference-policy Respect,
    --feature-gates A=true,B=false, --leader-election-namespace, --disable-leader-election, --metrics-port 8080,
    --health-probe-port 8081, --log-level info, --kubeconfig, ... and each also as an environment variable (CLUSTER_NAME).
    Unknown ones are warned about.

    Runs until SIGTERM or Ctrl-C; the lease is given back then. Exit code 2: something it was started with cannot be used.
    """
    from kubewright import logs, operator  # noqa: PLC0415 (so that --help is quick)

    options = operator.parse(flags, os.environ)
    outputs = tuple(filter(None, options.log_output_paths.split(",")))
    known = stock.load(catalogue)
    close = logs.configure(level=options.log_level, outputs=outputs)
    try:
        asyncio.run(operator.run(options, _maker(cloud, options, fake_launch_seconds, fake_join_seconds, fake_state, known)))
    finally:
        close()
    return 0


def _maker(cloud: str, options: "Options", launch_s: float, join_s: float, state: Path | None, known: "Catalogue"):  # type: ignore[no-untyped-def]  # noqa: ANN202
    if cloud == "fake-ec2":
        from kubewright.sim.plane import fake_ec2  # noqa: PLC0415

        return lambda client, clock: fake_ec2(
            client, clock, options.settings, launch_s=launch_s, join_s=join_s, state=state, known=known
        )
    if cloud == "aws":
        return lambda client, clock: _aws(client, clock, options, known)
    raise ConfigError(f"--cloud: found {cloud!r}; write aws or fake-ec2")


async def _aws(client: "KubeClient", clock: "Clock", options: "Options", known: "Catalogue") -> "CloudProvider":
    from kubewright.cloud.aws import settings  # noqa: PLC0415
    from kubewright.cloud.aws.boto import BotoApi, region  # noqa: PLC0415
    from kubewright.cloud.aws.provider import AwsProvider  # noqa: PLC0415

    aws = settings.read(options.provider, region())
    return AwsProvider(BotoApi(aws.region), client, clock, options.settings, aws, known=known)
