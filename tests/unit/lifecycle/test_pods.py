from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels
from kubewright.api.core import Toleration
from kubewright.api.meta import Condition
from kubewright.lifecycle import drain, eviction, pods
from kubewright.lifecycle.eviction import Decision, Way
from kubewright.lifecycle.pods import PdbIndex
from tests.unit.lifecycle.builders import DAEMON, MIRROR, REPLICA, STATEFUL, T0, at, deleted, pdb, pod

STAYS = (Toleration(key="karpenter.sh/disrupted", operator="Exists"),)
OWNERS = st.sampled_from([DAEMON, MIRROR, REPLICA, STATEFUL, None])


@st.composite
def any_pod(draw):
    made = pod(
        draw(st.sampled_from("abcdefgh")),
        owner=draw(OWNERS),
        phase=draw(st.sampled_from(["Running", "Pending", "Succeeded", "Failed"])),
        annotations=draw(st.sampled_from([{}, {labels.DO_NOT_DISRUPT: "true"}, {labels.DO_NOT_DISRUPT: "10s"}])),
        tolerations=draw(st.sampled_from([(), STAYS])),
        priority_class_name=draw(st.sampled_from(["", "system-node-critical"])),
        termination_grace_period_seconds=draw(st.sampled_from([None, 0, 30, 600])),
    )
    return deleted(made, at(draw(st.integers(-200, 50)))) if draw(st.booleans()) else made


PODS = st.lists(any_pod(), max_size=8, unique_by=lambda p: p.name)
DEADLINES = st.one_of(st.none(), st.integers(-100, 1000).map(at))


@given(PODS, DEADLINES)
def test_a_drain_asks_only_pods_it_waits_for_and_ends_when_none_is_left(bound, deadline):
    found = drain.drain(bound, T0, deadline)
    assert {p.key for p in found.leave} <= {p.key for p in found.waiting} <= {p.key for p in bound}
    assert found.is_done == (not found.waiting)
    assert bool(found.leave) == bool(found.waiting)
    asked = [p for p in found.leave if not eviction.is_force_eligible(p, T0, deadline)]
    assert len({drain.tier(p) for p in asked}) <= 1
    assert all(p in found.leave for p in found.waiting if eviction.is_force_eligible(p, T0, deadline))


@given(PODS)
def test_pods_that_need_another_home_are_waited_for_or_stuck_or_stay_by_their_own_wish(bound):
    waiting = drain.drain(bound, T0, None).waiting
    for one in bound:
        if pods.is_reschedulable(one) and not pods.is_terminal(one) and not pods.tolerates_disrupted(one):
            assert one in waiting or pods.is_stuck(one, T0)


@given(any_pod(), DEADLINES)
def test_an_eviction_is_only_asked_for_pods_that_may_go(one, deadline):
    match eviction.decide(one, T0, deadline):
        case Decision(way=Way.EVICT):
            assert pods.is_evictable(one, T0)
        case Decision(way=Way.DELETE, grace_period_s=grace):
            assert deadline is not None
            assert grace >= 1
        case Decision(way=Way.DROP):
            assert not pods.is_active(one)


def test_tiers_go_one_after_another():
    web, daemon = pod("web"), pod("ds", owner=DAEMON)
    critical = pod("dns", priority_class_name="system-cluster-critical")
    last = pod("cni", owner=DAEMON, priority_class_name="system-node-critical")
    left = [last, critical, daemon, web]
    order = []
    while left:
        (leaves,) = drain.drain(left, T0, None).leave
        order.append(leaves.name)
        left.remove(leaves)
    assert order == ["web", "ds", "dns", "cni"]


def test_a_terminating_pod_holds_its_tier_until_it_is_stuck():
    going, next_tier = deleted(pod("web")), pod("dns", priority_class_name="system-cluster-critical")
    assert drain.drain([going, next_tier], at(60), None).leave == (going,)
    assert drain.drain([going, next_tier], at(61), None).leave == (next_tier,)


