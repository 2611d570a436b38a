"""`kubewright manifests`: the installation as plain YAML."""

import click

from kubewright.cli import VERSION


@click.command("manifests", short_help="Print what to install, as YAML.")
@click.option("--cluster-name", default="", help="Name of the cluster; the AWS provider needs it.")
@click.option(
    "--namespace", "-n", default="kube-system", show_default=True, help="Where it runs; Karpenter's, if one is to be replaced."
)
@click.option(
    "--image", default=f"kubewright:{VERSION}", show_default=True, help="What the Containerfile built, wherever you keep it."
)
@click.option("--cloud", default="aws", show_default=True, help="aws, or the name of a third party's entry point.")
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(0), help="How many; one acts, the others stand by.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A setting, by its variable; may be repeated.")
@click.option("--crds/--no-crds", default=True, show_default=True, help="Whether the CRDs come first.")
def command(
    cluster_name: str, namespace: str, image: str, cloud: str, replicas: int, variables: tuple[str, ...], crds: bool
) -> None:
    """Print the whole installation as YAML: what the Helm chart makes, for those without Helm.

    \b
    kubewright manifests --cluster-name my-cluster | kubectl apply --server-side -f -
    kubewright manifests --cluster-name my-cluster --env INTERRUPTION_QUEUE=my-cluster --env FEATURE_GATES=NodeRepair=true

    Exit code: 0, or 2 when a value cannot be used; the text says what to write instead.
    """  # noqa: D301 (click wants the control character)
    from kubewright.api import crds as definitions  # noqa: PLC0415 (so that --help is quick)
    from kubewright.install import manifests  # noqa: PLC0415

    environment = dict(_pair(text) for text in variables)
    objects = manifests.manifests(
        namespace=namespace, cluster_name=cluster_name, image=image, cloud=cloud, replicas=replicas, environment=environment
    )
    if crds:
        click.echo(definitions.render(), nl=False)
    click.echo(manifests.show(objects), nl=False)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"found {text!r}; write NAME=VALUE, for instance BATCH_IDLE_DURATION=2s", param_hint="--env")
    return name, value
