"""The optimum for few pods: proven where HiGHS is installed, and what holds without it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.packing import optimal, plan
from kubewright.packing.bound import Question
from kubewright.settings import Packing, Settings
from kubewright.solver.build import Parts
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, node_pool, pod
from tests.property.packing.test_packing import optimum, standing
from tests.unit.packing.test_improve import LARGE_IS_DEAR, mixed

IMPROVE = Settings(packing=Packing.IMPROVE, packing_steps=300, packing_steps_most=300)
sizes = st.tuples(st.sampled_from((100, 500, 900, 1500, 3000)), st.sampled_from((128, 1024, 3000, 9000)))


@given(st.lists(sizes, min_size=1, max_size=7))
@settings(deadline=None, max_examples=25)
def test_the_plan_is_as_cheap_as_the_best_of_all_and_says_so(many) -> None:
    found = plan(ask([pod(f"p{i}", f"{cpu}m", f"{memory}Mi") for i, (cpu, memory) in enumerate(many)]), IMPROVE)
    best = optimum(tuple(sorted(many)))
    assert found.usd_per_hour == pytest.approx(best)
    assert found.optimal
    assert found.gap == 0
    assert found.bound_usd_per_hour <= best + 1e-9


def test_a_hundred_pods_are_proven_where_linear_programs_say_too_little() -> None:
    found = plan(ask(mixed(100), types=LARGE_IS_DEAR), IMPROVE)
    assert found.optimal
    assert found.proved_by.startswith("HiGHS ")


def test_without_the_extra_the_plan_is_the_improvers_and_the_bound_the_linear_programs(monkeypatch) -> None:
    asked = ask(mixed(20), types=LARGE_IS_DEAR)
    with_it = plan(asked, IMPROVE)
    monkeypatch.setattr(optimal, "highs", lambda: None)
    without = plan(asked, IMPROVE)
    assert without.proved_by == ""
    assert 0 < without.bound_usd_per_hour <= with_it.bound_usd_per_hour <= with_it.usd_per_hour <= without.usd_per_hour


def test_a_module_that_is_not_there_is_no_error(monkeypatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(optimal.importlib, "import_module", absent)
    assert optimal.highs() is None


def test_a_set_of_machines_that_has_the_room_but_does_not_hold_the_pods_is_ruled_out() -> None:
    # Together 4 cpus, which two machines of 2 have; but beside the one of 1.2 none has room.
    asked = ask([pod(f"p{i}", cpu, "100Mi") for i, cpu in enumerate(("1200m", "900m", "900m", "1"))], types=S_TYPES[:1])
    question = Question(Parts(asked), solve(asked))
    module = optimal.highs()
    assert module is not None
    program = optimal.Program(module, question)
    first = program.solve()
    assert optimal.fitted(module, first.machines, question.sizes, question.counts)[0] == "no"
    program.rule_out(first.machines)
    second = program.solve()
    assert len(first.machines) == 2
    assert len(second.machines) == 3
    assert second.bound > first.bound
    assert optimal.fitted(module, second.machines, question.sizes, question.counts)[0] == "yes"
    assert plan(asked, IMPROVE).optimal


def test_a_search_that_is_stopped_early_still_proves_something_true() -> None:
    asked = ask(mixed(100), types=LARGE_IS_DEAR)
    question = Question(Parts(asked), solve(asked))
    module = optimal.highs()
    assert module is not None
    stopped, whole = (optimal.Program(module, question, nodes).solve().bound for nodes in (1, 5000))
    assert 0 < stopped <= whole <= plan(asked, IMPROVE).usd_per_hour


def test_limits_and_room_that_is_there_are_kept() -> None:
    asked = ask(mixed(30), [node_pool(limits={"cpu": "60"})], types=LARGE_IS_DEAR, nodes=[standing("n", 5, 9000, 20000)])
    found = plan(asked, IMPROVE)
    assert not found.unplaced
    assert found.bound_usd_per_hour <= found.usd_per_hour
    question = Question(Parts(asked), found)
    module = optimal.highs()
    assert module is not None
    assert optimal.Program(module, question).solve().bound <= found.usd_per_hour + 1e-9


def test_the_same_problem_gives_the_same_bytes() -> None:
    asked = ask(mixed(40), types=LARGE_IS_DEAR)
    again = replace(asked, pods=tuple(reversed(asked.pods)))
    assert plan(asked, IMPROVE) == plan(again, IMPROVE)
