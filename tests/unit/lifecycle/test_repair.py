"""When a node is unwell enough to be replaced, and when too many are; whether a machine is as large as sold."""

from datetime import timedelta

import msgspec
import pytest

from kubewright.api import labels
from kubewright.api.meta import Condition
from kubewright.lifecycle import claims, consistency, repair
from kubewright.lifecycle.effects import Count, Delete, Publish, Update
from kubewright.lifecycle.repair import Policy
from tests.unit.lifecycle.builders import T0, at, claim, deleted, labelled, node

HALF_HOUR = timedelta(minutes=30)
READY = (Policy("Ready", "False", HALF_HOUR), Policy("Ready", "Unknown", HALF_HOUR))
DISK = Policy("StorageReady", "False", timedelta(minutes=10))


def unwell(name="n-1", status="Unknown", kind="Ready", since=T0, **more):
    made = node(name, initialized=True, registered=True, **more)
    condition = Condition(type=kind, status=status, last_transition_time=since)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=(condition,)))


def healthy(count):
    return [node(f"ok-{i}", initialized=True) for i in range(count)]


def done(step):
    return [type(e) for e in step.effects]


def test_it_waits_as_long_as_its_policy_bears():
    step = repair.repair(unwell(), claim(), [unwell(), *healthy(2)], READY, at(29 * 60))
    assert (step.effects, step.again) == ((), timedelta(minutes=1))
    step = repair.repair(unwell(), claim(), [unwell(), *healthy(2)], READY, at(30 * 60))
    assert Delete in done(step)
    assert repair.repair(node(initialized=True), claim(), [], READY, at(10**6)).effects == ()


def test_of_several_illnesses_the_one_that_is_due_first_counts():
    both = unwell()
    more = Condition(type="StorageReady", status="False", last_transition_time=at(60))
    both = msgspec.structs.replace(both, status=msgspec.structs.replace(both.status, conditions=(*both.status.conditions, more)))
    assert repair.diagnose(both, (*READY, DISK)).due == at(11 * 60)


@pytest.mark.parametrize(
    ("total", "sick", "repaired"), [(3, 1, True), (3, 2, False), (10, 2, True), (10, 3, False), (1, 1, True)]
)
def test_small_pools_are_repaired_too_and_large_outages_are_not(total, sick, repaired):
    """Case C73."""
    among = [*(unwell(f"n-{i}") for i in range(1, sick + 1)), *healthy(total - sick)]
    step = repair.repair(unwell(), claim(), among, READY, at(31 * 60))
    assert (Delete in done(step)) is repaired
    if not repaired:
        told = [e for e in step.effects if isinstance(e, Publish)]
        assert {e.reason for e in told} == {"NodeRepairBlocked"}
        assert f"{sick} of {total} unhealthy, {repair.allowed(total)} allowed" in told[0].message
        assert step.again == timedelta(minutes=5)


def test_those_that_have_just_fallen_ill_count_against_repair_too():
    among = [unwell(), *(unwell(f"m-{i}", since=at(31 * 60)) for i in range(2)), *healthy(7)]
    assert Delete not in done(repair.repair(unwell(), claim(), among, READY, at(31 * 60)))


def test_its_end_has_no_grace_and_a_past_deadline_stays():
    later = labelled(claim(), annotations={labels.TERMINATION_TIMESTAMP: claims.rfc3339(at(10**6))})
    step = repair.repair(unwell(), later, [unwell()], READY, at(31 * 60), pods_that_move=4)
    (update,) = [e for e in step.effects if isinstance(e, Update)]
    assert claims.termination_time(update.after) == at(31 * 60)
    past = labelled(claim(), annotations={labels.TERMINATION_TIMESTAMP: claims.rfc3339(at(60))})
    assert Update not in done(repair.repair(unwell(), past, [unwell()], READY, at(31 * 60)))
    counted = {e.name: e for e in step.effects if isinstance(e, Count)}
    assert counted["nodeclaims_unhealthy_disrupted_total"].labels["condition"] == "ready"
    assert counted["pods_disruption_initiated_total"].amount == 4
    assert repair.repair(unwell(), deleted(claim()), [unwell()], READY, at(31 * 60)).effects == ()


def test_a_machine_that_is_smaller_than_sold_is_told_of():
    sold = claim(stage="Initialized")
    for cpu, consistent in (("4", "True"), ("3700m", "True"), ("3500m", "False")):
        there = node(initialized=True)
        there = msgspec.structs.replace(there, status=msgspec.structs.replace(there.status, capacity={"cpu": cpu}))
        after, problems = consistency.checked(sold, [there], T0)
        assert claims.status_of(after, claims.CONSISTENT) == consistent
        assert len(problems) == (consistent == "False")
    assert problems == ("expected 4 of resource cpu, but found 3500m (87.5% of expected)",)
    assert consistency.checked(claim(stage="Registered"), [there], T0) == (claim(stage="Registered"), ())
