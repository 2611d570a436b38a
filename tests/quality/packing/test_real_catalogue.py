"""How far from the bound plans are on the real catalogue."""

import pytest

from benchmarks import offered
from benchmarks.cost import as_json, problem
from kubewright.packing import plan
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import Problem
from kubewright.solver.select import select
from tests.conformance.adapter import read

IMPROVE = Settings(packing=Packing.IMPROVE)


@pytest.fixture(scope="module")
def catalogue():
    return as_json(offered.instance_types(), ("c", "m", "r"))


def asked(count: int, cap: int, mix: str, catalogue) -> Problem:
    snapshot, how = read(problem(count, cap, mix, 5, catalogue))
    return select(snapshot, how).problem


@pytest.mark.parametrize(
    ("count", "cap", "mix", "gap"),
    [
        (100, 49, "plain", 0.0),
        (1000, 49, "plain", 0.01),
        (1000, 0, "plain", 0.01),
        (1000, 49, "daemons", 0.02),
        (1000, 49, "spread", 0.02),
    ],
)
def test_gap_to_the_bound(count, cap, mix, gap, catalogue) -> None:
    problem = asked(count, cap, mix, catalogue)
    first, better = plan(problem, Settings(packing=Packing.FIRST_FIT)), plan(problem, IMPROVE)
    assert not better.unplaced
    assert better.gap <= gap
    assert better.usd_per_hour <= (1 + gap + 1e-5) * better.bound_usd_per_hour
    assert better.optimal == (gap == 0)
    assert better.first_fit_usd_per_hour == first.usd_per_hour
    assert better.usd_per_hour < 0.95 * first.usd_per_hour


def test_first_fit_has_a_bound_too_and_a_gap_that_shows_what_it_wastes(catalogue) -> None:
    first = plan(asked(600, 49, "spread", catalogue), Settings(packing=Packing.FIRST_FIT))
    assert 0 < first.bound_usd_per_hour < first.usd_per_hour
    assert first.gap > 0.03
    assert first.steps == 0


def test_no_new_node_is_larger_than_the_cap_while_the_pool_sets_none(catalogue) -> None:
    cpus = {t["name"]: int(t["capacity"]["cpu"]) for t in catalogue}
    better = plan(asked(600, 0, "plain", catalogue), IMPROVE)
    assert max(cpus[n] for c in better.claims for n in c.instance_types) <= Settings().packing_node_cpu
