"""What is planned holds on a real control plane: kube-scheduler binds every placed pod to the node it was planned for."""

import pytest

from tests.conformance.real_judge import judge
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go


def test_the_real_scheduler_agrees_with_the_plans_of_a_hundred_random_workloads(plane: Plane) -> None:
    outcomes = [judge(plane, seed) for seed in range(100)]
    assert {o.seed: o.refused for o in outcomes if o.refused} == {}
    assert sum(o.placed for o in outcomes) > 500


def test_less_memory_and_late_daemon_sets_leave_few_pods_pending(plane: Plane) -> None:
    """3 % less than planned on every new node, DaemonSets last: what then stays pending is counted, not foreseen."""
    outcomes = [judge(plane, seed, memory=0.97, late=True) for seed in range(8)]
    refused = sum(len(o.refused) for o in outcomes)
    placed = sum(o.placed for o in outcomes)
    print(f"{placed} pods placed, {refused} left pending")
    assert refused < 0.2 * placed


def test_a_machine_that_is_smaller_than_planned_is_noticed(plane: Plane) -> None:
    outcomes = [judge(plane, seed, memory=0.1) for seed in range(4)]
    assert any(o.refused for o in outcomes)
