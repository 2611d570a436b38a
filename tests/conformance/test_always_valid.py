"""Random problems without the reference: each is answered, and validly by rules that know nothing of kubewright, both ways."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.adapter import answer
from tests.conformance.problems import Made, problem, problems
from tests.conformance.validator import violations

FOUND = Path(__file__).with_name("found")
"""Problems that were answered wrongly once."""


@pytest.mark.parametrize("packing", ["first-fit", "improve"])
def test_every_problem_is_answered_validly(packing: str) -> None:
    for seed in range(20_000, 20_040):
        asked, _ = problem(seed)
        given = answer({**asked, "packing": packing})
        assert not given.get("error"), seed
        assert not violations(asked, given), seed


@given(problems())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_problem_hypothesis_thinks_of(made: Made) -> None:
    given = answer(made.asked)
    assert not given.get("error")
    assert not violations(made.asked, given)


@pytest.mark.parametrize("packing", ["first-fit", "improve"])
@pytest.mark.parametrize("file", sorted(FOUND.glob("*.json")), ids=lambda f: f.stem)
def test_problems_that_were_answered_wrongly_once(file: Path, packing: str) -> None:
    asked = json.loads(file.read_text())
    given = answer({**asked, "packing": packing})
    assert not given.get("error")
    assert not violations(asked, given)


def test_a_pod_is_not_left_out_when_fixing_a_zone_makes_room_for_it() -> None:
    """Fixing the zone of the last open claim opens a domain for a pod that had none before."""
    asked = json.loads((FOUND / "pinned_last.json").read_text())
    assert not answer({**asked, "packing": "first-fit"})["errors"]