@pytest.mark.parametrize(
    ("seconds", "way", "grace"),
    [(0, Way.EVICT, 0), (69, Way.EVICT, 0), (71, Way.DELETE, 29), (99, Way.DELETE, 1), (200, Way.DELETE, 1)],
)
def test_a_pod_is_deleted_when_its_grace_would_outlast_the_deadline(seconds, way, grace):
    one = pod(termination_grace_period_seconds=30)
    assert eviction.decide(one, at(seconds), at(100)) == Decision(way, grace)


def test_a_pod_without_a_grace_period_of_its_own_is_never_forced():
    assert eviction.decide(pod(), at(10**6), at(100)).way is Way.EVICT


def test_a_pinned_pod_waits_until_its_time_and_is_deleted_at_the_deadline():
    one = pod(annotations={labels.DO_NOT_DISRUPT: "true"}, termination_grace_period_seconds=30)
    assert eviction.decide(one, T0, None).way is Way.WAIT
    assert eviction.decide(one, at(80), at(100)).way is Way.DELETE


@pytest.mark.parametrize(
    ("text", "seconds", "pinned"),
    [("true", 10**6, True), ("10m", 599, True), ("10m", 600, False), ("false", 0, False), ("-1s", 0, False), ("0s", 0, False)],
)
def test_do_not_disrupt_is_true_or_a_duration_since_the_start(text, seconds, pinned):
    one = pod(annotations={labels.DO_NOT_DISRUPT: text})
    assert pods.is_disruptable(one, at(seconds)) is not pinned
    assert bool(pods.pin_problem(one)) is (text not in ("true", "10m"))


def test_a_terminated_stateful_pod_still_needs_a_home_but_a_terminated_replica_does_not():
    assert pods.is_reschedulable(deleted(pod(owner=STATEFUL)))
    assert pods.is_reschedulable(deleted(pod(owner=STATEFUL, phase="Failed"))), "its successor comes once it is gone"
    assert not pods.is_reschedulable(pod(owner=STATEFUL, phase="Failed"))
    assert not pods.is_reschedulable(deleted(pod()))
    assert not pods.is_reschedulable(pod(owner=DAEMON))
    assert not pods.is_reschedulable(pod(owner=MIRROR))


def test_budgets_block_by_number_by_count_and_by_age():
    one = pod()
    assert PdbIndex.of([pdb(allowed=0)]).blocking(one, T0)
    assert not PdbIndex.of([pdb(allowed=1)]).blocking(one, T0)
    assert len(PdbIndex.of([pdb("a", allowed=5), pdb("b", allowed=5)]).blocking(one, T0)) == 2
    assert not PdbIndex.of([pdb(allowed=0, namespace="other")]).blocking(one, T0)
    assert PdbIndex.of([pdb(allowed=1, generation=2)]).blocking(one, T0), "a status older than the spec allows nothing"


def test_an_unhealthy_pod_passes_a_budget_that_lets_it():
    budgets = PdbIndex.of([pdb(allowed=0, unhealthy_pod_eviction_policy="AlwaysAllow")])
    sick = pod()
    sick = type(sick)(
        metadata=sick.metadata,
        spec=sick.spec,
        status=type(sick.status)(phase="Running", conditions=(Condition(type="Ready", status="False"),)),
    )
    assert not budgets.blocking(sick, T0)
    assert budgets.blocking(pod(), T0), "without a Ready condition nothing is known"


def test_nobody_guards_pods_that_are_not_evicted():
    guards = PdbIndex.of([pdb(allowed=0)])
    for one in (pod(owner=MIRROR), pod(phase="Succeeded"), deleted(pod()), pod(tolerations=STAYS)):
        assert not guards.blocking(one, T0)


def test_stuck_means_a_minute_past_the_deletion_time():
    assert not pods.is_stuck(deleted(pod()), T0 + timedelta(seconds=60))
    assert pods.is_stuck(deleted(pod()), T0 + timedelta(seconds=61))
