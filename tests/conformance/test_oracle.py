"""The reference, asked the same: nothing of ours is invalid or left out without a named reason, and we are not dearer."""

from collections.abc import Iterator

import pytest

from tests.conformance.judge import DIFFERENCES, Oracle, judge
from tests.plane.binaries import ensure

pytestmark = pytest.mark.needs_go


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    running = Oracle(ensure("oracle"))
    yield running
    running.close()


def test_two_hundred_random_problems_against_the_reference(oracle: Oracle) -> None:
    verdicts = [judge(oracle, seed) for seed in range(10_000, 10_200)]
    assert [(v.seed, v.invalid[:2]) for v in verdicts if v.invalid] == []
    assert [(v.seed, v.missing) for v in verdicts if v.missing and v.excuse not in DIFFERENCES] == []
    comparable = [v for v in verdicts if v.comparable]
    assert len(comparable) > 100
    assert sum(v.our_usd for v in comparable) <= sum(v.reference_usd for v in comparable)
