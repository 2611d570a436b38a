"""`kubewright replay`: a recorded pass solved again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from kubewright.records.replay import Replay

MOST_SHOWN = 40
"""Differences of one record in the table; JSON has all."""


@click.command("replay", short_help="Solve recorded passes again and compare.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(files: tuple[Path, ...], output: str) -> int:
    """Solve recorded passes again, with the settings they were made with, and say whether the same comes out.

    FILE is a record, or a directory of records. Records are made by `kubewright run --record DIR` and by
    `kubewright sandbox --record DIR`; they hold what scheduling reads of the cluster, and no annotations beyond that, no
    environment and no Secrets. A record replays to the same bytes on every machine; where it does not, this kubewright decides
    otherwise than the one that made it, and the table says how.

    \b
    What did a pass think?        kubewright explain pod shop/web-1 --record FILE
    Do my changes change plans?   kubewright replay records/

    Exit code: 0 when every record is identical, 1 when some differ, 2 when a file is no record.
    """  # noqa: D301 (click wants the control character)
    import msgspec  # noqa: PLC0415 (so that --help is quick)

    from kubewright import records  # noqa: PLC0415
    from kubewright.records.replay import replay  # noqa: PLC0415

    found: list[tuple[Path, Replay]] = []
    for path in _records(files):
        try:
            record = records.load(path)
        except OSError as error:
            raise ConfigError(f"found {str(path)!r}, which cannot be read ({error.strerror}); write another path") from error
        one = replay(record)
        found.append((path, one))
        if output == "table":
            _show(path, one)
    if output == "json":
        told = [{"file": str(path), **msgspec.to_builtins(one)} for path, one in found]
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
    return 0 if all(one.identical for _, one in found) else 1


def _records(files: tuple[Path, ...]) -> list[Path]:
    from kubewright.records.directory import SUFFIX  # noqa: PLC0415

    found: list[Path] = []
    for path in files:
        inside = sorted(p for p in path.glob(f"*{SUFFIX}") if not p.name.startswith(".")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(f"found {str(path)!r}, a directory without records (*{SUFFIX}); write one that --record was given")
        found += inside
    return found


def _show(path: Path, one: "Replay") -> None:
    asked = f"{one.pods} pods, {one.claims} machines, ${one.usd_per_hour:.4f}/h"
    if one.identical:
        click.echo(f"{path}: identical ({asked})")
        return
    from rich.table import Table  # noqa: PLC0415 (rich is slow to import)
    from rich.text import Text  # noqa: PLC0415

    from kubewright.cli import tables  # noqa: PLC0415

    click.echo(f"{path}: differs ({asked}; made by kubewright {one.made_by})")
    table = Table()
    for name in ("what", "field", "then", "now"):
        table.add_column(name, overflow="fold", ratio=1 if name in ("then", "now") else None)
    for row in one.differences[:MOST_SHOWN]:
        table.add_row(Text(row.about), Text(row.field), Text(row.then), Text(row.now))
    tables.console().print(table)
    if len(one.differences) > MOST_SHOWN:
        click.echo(f"and {len(one.differences) - MOST_SHOWN} more differences; -o json has all")
