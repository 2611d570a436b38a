"""The reference, asked the same: nothing of ours is invalid or left out without a named reason, and we are not dearer."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.judge import Oracle, Tally, failure, judge, verdict
from tests.conformance.problems import Made, problems
from tests.plane.binaries import ensure

pytestmark = pytest.mark.needs_go


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    running = Oracle(ensure("oracle"))
    yield running
    running.close()


def test_two_hundred_random_problems_against_the_reference(oracle: Oracle) -> None:
    counts = Tally()
    for seed in range(10_000, 10_200):
        counts.add(judge(oracle, seed))
    assert counts.failed == 0
    assert counts.ours <= counts.theirs
    assert [f for f in counts.having if counts.stood[f] < 0.5 * counts.pods[f]] == []


@given(problems())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_problem_hypothesis_thinks_of(oracle: Oracle, made: Made) -> None:
    assert not failure(verdict(oracle, made))
