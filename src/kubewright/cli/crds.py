"""`kubewright crds`: the custom resource definitions, as YAML."""

import click


@click.command("crds", short_help="Print the CRDs to install, as YAML.")
def command() -> None:
    """Print the CRDs (NodePool, NodeClaim, NodeOverlay, CapacityBuffer, EC2NodeClass) as YAML, ready for `kubectl apply -f -`.

    They accept, default and refuse what Karpenter 1.14's own do, so a cluster that has those needs nothing.

    Exit code: 0.
    """
    from kubewright.api import crds  # noqa: PLC0415

    click.echo(crds.render(), nl=False)
