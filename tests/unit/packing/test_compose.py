"""What every plan carries, and that it is made again from its record."""

import msgspec

from kubewright import records
from kubewright.explain import cost as costs
from kubewright.packing import plan
from kubewright.packing.compose import budget
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import Plan, SolverSettings
from kubewright.solver.solve import solve
from tests.builders import ask, pod
from tests.unit.packing.test_improve import LARGE_IS_DEAR, mixed

IMPROVE = Settings(packing_steps=2000, packing_steps_most=2000)


def test_cost_bound_and_gap_are_in_the_plans_json() -> None:
    told = msgspec.json.decode(msgspec.json.encode(plan(ask(mixed(), types=LARGE_IS_DEAR), IMPROVE)))
    assert 0 < told["bound_usd_per_hour"] <= told["usd_per_hour"] <= told["first_fit_usd_per_hour"]
    assert told["gap"] >= 0
    assert told["steps"] == 2000


def test_a_record_gives_the_same_plan_to_the_byte() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    found = plan(asked, IMPROVE)
    read = records.decode(records.encode(asked, found, IMPROVE))
    assert msgspec.json.encode(plan(read.problem, read.settings), order="sorted") == msgspec.json.encode(found, order="sorted")


def test_the_budget_grows_with_the_batch_up_to_its_end_and_first_fit_has_none() -> None:
    few, many = ask([pod()]), ask(mixed(500))
    assert budget(few, Settings()) == Settings().packing_steps
    assert Settings().packing_steps < budget(many, Settings()) < Settings().packing_steps_most
    assert budget(ask(mixed(5000)), Settings()) == Settings().packing_steps_most
    assert budget(many, Settings(packing=Packing.FIRST_FIT)) == 0


def test_without_settings_it_is_first_fit_alone() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    assert plan(asked) == solve(asked)


def test_slack_leaves_room_on_new_nodes_unless_a_pod_would_find_none() -> None:
    slack = SolverSettings(slack=0.25)
    tight, loose = (
        plan(ask([pod(f"p{i}", "1", "1Gi") for i in range(16)], settings=s), IMPROVE) for s in (SolverSettings(), slack)
    )
    assert loose.usd_per_hour > tight.usd_per_hour
    assert not plan(ask([pod("giant", "15", "1Gi")], settings=slack), IMPROVE).unplaced


def test_costs_of_plans_add_up_and_read_as_a_sentence() -> None:
    one = Plan(usd_per_hour=2.0, bound_usd_per_hour=1.6, gap=0.25, first_fit_usd_per_hour=3.0)
    assert costs.together([one, one]) == costs.Cost(4.0, 3.2, 0.25, 6.0)
    assert costs.text(costs.cost(one)) == (
        "$2.0000 an hour, at least $1.6000 is needed (gap 25.0 %), first fit would have cost $3.0000"
    )
    assert costs.text(costs.Cost(1.0)) == "$1.0000 an hour"
