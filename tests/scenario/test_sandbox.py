"""The bundled example, as people first meet kubewright: it ends well, and tells the same story every time."""

from datetime import timedelta

import pytest

from kubewright import logs
from kubewright.cli.sandbox import EXAMPLE, read
from kubewright.clock import Clock
from kubewright.sim import loop
from kubewright.sim.report import Report
from kubewright.sim.sandbox import PRESETS, Sandbox

LIMIT = timedelta(hours=2)


def play(seed: int = 0, faults: str = "none") -> tuple[list[str], Report]:
    manifests, steps = read((str(EXAMPLE),))
    told: list[str] = []

    async def story() -> Report:
        clock = Clock(loop.EPOCH)
        logs.configure(level="error", clock=clock, outputs=("stderr",))
        box = Sandbox(clock, seed=seed, faults=PRESETS[faults])
        narrator = box.narrator(told.append)
        async with box.running():
            start = clock.now()
            box.apply(manifests, steps)
            quiet = await box.play(steps, narrator, LIMIT)
            return box.report(start, narrator, quiet=quiet)

    return told, loop.run(story())


def test_the_example_runs_everything_and_keeps_only_what_three_replicas_need() -> None:
    told, report = play()
    assert not report.pending
    assert report.quiet
    assert sum(row.pods.get("shop/web", 0) for row in report.nodes) == 3
    assert {row.node_pool for row in report.nodes} == {"general"}
    zones = [row.zone for row in report.nodes if row.pods.get("shop/web")]
    assert len(zones) == len(set(zones)) == 3
    assert sum(row.pods.get("shop/nightly", 0) for row in report.machines) > 200, "the interrupted pods ran again"
    assert any("SpotInterrupted" in line for line in told)
    live = {row.name for row in report.machines if row.running}
    assert live == {row.name for row in report.nodes}, "every machine that is paid for is a node"


def test_the_same_seed_tells_the_same_story() -> None:
    assert play(3) == play(3)


def test_another_seed_tells_another() -> None:
    assert play(3)[0] != play(4)[0]


@pytest.mark.parametrize("faults", [name for name in PRESETS if name != "none"])
def test_what_is_hard_is_survived(faults: str) -> None:
    _, report = play(1, faults)
    assert not report.pending
    assert {row.name for row in report.machines if row.running} == {row.name for row in report.nodes}
