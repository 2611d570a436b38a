"""`kubewright sandbox`: a cluster and a cloud in memory, the production operator on them, and what came of it as a table."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from kubewright.api.manifests import Manifest
    from kubewright.sim.sandbox import Report, Sandbox
    from kubewright.sim.scenario import Step

EXAMPLE = Path(__file__).parent.parent / "sim" / "example"


@click.command("sandbox")
@click.option(
    "-f", "--filename", "paths", multiple=True, help="Manifests: a file or a directory; repeatable. [default: the bundled shop]"
)
@click.option("--seed", default=0, show_default=True, help="Chance, wherever there is any; the same seed gives the same log.")
@click.option("--faults", default="none", show_default=True, help="What is hard: none, spot-storm, scarce, throttled, flaky.")
@click.option("--for", "limit", default="60m", show_default=True, help="End after this much cluster time, quiet or not.")
@click.option("--real-time", is_flag=True, help="Let cluster time pass as the wall clock does.")
@click.option("--serve", is_flag=True, help="Serve the cluster to kubectl, on the wall clock, until interrupted.")
@click.option("--port", default=0, show_default=True, help="Port for --serve; 0 takes a free one.")
@click.option(
    "--kubeconfig", default="kubewright-sandbox.kubeconfig", show_default=True, help="Where --serve writes its kubeconfig."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="The operator's own log, too, on standard error.")
def command(
    paths: tuple[str, ...],
    seed: int,
    faults: str,
    limit: str,
    real_time: bool,
    serve: bool,
    port: int,
    kubeconfig: str,
    output: str,
    verbose: bool,
) -> int:
    """Run kubewright on a Kubernetes and an EC2 in memory.

    The manifests are applied, pods pend, machines are bought, register and run them; the run ends when nothing more happens,
    with what is there and what it cost. Nothing outside this process is touched. A document of kind Scenario among the manifests
    (sandbox.kubewright.sh/v1; the bundled example has one) says what happens later: scale, apply, delete, interrupt.

    Exit code: 0 when every pod found a place, 1 when some did not, 2 when the manifests or flags are wrong.
    """
    from kubewright.api import duration  # noqa: PLC0415 (so that --help is quick)
    from kubewright.sim import loop  # noqa: PLC0415
    from kubewright.sim.sandbox import PRESETS  # noqa: PLC0415

    if faults not in PRESETS:
        raise ConfigError(f"--faults: found {faults!r}; write one of {', '.join(PRESETS)}")
    try:
        lasts = duration.parse(limit)
    except ValueError as wrong:
        raise ConfigError(f"--for: {wrong}; write for example 30m") from None
    began = time.monotonic()
    manifests, steps = read(paths or (str(EXAMPLE),))
    report = loop.run(
        _run(
            manifests,
            steps,
            seed,
            faults,
            lasts,
            serve=serve,
            port=port,
            kubeconfig=kubeconfig,
            verbose=verbose,
            say=_say(output),
        ),
        real_time=real_time or serve,
    )
    if output == "json":
        import msgspec  # noqa: PLC0415

        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        from rich.console import Console  # noqa: PLC0415

        show(report, Console(width=None if sys.stdout.isatty() else 130), time.monotonic() - began)
    return 1 if report.pending else 0


def read(paths: tuple[str, ...]) -> tuple[list["Manifest"], tuple["Step", ...]]:
    """Manifests and scenario steps of these files. Raises ManifestError with all problems."""
    from kubewright.api import manifests  # noqa: PLC0415
    from kubewright.sim import scenario  # noqa: PLC0415

    kind = (scenario.API_VERSION, scenario.KIND)
    found = manifests.load(paths, others={kind})
    plays = [m for m in found if (m.object.get("apiVersion"), m.object.get("kind")) == kind]
    steps = [step for m in plays for step in scenario.read(m.object, f"{m.file}:{m.line}")]
    return [m for m in found if m not in plays], tuple(sorted(steps, key=lambda s: s.after))


async def _run(
    manifests: list["Manifest"],
    steps: tuple["Step", ...],
    seed: int,
    faults: str,
    limit: timedelta,
    *,
    serve: bool,
    port: int,
    kubeconfig: str,
    verbose: bool,
    say: Callable[[str], None],
) -> "Report":
    from kubewright import logs  # noqa: PLC0415
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.sim import loop  # noqa: PLC0415
    from kubewright.sim.sandbox import PRESETS, Sandbox  # noqa: PLC0415

    clock = Clock() if serve else Clock(loop.EPOCH)
    logs.configure(clock=clock, level="debug" if verbose else "error", outputs=("stderr",))
    box = Sandbox(clock, seed=seed, faults=PRESETS[faults])
    narrator = box.narrator(say)
    async with box.running():
        start = clock.now()
        box.apply(manifests)
        narrator.tell(clock.now(), f"applied {len(manifests)} objects")
        if serve:
            quiet = await _serve(box, narrator.tell, port, kubeconfig, say)
        else:
            quiet = await box.play(steps, narrator, limit)
        return box.report(start, narrator, limit_reached=not quiet)


async def _serve(box: "Sandbox", tell: Callable[..., None], port: int, kubeconfig: str, say: Callable[[str], None]) -> bool:
    from kubewright.operator.process import until_signalled  # noqa: PLC0415
    from kubewright.sim.apiserver import http  # noqa: PLC0415

    server = await http.serve(box.store, "127.0.0.1", port)
    try:
        path = Path(kubeconfig).absolute()  # noqa: ASYNC240 (once, at the start)
        http.write_kubeconfig(path, server.url)
        say(f"serving the cluster at {server.url}; in another shell:  export KUBECONFIG={path}  and then kubectl; Ctrl-C ends it")

        async def narrate() -> None:
            while True:
                tell(box.clock.now())
                await asyncio.sleep(1)

        await until_signalled(narrate())
    finally:
        await server.close()
    return True


def _say(output: str) -> Callable[[str], None]:
    # With -o json the answer alone goes to standard output.
    return lambda line: click.echo(line, err=output == "json")


def show(report: "Report", console: "Console", seconds: float) -> None:
    """The closing tables."""
    from rich.table import Table  # noqa: PLC0415

    console.print()
    now = Table(title="Nodes at the end", title_justify="left")
    for column, justify in (
        ("node", "left"),
        ("pool", "left"),
        ("type", "left"),
        ("zone", "left"),
        ("capacity", "left"),
        ("pods", "right"),
        ("$/h", "right"),
    ):
        now.add_column(column, justify="right" if justify == "right" else "left", no_wrap=True)
    now.add_column("what runs there")
    for row in report.nodes:
        cells = (
            row.name,
            row.node_pool,
            row.instance_type,
            row.zone,
            row.capacity_type,
            str(sum(row.pods.values())),
            f"{row.usd_per_hour:.4f}",
        )
        now.add_row(*cells, _counts(row.pods))
    now.add_section()
    total = sum(r.usd_per_hour for r in report.nodes)
    now.add_row(
        "total",
        f"{len(report.nodes)} nodes",
        "",
        "",
        "",
        str(sum(sum(r.pods.values()) for r in report.nodes)),
        f"{total:.4f}",
        "",
    )
    console.print(now)

    bills = Table(title="Every machine of the run", title_justify="left")
    for name in ("machine", "pool", "type", "zone", "capacity"):
        bills.add_column(name, no_wrap=True)
    for name in ("minutes", "$"):
        bills.add_column(name, justify="right", no_wrap=True)
    bills.add_column("pods that ran there")
    for bill in report.bills:
        cells = (
            bill.node_claim,
            bill.node_pool,
            bill.instance_type,
            bill.zone,
            bill.capacity_type,
            f"{bill.hours * 60:.1f}",
            f"{bill.usd:.4f}",
        )
        bills.add_row(*cells, _counts(report.ran.get(bill.node_claim, {})))
    bills.add_section()
    bills.add_row(
        "total",
        f"{len(report.bills)} machines",
        "",
        "",
        "",
        f"{sum(b.hours for b in report.bills) * 60:.1f}",
        f"{sum(b.usd for b in report.bills):.4f}",
        "",
    )
    console.print(bills)

    if report.pending:
        waiting = Table(title="Pods without a node", title_justify="left")
        waiting.add_column("pod", no_wrap=True)
        waiting.add_column("why")
        for pod, why in sorted(report.pending.items())[:20]:
            waiting.add_row(pod, why)
        if len(report.pending) > 20:
            waiting.add_row(f"and {len(report.pending) - 20} more", "")
        console.print(waiting)
    minutes = report.elapsed.total_seconds() / 60
    ended = "the time was up before the cluster was quiet" if report.limit_reached else "the cluster is quiet"
    console.print(f"{minutes:.0f} minutes of cluster time in {seconds:.1f} s; {ended}.", highlight=False)


def _counts(pods: "dict[str, int] | object") -> str:
    assert hasattr(pods, "items")
    return ", ".join(f"{name} {count}" for name, count in sorted(pods.items()))
