"""`kubewright catalogue`: the embedded instance types, and how to renew them."""

import click


@click.group("catalogue")
def command() -> None:
    """The instance types and list prices that kubewright knows without asking the cloud."""
