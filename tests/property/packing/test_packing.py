"""Laws of bounds and of improved plans."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import Node, NodeStatus
from kubewright.api.meta import ObjectMeta
from kubewright.packing import plan
from kubewright.packing.bound import Question, bound, proven
from kubewright.packing.improve import improved
from kubewright.settings import Packing, Settings
from kubewright.solver.build import Parts
from kubewright.solver.problem import Plan, Problem, StateNode
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, needs, node_pool, pod
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
    first = violations(asked, answer({**asked, "packing": "first-fit"}))
    assert first or violations(asked, answer({**asked, "packing": "improve"})) == []


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
    question = Question(Parts(asked), first)
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


rooms = st.lists(st.tuples(st.integers(0, 4), st.sampled_from((500, 4000)), st.sampled_from((512, 9000))), max_size=4)


@given(st.lists(sizes, min_size=1, max_size=5), rooms, st.lists(st.floats(0, 3), min_size=5, max_size=5), st.integers(0, 400))
@settings(deadline=None, max_examples=80)
def test_room_that_is_there_is_worth_no_more_than_it_can_take(many, rooms, prices, steps) -> None:
    nodes = [standing(f"n{i}", pods, cpu, memory) for i, (pods, cpu, memory) in enumerate(rooms)]
    asked = ask([pod(f"p{i}", f"{cpu}m", f"{memory}Mi") for i, (cpu, memory) in enumerate(many)], nodes=nodes)
    first = solve(asked)
    best = with_rooms(tuple(sorted(many)), tuple(rooms))
    assert bound(asked, first, 0) <= best + 1e-9
    assert bound(asked, first, steps) <= best + 1e-9
    question = Question(Parts(asked), first)
    worths = [prices[: len(question.vectors.resources)]] * len(question.stocks)
    assert proven(question, prices[: len(question.items)], rates=worths) <= best + 1e-9


@given(st.lists(sizes, min_size=1, max_size=5), st.sampled_from((2, 4, 8, 40)), st.floats(0, 1), st.integers(0, 400))
@settings(deadline=None, max_examples=80)
def test_a_limit_never_lifts_the_bound_above_what_a_plan_within_it_costs(many, limit, toll, steps) -> None:
    cheap = node_pool("cheap", weight=5, limits={"cpu": str(limit)})
    dear = node_pool("dear", requirements=(needs(names.CAPACITY_TYPE, "on-demand"),))
    asked = ask([pod(f"p{i}", f"{cpu}m", f"{memory}Mi") for i, (cpu, memory) in enumerate(many)], [cheap, dear])
    for one in (solve(asked), improved(asked, solve(asked), 800)):
        assert bound(asked, one, steps) <= one.usd_per_hour + 1e-9
        question = Question(Parts(asked), one)
        assert proven(question, [0.02] * len(question.items), [toll] * len(question.limits)) <= one.usd_per_hour + 1e-9


def standing(name: str, pods: int, cpu: int, memory: int) -> StateNode:
    amounts = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": str(pods)}
    labels = {names.ZONE: "a", names.HOSTNAME: name}
    return StateNode(
        Node(metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(capacity=amounts, allocatable=amounts)), None
    )


def with_rooms(many: tuple[tuple[int, int], ...], rooms: tuple[tuple[int, int, int], ...]) -> float:
    """The least cost when pods may also go to the rooms."""
    if not rooms:
        return optimum(many)
    slots, cpu, memory = rooms[0]
    least = float("inf")
    for mask in range(1 << len(many)):
        here = [p for i, p in enumerate(many) if mask >> i & 1]
        if len(here) <= slots and sum(p[0] for p in here) <= cpu and sum(p[1] for p in here) <= memory:
            least = min(least, with_rooms(tuple(p for i, p in enumerate(many) if not mask >> i & 1), rooms[1:]))
    return least


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
