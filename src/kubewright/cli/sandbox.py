"""`kubewright sandbox`: a cluster and a cloud in memory, the production operator on them, and what came of it as a table."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubewright.cli import stock
from kubewright.errors import ConfigError

if TYPE_CHECKING:
    from kubewright.api.manifests import Manifest
    from kubewright.cloud.aws.catalogue import Catalogue
    from kubewright.settings import Settings
    from kubewright.sim.report import Report
    from kubewright.sim.sandbox import Sandbox
    from kubewright.sim.scenario import Step

EXAMPLE = Path(__file__).parent.parent / "sim" / "example"
CONTEXT = "kubewright-sandbox"
LIMIT = timedelta(hours=1)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The flags, read."""

    paths: tuple[str, ...]
    seed: int
    faults: str
    limit: timedelta | None
    """None: until somebody ends it."""
    real_time: bool
    serve: bool
    port: int
    kubeconfig: Path
    launch_s: float | None
    join_s: float | None
    known: Any
    """The Catalogue."""
    record: Path | None
    gates: str
    prices: str
    verbose: bool


@click.command("sandbox", short_help="Run kubewright on a Kubernetes and an EC2 in memory.")
@click.option(
    "-f", "--filename", "paths", multiple=True, help="Manifests: a file or a directory; repeatable. [default: the bundled shop]"
)
@click.option("--seed", default=0, show_default=True, help="Chance, wherever there is any; the same seed gives the same log.")
@click.option("--faults", default="none", show_default=True, help="What is hard: none, spot-storm, scarce, throttled, flaky.")
@click.option(
    "--for", "limit", default=None, help="End after this much cluster time, quiet or not. [default: 60m; --serve: never]"
)
@click.option("--real-time", is_flag=True, help="Let cluster time pass as the wall clock does.")
@click.option("--serve", is_flag=True, help="Serve the cluster to kubectl, on the wall clock, until interrupted.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="For --serve; 0 takes a free one.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    default="kubewright-sandbox.kubeconfig",
    show_default=True,
    help="Where --serve writes its kubeconfig; it is taken away at the end.",
)
@click.option(
    "--launch-seconds", "launch_s", type=click.FloatRange(0), help="From a purchase to a running machine. [default: 15-25]"
)
@click.option("--join-seconds", "join_s", type=click.FloatRange(0), help="From a running machine to its Node. [default: 20-25]")
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save every scheduling pass in this directory, for `kubewright replay`.",
)
@click.option("--feature-gates", "gates", default="", help="As `run` takes it, for example CapacityBuffer=true,NodeOverlay=true.")
@click.option("--price-file", "prices", default="", help="As `run` takes it: prices and commitments of your own.")
@stock.option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="The operator's own log, too, on standard error.")
def command(limit: str | None, catalogue: Path | None, output: str, **flags: Any) -> int:
    """Run kubewright on a Kubernetes and an EC2 in memory.

    The manifests are applied, pods pend, machines are bought, register and run them; the run ends when nothing more happens,
    with what is there and what it cost. Nothing outside this process is touched. A document of kind Scenario among the manifests
    (sandbox.kubewright.sh/v1; the bundled example has one) says what happens later: scale, apply, delete, interrupt.

    Exit code: 0 when every pod found a place and every step could be done, 1 when not, 2 when the manifests or flags are wrong,
    and then nothing was applied. With --serve, 0 when it is ended.
    """
    from kubewright.sim import loop  # noqa: PLC0415 (so that --help is quick)
    from kubewright.sim.sandbox import PRESETS  # noqa: PLC0415

    if flags["faults"] not in PRESETS:
        raise ConfigError(f"--faults: found {flags['faults']!r}; write one of {', '.join(PRESETS)}")
    lasts = _limit(limit) if limit is not None else None if flags["serve"] else LIMIT
    wanted = Wanted(limit=lasts, known=stock.load(catalogue), **flags)
    began = time.monotonic()
    manifests, steps = read(wanted.paths or (str(EXAMPLE),))
    # With -o json the answer alone goes to standard output.
    story = _run(wanted, manifests, steps, say=lambda line: click.echo(line, err=output == "json"))
    report = loop.run(story, real_time=wanted.real_time or wanted.serve)
    _close(report, wanted, output, time.monotonic() - began)
    return 0 if wanted.serve or not (report.pending or report.failed_steps) else 1


def _limit(text: str) -> timedelta:
    from kubewright.api import duration  # noqa: PLC0415

    with contextlib.suppress(ValueError):
        found = duration.parse(text)
        if found > timedelta():
            return found
    raise ConfigError(f"--for: found {text!r}; write a duration, for example 30m or 2h")


def read(paths: tuple[str, ...]) -> tuple[list["Manifest"], tuple["Step", ...]]:
    """Manifests and scenario steps of these files. Raises ManifestError with all problems."""
    from kubewright.api import manifests  # noqa: PLC0415
    from kubewright.sim import scenario  # noqa: PLC0415

    kind = (scenario.API_VERSION, scenario.KIND)
    found = manifests.load(paths, others={kind})
    plays = [m for m in found if (m.object.get("apiVersion"), m.object.get("kind")) == kind]
    steps = [step for m in plays for step in scenario.read(m.object, f"{m.file}:{m.line}")]
    return [m for m in found if m not in plays], tuple(sorted(steps, key=lambda s: s.after))


