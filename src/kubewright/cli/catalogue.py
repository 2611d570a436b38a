"""`kubewright catalogue`: the instance types and list prices that are known without a cloud, and how to renew them."""

import asyncio
import difflib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubewright.cli import stock
from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from kubewright.cloud.aws.api import Ec2Api, InstanceTypeInfo
    from kubewright.cloud.aws.catalogue import Catalogue

REGION = "us-west-2"
BEAT_S = 2.0


@click.group("catalogue", short_help="List the known instance types and prices, or renew them.")
def command() -> None:
    """The instance types and list prices that kubewright knows without asking the cloud.

    \b
    Look at them:    kubewright catalogue list --family m7g
    Renew them:      kubewright catalogue refresh --region eu-west-1
    Use the new:     kubewright sandbox --catalogue kubewright-catalogue.json.gz
    """  # noqa: D301 (click wants the control character)


@command.command("list")
@click.option("--family", "families", multiple=True, help="Only these, as m7g or m7g,c7g; repeatable.")
@click.option("--region", default=None, help="Prices and zones of this region. [default: us-west-2, or the catalogue's own]")
@stock.option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_types(families: tuple[str, ...], region: str | None, catalogue: Path | None, output: str) -> None:
    """Print the instance types with their shapes, zones and on-demand list prices.

    Exit code: 0, or 2 when the catalogue, the region or a family is not known.
    """
    import msgspec  # noqa: PLC0415 (so that --help is quick)

    known = stock.load(catalogue)
    chosen = region or (REGION if REGION in known.regions else min(known.regions))
    wanted = {name.strip() for text in families for name in text.split(",") if name.strip()}
    there = {t.instance_type.partition(".")[0] for t in known.types}
    for name in sorted(wanted - there):
        near = difflib.get_close_matches(name, sorted(there), 6, 0.5)
        raise ConfigError(f"--family: found {name!r}, of which nothing is known; write for example {' or '.join(near) or 'm7g'}")
    rows = _rows(known, chosen, wanted)
    if output == "json":
        told = {"source": known.source, "date": known.date, "region": chosen, "types": rows}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
    else:
        _show(rows, known, chosen)


@command.command("refresh")
@click.option("--region", default=None, help="The region to ask. [default: AWS_REGION, or that of the AWS configuration]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="kubewright-catalogue.json.gz",
    show_default=True,
    help="The file to write.",
)
@click.pass_obj
def refresh(opener: "Callable[[str], Ec2Api] | None", region: str | None, output: Path) -> None:
    """Ask AWS for the instance types, zones and prices of a region, and write them to a file.

    Needs credentials that may call ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings, ec2:DescribeSubnets and
    pricing:GetProducts. Use the file with --catalogue or KUBEWRIGHT_CATALOGUE.

    Exit code: 0 when the file is written, 1 when AWS says no, 2 when the region or the file cannot be used.
    """
    from kubewright.cloud.aws import boto, catalogue  # noqa: PLC0415 (so that --help is quick)

    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output: found {str(output)!r}, but {output.absolute().parent} is no directory; write another path")
    chosen = region or boto.region()
    api = (opener or boto.BotoApi)(chosen)
    data = asyncio.run(_ask(api, chosen))
    output.write_bytes(data)
    known = catalogue.read(data, str(output))
    click.echo(
        f"{output}: {len(known.types)} instance types, {len(known.regions[chosen].zones)} zones and "
        f"{len(known.on_demand[chosen])} prices of {chosen}, {known.date}. Use it with --catalogue {output}"
    )


async def _ask(api: "Ec2Api", region: str) -> bytes:
    from kubewright.cloud.aws import catalogue  # noqa: PLC0415

    click.echo(f"Asking AWS for the instance types, zones and prices of {region} (about half a minute) ...", err=True)

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            click.echo(".", nl=False, err=True)

    beating = asyncio.create_task(beat())
    try:
        return await catalogue.refresh(api, region, datetime.now(UTC).date().isoformat())
    finally:
        beating.cancel()
        await api.close()


def _rows(known: "Catalogue", region: str, families: set[str]) -> list[dict[str, Any]]:
    offered, prices = known.region(region), known.prices(region)
    found = [
        t for t in known.types if t.instance_type in offered.sold and (not families or t.instance_type.split(".")[0] in families)
    ]
    return [
        _row(t, offered.zones_of(t.instance_type), prices.get(t.instance_type))
        for t in sorted(found, key=lambda t: (t.instance_type.split(".")[0], t.vcpus, t.memory_mib, t.instance_type))
    ]


def _row(info: "InstanceTypeInfo", zones: tuple[str, ...], price: float | None) -> dict[str, Any]:
    arch = {"x86_64": "amd64"}
    gpus = sum(g.count for g in info.gpu_info.gpus) if info.gpu_info else 0
    return {
        "type": info.instance_type,
        "vcpus": info.vcpus,
        "memoryMiB": info.memory_mib,
        "arch": sorted({arch.get(a, a) for a in info.processor_info.supported_architectures if a != "i386"}),
        "gpus": gpus,
        "zones": list(zones),
        "usdPerHour": price,
    }


def _show(rows: list[dict[str, Any]], known: "Catalogue", region: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for name in ("type", "vCPU", "memory", "arch", "GPUs", "zones", "$/h"):
        table.add_column(name, justify="left" if name in ("type", "arch", "zones") else "right", no_wrap=True)
    for row in rows:
        price = row["usdPerHour"]
        zones = "".join(zone.removeprefix(region) for zone in row["zones"])
        table.add_row(
            row["type"],
            str(row["vcpus"]),
            f"{row['memoryMiB'] / 1024:g} GiB",
            ",".join(row["arch"]),
            str(row["gpus"] or ""),
            zones,
            f"{price:.4f}" if price is not None else "unknown",
        )
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    console.print(
        f"\n{len(rows)} types sold in {region}; on-demand, Linux. {known.date}: {known.source}", highlight=False, soft_wrap=True
    )
