"""`kubewright version`: what this is, and what it speaks."""

import platform

import click

from kubewright.cli import VERSION


@click.command("version", short_help="Print the version.")
def command() -> None:
    """Print the versions of kubewright, of the Karpenter whose language it speaks, and of Python.

    Exit code: 0.
    """
    click.echo(f"kubewright {VERSION} (Karpenter 1.14, karpenter.sh/v1; Python {platform.python_version()})")
