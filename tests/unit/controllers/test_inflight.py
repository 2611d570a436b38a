from kubewright.api import quantity
from kubewright.catalogue.types import InstanceType
from kubewright.controllers.inflight import InFlight
from kubewright.solver.problem import PlannedClaim, Pool, Problem
from tests.unit.lifecycle.builders import T0, claim, known, pod, pool

SMALL = InstanceType("small", {}, (), quantity.parse_map({"cpu": "2", "memory": "16Gi"}))
LARGE = InstanceType("large", {}, (), quantity.parse_map({"cpu": "8", "memory": "8Gi"}))
OTHER = InstanceType("other", {}, (), quantity.parse_map({"cpu": "64"}))


def planned(*pods, types=("small", "large")):
    return PlannedClaim("general-1", "general", {}, {}, {}, (), (), {}, types, pods, 0.1)


def problem(*pods):
    return Problem(T0, pods, (known("n-1"),), (Pool(pool(), (SMALL, LARGE, OTHER)),))


def test_pods_that_a_slow_machine_was_bought_for_are_not_planned_again():
    waiting = InFlight()
    waiting.note(claim("c-9"), planned("default/a", "default/b"))
    found = waiting.held(problem(pod("a", on=""), pod("b", on=""), pod("c", on="")), ["c-9"])
    assert [p.name for p in found.pods] == ["c"]


def test_a_slow_machine_counts_at_its_largest_and_has_no_room():
    waiting = InFlight()
    waiting.note(claim("c-9"), planned("default/a"))
    one, _ = waiting.held(problem(), ["c-9"]).nodes
    assert one.claim.name == "c-9"
    assert quantity.parse_map(one.claim.status.capacity) == quantity.parse_map({"cpu": "8", "memory": "16Gi"})
    assert one.claim.status.allocatable == {}


def test_of_a_machine_that_another_bought_nothing_is_known():
    waiting = InFlight()
    waiting.note(claim("c-9"), planned("default/a"))
    assert waiting.knows(["c-9"])
    assert not waiting.knows(["c-8", "c-9"])
    waiting.forget("c-9")
    assert not waiting.knows(["c-9"])
    assert waiting.knows([])


def test_without_slow_machines_the_problem_stays_the_same():
    asked = problem(pod("a", on=""))
    assert InFlight().held(asked, []) is asked
