"""kill -9 under load, four times; `python -m tests.e2e.chaos 20` does it twenty times."""

from pathlib import Path

import pytest

from tests.e2e import chaos
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go


def test_nothing_leaks_waits_or_breaks_a_budget_whoever_is_killed(fresh_plane: Plane, tmp_path: Path) -> None:
    outcomes = chaos.runs(fresh_plane, tmp_path / "ec2.json", range(4))
    # Between them they killed everybody.
    assert {victim for one in outcomes for victim in one.killed} == set(chaos.VICTIMS)
    assert max(one.most_going for one in outcomes) == 1, "no node was given up while somebody was killed: it proves nothing"
