"""Which catalogue of instance types a command works with: `--catalogue FILE` or the embedded one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubewright.cloud.aws.catalogue import Catalogue

VARIABLE = "KUBEWRIGHT_CATALOGUE"

option = click.option(
    "--catalogue",
    "catalogue",
    type=click.Path(path_type=Path),
    envvar=VARIABLE,
    show_envvar=True,
    help="Instance types and prices from a file that `kubewright catalogue refresh` made. [default: the embedded ones]",
)


def load(path: Path | None) -> "Catalogue":
    """Raises ConfigError: the file is not there or is no catalogue."""
    from kubewright.cloud.aws import catalogue  # noqa: PLC0415 (so that --help is quick)

    return catalogue.from_file(path) if path is not None else catalogue.embedded()