async def _run(wanted: Wanted, manifests: list["Manifest"], steps: tuple["Step", ...], say: Callable[[str], None]) -> "Report":
    from kubewright import logs  # noqa: PLC0415
    from kubewright.clock import Clock  # noqa: PLC0415
    from kubewright.operator.process import until_signalled  # noqa: PLC0415
    from kubewright.sim import loop  # noqa: PLC0415

    is_live = wanted.serve or wanted.real_time
    clock = Clock() if is_live else Clock(loop.EPOCH)
    logs.configure(clock=clock, level="debug" if wanted.verbose else "error", outputs=("stderr",))
    box = _box(wanted, clock)
    narrator = box.narrator(say)
    quiet = False

    async def play() -> None:
        nonlocal quiet
        quiet = await box.play(steps, narrator, wanted.limit)

    async with box.running():
        start = clock.now()
        box.apply(manifests, steps)
        narrator.tell(start, f"applied {len(manifests)} objects")
        async with _served(box, wanted, say) if wanted.serve else contextlib.nullcontext():
            # Virtual time has no signals; there an interrupt ends the process.
            await (until_signalled(play()) if is_live else play())
            narrator.tell(clock.now())
        return box.report(start, narrator, quiet=quiet)


def _box(wanted: Wanted, clock: Any) -> "Sandbox":
    from kubewright.records.directory import Directory  # noqa: PLC0415
    from kubewright.sim.joiner import JoinerSettings  # noqa: PLC0415
    from kubewright.sim.sandbox import PRESETS, Sandbox  # noqa: PLC0415

    faults, joining = PRESETS[wanted.faults], JoinerSettings()
    if wanted.launch_s is not None:
        faults = msgspec.structs.replace(faults, launch_s=wanted.launch_s, launch_jitter_s=0.0)
    if wanted.join_s is not None:
        joining = msgspec.structs.replace(joining, join_s=wanted.join_s, join_jitter_s=0.0)
    records = Directory(wanted.record) if wanted.record is not None else None
    settings = _settings(wanted)
    return Sandbox(
        clock, settings=settings, seed=wanted.seed, faults=faults, known=wanted.known, joining=joining, records=records
    )


def _settings(wanted: Wanted) -> "Settings":
    """Raises ConfigError: a flag of the operator that cannot be used."""
    from kubewright.operator import options  # noqa: PLC0415

    given = {"--cluster-name": "sandbox", "--feature-gates": wanted.gates, "--price-file": wanted.prices}
    parsed = options.parse([f"{flag}={value}" for flag, value in given.items() if value], {})
    for warning in parsed.warnings:
        click.echo(warning, err=True)
    return parsed.settings


@contextlib.asynccontextmanager
async def _served(box: "Sandbox", wanted: Wanted, say: Callable[[str], None]) -> AsyncIterator[None]:
    """The API server over HTTP and the kubeconfig for it, while the block runs.

    Raises:
        ConfigError: the port is taken, or the kubeconfig cannot or must not be written.
    """
    from kubewright.sim.apiserver import http  # noqa: PLC0415

    path = wanted.kubeconfig.absolute()
    if path.exists() and f"current-context: {CONTEXT}" not in path.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(f"--kubeconfig: found {str(path)!r}, which is not the sandbox's and is left alone; write another path")
    try:
        server = await http.serve(box.store, "127.0.0.1", wanted.port)
    except OSError as error:
        raise ConfigError(f"--port: found {wanted.port}, which cannot be used ({error.strerror}); write another or 0") from error
    try:
        try:
            http.write_kubeconfig(path, server.url, name=CONTEXT)
        except OSError as error:
            raise ConfigError(f"--kubeconfig: {path}: {error.strerror}; write a path that can be written") from error
        say(f"The cluster is served at {server.url} until Ctrl-C. In another shell:")
        say(f"    export KUBECONFIG={path}")
        say("    kubectl get nodepools,nodeclaims,nodes,pods -A")
        yield
    finally:
        await server.close()
        if path.exists() and server.url in path.read_text(encoding="utf-8", errors="replace"):
            path.unlink()


def _close(report: "Report", wanted: Wanted, output: str, seconds: float) -> None:
    known: Catalogue = wanted.known
    if output == "json":
        catalogue = {"source": known.source, "date": known.date}
        told = {"seed": wanted.seed, "faults": wanted.faults, "catalogue": catalogue, **msgspec.to_builtins(report)}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
        return
    from kubewright.cli import tables  # noqa: PLC0415 (rich is slow to import)

    prices = f"Machines cost what AWS listed on {known.date} (`kubewright catalogue list`); spot prices are simulated."
    tables.show(report, tables.console(), prices)
    click.echo(f"It took {seconds:.1f} s.", err=True)  # beside the output: that is the same for the same seed
