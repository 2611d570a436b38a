"""Random workloads on a real control plane: 0 pods are refused on the node bought for them."""

import pytest

from tests.e2e import workloads
from tests.plane.kubewright import Kubewright
from tests.plane.plane import Plane

pytestmark = pytest.mark.needs_go


def test_thirty_random_workloads_run_and_nobody_is_bought_for_twice(fresh_plane: Plane) -> None:
    with Kubewright(fresh_plane, cloud="kwok") as operator:
        workloads.furnish(fresh_plane)
        outcome = workloads.run(fresh_plane, operator, range(30))
    assert 0 < outcome.bought_for <= outcome.pods
