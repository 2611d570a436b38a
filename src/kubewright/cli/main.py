"""The `kubewright` command: words, flags and exit codes; everything heavy is imported by the command that needs it.

Exit codes: 0 done; 1 it ran and the answer is no; 2 it was asked wrongly (flags, manifests, kubeconfig); 130 interrupted.
"""

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from kubewright.cli import VERSION
from kubewright.errors import CloudError, ConfigError, ManifestError

COMMANDS = {
    "sandbox": "kubewright.cli.sandbox",
    "run": "kubewright.cli.run",
    "explain": "kubewright.cli.explain",
    "replay": "kubewright.cli.replay",
    "crds": "kubewright.cli.crds",
    "manifests": "kubewright.cli.manifests",
    "takeover": "kubewright.cli.takeover",
    "catalogue": "kubewright.cli.catalogue",
    "aws": "kubewright.cli.aws",
    "version": "kubewright.cli.version",
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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f"found {args[0]!r}, which is no command; write one of {', '.join(COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="kubewright")
def cli() -> None:
    """Buys and removes the machines of a Kubernetes cluster, in Karpenter's language.

    \b
    Watch it work, with nothing but this repository:   kubewright sandbox
    The same with your manifests:                      kubewright sandbox -f DIR
    A cluster to try kubectl on:                       kubewright sandbox --serve
    Against a real cluster:                            kubewright run
    What to install there:                             kubewright manifests | kubectl apply --server-side -f -
    Why a pod waits, why a node is there:              kubewright explain pod shop/web-1
    What was decided, and whether it still would be:   kubewright replay DIR

    Exit codes of all commands: 0 it is done; 1 it ran, and the answer is no; 2 it was asked wrongly (flags, files, kubeconfig),
    and the text says what to write instead; 130 it was interrupted. Each command's help says what its no means.
    """  # noqa: D301 (click wants the control character)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; what people did wrong is told on standard error, without a traceback."""
    try:
        result: Any = cli.main(args=arguments, prog_name="kubewright", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except (ManifestError, ConfigError, CloudError) as wrong:
        sys.exit(_told([wrong]))
    except ExceptionGroup as group:
        # Where tasks run side by side, errors come out in groups; what people did wrong is told all the same.
        inner = leaves(group)
        wrongs = [e for e in inner if isinstance(e, ManifestError | ConfigError)]
        if not wrongs or len(wrongs) < len(inner):
            raise
        sys.exit(_told(wrongs))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)


def _told(wrongs: list[Any]) -> int:
    """Say what is wrong; the exit code."""
    for wrong in wrongs:
        click.echo(str(wrong), err=True)
    return 1 if any(isinstance(w, CloudError) for w in wrongs) else 2


def leaves(error: Exception) -> list[Exception]:
    """The errors in a group of groups."""
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
