"""`kubewright aws`: the permissions that an installation on AWS needs, and what is wrong with one."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from kubewright.errors import ConfigError, KubeError

if TYPE_CHECKING:
    from kubewright.cloud.aws.doctor import Finding
    from kubewright.cloud.aws.settings import AwsSettings


@click.group("aws", short_help="Permissions for AWS, and a doctor for installations there.")
def command() -> None:
    """For installations on AWS.

    \b
    The permissions to grant:   kubewright aws iam-policy --cluster-name my-cluster --account 111122223333
    What is wrong:              kubewright aws doctor --cluster-name my-cluster
    """  # noqa: D301 (click wants the control character)


@command.command("iam-policy", short_help="Print the IAM policy that the controller's role needs.")
@click.option("--cluster-name", required=True, help="Name of the EKS cluster.")
@click.option("--region", default=None, help="[default: AWS_REGION, or that of the AWS configuration]")
@click.option("--account", default="", help="Account id. [default: asked of AWS]")
@click.option("--partition", type=click.Choice(["aws", "aws-cn", "aws-us-gov"]), default="aws", show_default=True)
@click.option("--node-role", default="", help="Name of the nodes' role, the only one that may be passed on; left out: any.")
@click.option("--interruption-queue", default="", help="Name of the SQS queue; left out: nothing about queues.")
@click.option("--enable-zonal-shift", is_flag=True, help="Also what ARC zonal shift needs.")
def iam_policy(
    cluster_name: str,
    region: str | None,
    account: str,
    partition: str,
    node_role: str,
    interruption_queue: str,
    enable_zonal_shift: bool,
) -> None:
    """Print a policy that allows what the controller does on this cluster, and nothing on others.

    \b
    kubewright aws iam-policy --cluster-name c --account 111122223333 --region eu-west-1 > policy.json
    aws iam create-policy --policy-name kubewright-c --policy-document file://policy.json

    Exit code: 0, 1 when AWS does not say whose account it is, 2 when a value cannot be used.
    """  # noqa: D301 (click wants the control character)
    import msgspec  # noqa: PLC0415 (so that --help is quick)

    from kubewright.cloud.aws import policy  # noqa: PLC0415
    from kubewright.cloud.aws.boto import region as found_region  # noqa: PLC0415

    where = region or found_region()
    if account and not (account.isdigit() and len(account) == 12):
        raise ConfigError(f"--account: found {account!r}, write the 12 digits of the account")
    scope = policy.Scope(
        cluster=cluster_name,
        region=where,
        account=account or asyncio.run(_account(where)),
        partition=partition,
        node_role=node_role.rpartition("/")[2],
        queue=interruption_queue,
        zonal_shift=enable_zonal_shift,
    )
    click.echo(msgspec.json.format(msgspec.json.encode(policy.document(scope)), indent=2))


async def _account(region: str) -> str:
    from kubewright.cloud.aws import api  # noqa: PLC0415
    from kubewright.cloud.aws.boto import BotoApi  # noqa: PLC0415
    from kubewright.cloud.aws.errors import AwsError  # noqa: PLC0415

    ec2 = BotoApi(region)
    try:
        return (await ec2.get_caller_identity(api.GetCallerIdentity())).account
    except AwsError as error:
        raise ConfigError(f"--account: left out, and AWS does not tell it ({error}); write the 12 digits") from error
    finally:
        await ec2.close()


@command.command("doctor", short_help="Look what is wrong with an installation, and how to mend it.")
@click.option("--cluster-name", default="", help="[default: CLUSTER_NAME]")
@click.option("--region", default=None, help="[default: AWS_REGION, or that of the AWS configuration]")
@click.option("--interruption-queue", default="", help="[default: INTERRUPTION_QUEUE]")
@click.option("--isolated-vpc", is_flag=True, help="Do not ask for prices.")
@click.option("--without-cluster", is_flag=True, help="Ask AWS only, not the Kubernetes API server.")
@click.option("--kubeconfig", default="", help="[default: KUBECONFIG, ~/.kube/config, or the pod's own]")
@click.option("--context", default="", help="Of the kubeconfig.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(
    cluster_name: str,
    region: str | None,
    interruption_queue: str,
    isolated_vpc: bool,
    without_cluster: bool,
    kubeconfig: str,
    context: str,
    output: str,
) -> int:
    """Look at permissions, queue, quotas, NodeClasses with their subnets, groups, roles and images, routes, and stuck pods.

    Nothing is changed: calls that write are made as dry runs. Exit code 1: something is wrong.
    """
    from kubewright.cloud.aws.boto import region as found_region  # noqa: PLC0415 (so that --help is quick)
    from kubewright.cloud.aws.settings import AwsSettings  # noqa: PLC0415

    cluster_name = cluster_name or os.environ.get("CLUSTER_NAME", "")
    if not cluster_name:
        raise ConfigError("--cluster-name: left out, and CLUSTER_NAME is not set; write the name of the EKS cluster")
    settings = AwsSettings(
        region=region or found_region(),
        interruption_queue=interruption_queue or os.environ.get("INTERRUPTION_QUEUE", ""),
        isolated_vpc=isolated_vpc,
    )
    kube = None if without_cluster else (kubeconfig, context)
    return show(asyncio.run(_examine(cluster_name, settings, kube)), output)


async def _examine(cluster_name: str, settings: "AwsSettings", kube: tuple[str, str] | None) -> "list[Finding]":
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.cloud.aws.boto import BotoApi  # noqa: PLC0415
    from kubewright.cloud.aws.doctor import examine  # noqa: PLC0415
    from kubewright.kube import config  # noqa: PLC0415
    from kubewright.kube.http import HttpClient  # noqa: PLC0415

    client = HttpClient(config.load(*kube)) if kube is not None else None
    ec2 = BotoApi(settings.region)
    try:
        return await examine(ec2, client, Clock(), cluster_name, settings)
    except KubeError as error:
        raise ConfigError(f"the API server cannot be asked: {error}; use --without-cluster to ask AWS only") from error
    finally:
        await ec2.close()
        if client is not None:
            await client.close()


def show(findings: "list[Finding]", output: str) -> int:
    """Print; the exit code."""
    import msgspec  # noqa: PLC0415

    problems = [f for f in findings if f.verdict == "problem"]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2))
    else:
        order = {"problem": 0, "unknown": 1, "ok": 2}
        for f in sorted(findings, key=lambda f: order[f.verdict]):
            click.echo(f"{f.verdict:8} {f.about}: {f.text}")
            if f.mend:
                click.echo(f"         {'mend' if f.verdict == 'problem' else 'hint'}: {f.mend}")
        click.echo(f"{len(problems)} problem(s) in {len(findings)} findings")
    return 1 if problems else 0
