"""The `kubewright` command: words, flags and exit codes; everything heavy is imported by the command that needs it.

Exit codes: 0 done; 1 it ran and the answer is no; 2 it was asked wrongly (flags, manifests, kubeconfig); 130 interrupted.
"""

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

COMMANDS = {
    "sandbox": "kubewright.cli.sandbox",
    "run": "kubewright.cli.run",
    "crds": "kubewright.cli.crds",
    "catalogue": "kubewright.cli.catalogue",
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name=None, version="0.1.0", prog_name="kubewright")
def cli() -> None:
    """Buys and removes the machines of a Kubernetes cluster, in Karpenter's language.

    \b
    Watch it work, with nothing but this repository:   kubewright sandbox
    The same with your manifests:                      kubewright sandbox -f DIR
    Against a cluster:                                 kubewright run
    The CRDs to install there:                         kubewright crds | kubectl apply -f -
    """  # noqa: D301 (click wants the control character)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; what people did wrong is told on standard error, without a traceback."""
    from kubewright.errors import ConfigError, ManifestError  # noqa: PLC0415 (keeps --help quick)

    try:
        result: Any = cli.main(args=arguments, prog_name="kubewright", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except (ManifestError, ConfigError) as wrong:
        click.echo(str(wrong), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)
