"""Random problems without the reference: each is answered, and validly by rules that know nothing of kubewright, both ways."""

import pytest

from tests.conformance.adapter import answer
from tests.conformance.problems import problem
from tests.conformance.validator import violations

PINNED_LAST = 10627
"""Fixing the zone of the last open claim opens a domain for a pod that had none before."""


@pytest.mark.parametrize("packing", ["first-fit", "improve"])
def test_every_problem_is_answered_validly(packing: str) -> None:
    for seed in (PINNED_LAST, *range(20_000, 20_040)):
        asked, _ = problem(seed)
        given = answer({**asked, "packing": packing})
        assert not given.get("error"), seed
        assert not violations(asked, given), seed


def test_a_pod_is_not_left_out_when_fixing_a_zone_makes_room_for_it() -> None:
    asked, _ = problem(PINNED_LAST)
    assert not answer({**asked, "packing": "first-fit"})["errors"]
