"""Laws of explanations, on random problems over every feature: a conflict has no member too many, and a fix fixes."""

import re
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.api.quantity import ONE, parse
from kubewright.explain import edits
from kubewright.explain.conflict import Prober, blocks, conflict
from kubewright.explain.constraints import pieces
from kubewright.explain.fixes import STEPS, fixes
from kubewright.explain.why import brief, explain
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import ask, node_pool, pod
from tests.conformance.adapter import read
from tests.conformance.problems import problem as random_problem

seeds = st.integers(0, 5000)
few = settings(max_examples=40, deadline=None)


def left_out(seed: int) -> Iterator[tuple[Problem, Plan, str]]:
    """The first two pods without a place of a random problem."""
    snapshot, how = read(random_problem(seed)[0])
    asked = select(snapshot, how).problem
    plan = solve(asked)
    for key in list(plan.unplaced)[:2]:
        yield asked, plan, key


@few
@given(seeds)
def test_no_member_of_a_conflict_can_go(seed: int) -> None:
    for asked, _, key in left_out(seed):
        prober = Prober(asked, key)
        members = conflict(prober)
        every = pieces(prober.problem, key)
        if not members:
            continue
        assert blocks(prober, every, members), "the members alone keep the pod out"
        for gone in members:
            assert not blocks(prober, every, [p for p in members if p is not gone]), f"{gone.what} is not needed"


@few
@given(seeds)
def test_every_fix_lets_the_pod_in_and_leaves_out_fewer(seed: int) -> None:
    for asked, _, key in left_out(seed):
        prober = Prober(asked, key)
        for fix in fixes(prober, conflict(prober)):
            after = solve(fix.apply(prober.problem))
            assert key not in after.unplaced, fix.text
            assert len(after.unplaced) < len(solve(prober.problem).unplaced), fix.text


@few
@given(seeds)
def test_a_request_need_not_be_lowered_any_further(seed: int) -> None:
    """The number is the nearest: one step less and the pod still has no node."""
    for asked, _, key in left_out(seed):
        prober = Prober(asked, key)
        for fix in fixes(prober, conflict(prober)) if prober.alone else ():
            found = re.fullmatch(r"lower the (\S+) request by (\S+) to \S+", fix.text)
            if found:
                resource = found[1]
                less = parse(found[2]) - STEPS.get(resource, ONE)
                nearly = edits.with_pod(prober.problem, key, lambda spec, r=resource, n=less: edits.lower_request(spec, r, n))
                assert key in solve(nearly).unplaced, fix.text


@few
@given(seeds)
def test_what_is_in_the_way_besides_is_told_where_no_change_helps(seed: int) -> None:
    for asked, plan, key in left_out(seed):
        told = explain(asked, plan, key)
        assert not (told.fixes and told.besides)
        for members in told.besides:
            assert members
            assert set(members) != set(told.conflict)


@few
@given(seeds)
def test_the_line_of_the_event_says_what_the_whole_story_says(seed: int) -> None:
    for asked, plan, key in left_out(seed):
        told, line = explain(asked, plan, key), brief(asked, plan, key)
        if told.conflict and not told.reasons[0].startswith("Pinned") and "Pinned" not in line:
            assert all(m.what in line for m in told.conflict)
        if ". Nearest fix: " in line:
            assert line.partition(". Nearest fix: ")[2] in told.fixes


@few
@given(seeds)
def test_narrowing_adds_up_and_is_the_same_every_time(seed: int) -> None:
    for asked, plan, key in left_out(seed):
        told = explain(asked, plan, key)
        assert told == explain(asked, plan, key)
        for story in told.narrowings:
            left = story.types
            for step in story.steps:
                assert step.removed > 0
                assert step.left == left - step.removed
                left = step.left


def test_the_fix_for_a_limit_counts_the_pods_that_go_before() -> None:
    wanted = [pod(f"p{i:03}", cpu=("500m", "1", "1500m")[i % 3], app=f"a{i % 40}") for i in range(200)]
    asked = ask(wanted, [node_pool(limits={"cpu": "40"})])
    plan = solve(asked)
    key = min(plan.unplaced)
    (text, *_) = explain(asked, plan, key).fixes
    found = re.fullmatch(r"raise limits.cpu of NodePool default from 40 to (\d+)", text)
    assert found
    for limit, placed in ((int(found[1]), True), (int(found[1]) - 1, False)):
        again = solve(ask(wanted, [node_pool(limits={"cpu": str(limit)})]))
        assert (key not in again.unplaced) == placed
