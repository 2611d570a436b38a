"""Laws of plans."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import ask, node_pool, pod
from tests.conformance.adapter import read
from tests.conformance.problems import problem

workloads = st.lists(
    st.tuples(st.sampled_from(("100m", "1", "3", "20")), st.sampled_from(("128Mi", "2Gi", "9Gi"))), min_size=1, max_size=20
)


@given(workloads)
@settings(deadline=None)
def test_every_pod_is_placed_once_or_told_why_not(sizes) -> None:
    wanted = [pod(f"p{i:02}", cpu, memory) for i, (cpu, memory) in enumerate(sizes)]
    plan = solve(ask(wanted))
    seen = Counter([*(p for c in plan.claims for p in c.pods), *plan.unplaced])
    assert seen == Counter(p.key for p in wanted)
    assert all(plan.unplaced.values())


@given(workloads)
@settings(deadline=None)
def test_a_plan_with_a_second_pool_leaves_out_no_more(sizes) -> None:
    wanted = [pod(f"p{i:02}", cpu, memory) for i, (cpu, memory) in enumerate(sizes)]
    one = solve(ask(wanted, [node_pool("a")]))
    two = solve(ask(wanted, [node_pool("a"), node_pool("b")]))
    assert len(two.unplaced) <= len(one.unplaced)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_the_same_problem_in_another_order_gives_the_same_plan(seed) -> None:
    asked, _ = problem(seed)
    snapshot, how = read(asked)
    chosen = select(snapshot, how).problem

    turned = replace(
        chosen, pods=tuple(reversed(chosen.pods)), nodes=tuple(reversed(chosen.nodes)), pools=tuple(reversed(chosen.pools))
    )
    assert solve(chosen) == solve(turned)
