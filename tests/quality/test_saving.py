"""Improved plans on random problems: right, and cheaper than the reference's."""

import pytest

from tests.conformance.adapter import answer
from tests.conformance.judge import Oracle, placed
from tests.plane.binaries import ensure
from tests.quality.problems import capped
from tests.quality.saving import LEAST_SAVED, asked_of, outcome, saved, told

COUNT = 100


@pytest.mark.needs_go
def test_a_hundred_random_problems_against_the_best_of_three_answers_of_the_reference() -> None:
    oracle = Oracle(ensure("oracle"))
    found = [outcome(oracle, *asked_of(index)) for index in range(COUNT)]
    oracle.close()
    print("\n".join(told(found)))
    assert [o for o in found if o.invalid or o.is_dearer] == []
    assert sum(o.is_comparable for o in found) > COUNT * 0.6
    assert saved(found) >= LEAST_SAVED


@pytest.mark.parametrize("seed", range(12))
def test_a_capped_problem_is_right_and_no_dearer_than_first_fit(seed) -> None:
    found = outcome(None, "capped", capped(seed))
    assert found.invalid == []
    assert found.usd <= found.first_usd * (1 + 1e-9)


def test_the_problems_can_be_answered() -> None:
    share = [len(placed(answer({**asked, "packing": "first-fit"}))) / _pods(asked) for asked in map(capped, range(40))]
    assert sum(share) / len(share) > 0.95


def _pods(asked) -> int:
    return sum(1 for o in asked["objects"] if o["kind"] == "Pod")
