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
    [(100, 49, "plain", 0.04), (1000, 49, "plain", 0.02), (1000, 0, "plain", 0.02), (1000, 49, "daemons", 0.03)],
)
def test_gap_to_the_bound(count, cap, mix, gap, catalogue) -> None:
    problem = asked(count, cap, mix, catalogue)
    first, better = plan(problem, Settings(packing=Packing.FIRST_FIT)), plan(problem, IMPROVE)
    assert not better.unplaced
    assert better.usd_per_hour <= (1 + gap) * better.bound_usd_per_hour
    assert better.usd_per_hour < 0.95 * first.usd_per_hour


def test_with_pods_spread_over_zones(catalogue) -> None:
    problem = asked(600, 49, "spread", catalogue)
    first, better = plan(problem, Settings(packing=Packing.FIRST_FIT)), plan(problem, IMPROVE)
    assert not better.unplaced
    assert better.usd_per_hour < 0.97 * first.usd_per_hour
