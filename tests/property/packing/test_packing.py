"""Laws of bounds and of improved plans."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.packing import plan
from kubewright.packing.bound import Question, Unbound, bound, proven
from kubewright.packing.improve import improved
from kubewright.settings import Packing, Settings
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, pod
from tests.conformance.adapter import answer, read
from tests.conformance.problems import problem
from tests.conformance.validator import violations

seeds = st.integers(0, 10**6)
sizes = st.tuples(st.sampled_from((100, 500, 900, 1500, 3000)), st.sampled_from((128, 1024, 3000, 9000)))


def chosen(seed: int) -> Problem:
    asked, _ = problem(seed)
    snapshot, how = read(asked)
    return select(snapshot, how).problem


def placed(one: Plan) -> set[str]:
    return {p for c in one.claims for p in c.pods} | {p for pods in one.existing.values() for p in pods}


@given(seeds)
@settings(deadline=None, max_examples=60)
def test_no_plan_undercuts_the_bound_nor_first_fit_the_improved_one(seed) -> None:
    asked = chosen(seed)
    first = solve(asked)
    better = improved(asked, first, 1500)
    assert placed(better) >= placed(first)
    assert better.usd_per_hour <= first.usd_per_hour + 1e-9
    assert bound(asked, first, 0) <= first.usd_per_hour + 1e-9
    assert bound(asked, better, 600) <= better.usd_per_hour + 1e-9
    if placed(better) == placed(first):
        assert bound(asked, first, 600) <= better.usd_per_hour + 1e-9


@given(seeds)
@settings(deadline=None, max_examples=60)
def test_an_improved_plan_breaks_no_rule_of_kubernetes(seed) -> None:
    asked, _ = problem(seed)
    assert violations(asked, answer({**asked, "packing": "improve"})) == []


@given(st.lists(sizes, min_size=1, max_size=6), st.lists(st.floats(0, 3), min_size=6, max_size=6))
@settings(deadline=None, max_examples=60)
def test_the_optimum_lies_between_bound_and_plan(many, prices) -> None:
    asked = ask([pod(f"p{i}", f"{cpu}m", f"{memory}Mi") for i, (cpu, memory) in enumerate(many)])
    first = solve(asked)
    best = optimum(tuple(sorted(many)))
    assert bound(asked, first, 0) <= best + 1e-9
    assert bound(asked, first, 2000) <= best + 1e-9
    assert best <= improved(asked, first, 2000).usd_per_hour + 1e-9
    # Whatever the prices are, what they prove is true.
    question = Question(Unbound(asked), first)
    assert proven(question, prices[: len(question.items)]) <= best + 1e-9


@given(seeds)
@settings(deadline=None, max_examples=25)
def test_the_same_problem_in_another_order_gives_the_same_improved_plan(seed) -> None:
    asked = chosen(seed)
    turned = replace(
        asked, pods=tuple(reversed(asked.pods)), nodes=tuple(reversed(asked.nodes)), pools=tuple(reversed(asked.pools))
    )
    how = Settings(packing=Packing.IMPROVE, packing_steps=1500)
    assert plan(asked, how) == plan(turned, how)


@cache
def optimum(many: tuple[tuple[int, int], ...]) -> float:
    """The least cost over every way to part the pods (spot prices of `S_TYPES`)."""
    if not many:
        return 0.0
    first, rest = many[0], many[1:]
    least = float("inf")
    for mask in range(1 << len(rest)):
        here = [first, *(p for i, p in enumerate(rest) if mask >> i & 1)]
        usd = cheapest(sum(p[0] for p in here), sum(p[1] for p in here))
        if usd < least:
            least = min(least, usd + optimum(tuple(p for i, p in enumerate(rest) if not mask >> i & 1)))
    return least


def cheapest(cpu: int, memory: int) -> float:
    having = [
        min(o.price for o in t.offerings)
        for t in S_TYPES
        if t.capacity["cpu"] >= cpu * 10**6 and t.capacity["memory"] >= memory * 2**20 * 10**9
    ]
    return min(having, default=float("inf"))


def test_brute_force_knows_what_one_pod_costs() -> None:
    assert optimum(((1500, 128),)) == pytest.approx(0.04)
