"""Laws of what passes share: no pass leaves a trace in it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import Container, PodSpec, PodStatus, ResourceRequirements
from kubewright.api.meta import Condition
from kubewright.scheduling.resources import pod_requests
from kubewright.solver.ground import Ground
from kubewright.solver.nodes import RequestCache
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import ask, pod
from tests.conformance.adapter import read
from tests.conformance.problems import problem
from tests.unit.solver.test_solve import node

amounts = st.sampled_from(("100m", "500m", "2"))
given_to = st.none() | st.builds(ResourceRequirements, requests=st.fixed_dictionaries({"cpu": amounts}))


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_passes_on_one_ground_plan_as_if_each_had_its_own(seed) -> None:
    asked = select(*read(problem(seed)[0])).problem
    ground = Ground(asked)
    alone = solve(asked)
    assert [solve(asked, ground=ground) for _ in range(2)] == [alone, alone]


def test_what_a_pass_puts_on_a_node_is_gone_for_the_next() -> None:
    asked = ask([pod(f"p{i}", "2") for i in range(9)], nodes=[node("n1", cpu="7")])
    ground = Ground(asked)
    before = [dict(n.free) for n in ground.table().nodes]
    assert len(solve(asked, ground=ground).existing["n1"]) == 3
    assert [n.free for n in ground.table().nodes] == before


def test_tables_of_one_ground_find_labels_once() -> None:
    ground = Ground(ask([pod()], nodes=[node("n1")]))
    one, other = (ground.table().nodes[0].requirements for _ in range(2))
    assert one is other
    assert one[names.HOSTNAME].values == {"n1"}


@given(st.lists(st.tuples(amounts, amounts, given_to, st.booleans()), min_size=2, max_size=8))
@settings(max_examples=200)
def test_a_pods_requests_are_its_own_whoever_was_asked_about_before(many) -> None:
    cache = RequestCache()
    for own, whole, actual, infeasible in many:
        pending = (Condition(type="PodResizePending", status="True", reason="Infeasible"),) if infeasible else ()
        container = Container(name="main", resources=ResourceRequirements(requests={"cpu": own}))
        spec = PodSpec(containers=(container,), resources=ResourceRequirements(requests={"cpu": whole}))
        one = replace(pod(), spec=spec, status=PodStatus(resources=actual, conditions=pending))
        assert cache.of(one) == pod_requests(one)
        plain = replace(one, spec=replace(spec, resources=None))
        assert cache.of(plain) == pod_requests(plain)
