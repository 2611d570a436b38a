"""What becomes of a disruption that was begun, told from the objects alone."""

import msgspec
import pytest

from kubewright.api import labels
from kubewright.lifecycle import claims, orders
from kubewright.lifecycle.orders import Fate
from tests.unit.lifecycle.builders import T0, at, claim, deleted, labelled, pod

REPLACE = orders.Order("id", "Drifted", T0, orders.deadline_of(T0, 2), ("a", "b"), ("new",), "multi", "replace")
DELETE = orders.Order("id", "Empty", T0, orders.deadline_of(T0, 2), ("a", "b"), (), "empty")


def old(name, order=None, **more):
    made = claim(name, stage="Initialized", **more)
    return made if order is None else orders.ordered(made, order, T0)


def judged(order, *found, now=T0):
    return orders.fate(order, {c.name: c for c in found}, now)


def test_an_order_is_read_back_as_it_was_written():
    marked = old("a", REPLACE)
    assert orders.order_of(marked) == REPLACE
    assert claims.is_set(marked, claims.DISRUPTION_REASON)
    assert orders.standing((marked, old("b", REPLACE), claim("c"), deleted(old("d", DELETE)))) == (REPLACE,)
    undone = orders.undone(marked)
    assert undone.metadata.annotations == claim("a").metadata.annotations
    assert not claims.is_set(undone, claims.DISRUPTION_REASON)


@pytest.mark.parametrize("text", ["", "null", "{}", '{"id": 3}', "not an order"])
def test_what_is_not_an_order_of_ours_is_none(text):
    broken = labelled(claim("a"), annotations={orders.ORDER: text, orders.RETRY: text})
    assert orders.order_of(broken) is None
    assert orders.retry_of(broken) is None
    assert not orders.is_held(broken, T0)


def test_it_waits_until_every_replacement_is_initialized():
    mine = (old("a", REPLACE), old("b", REPLACE))
    waiting = judged(REPLACE, *mine, claim("new", stage="Registered"))
    assert (waiting.fate, waiting.missing) == (Fate.WAIT, ("new",))
    assert judged(REPLACE, *mine, claim("new", stage="Initialized")).fate is Fate.END
    late = judged(REPLACE, *mine, claim("new", stage="Registered"), now=REPLACE.deadline)
    assert (late.fate, late.why) == (Fate.UNDO, "replacement new was not ready in time")
    assert judged(REPLACE, *mine, claim("new", stage="Initialized"), now=REPLACE.deadline).fate is Fate.END, "late, but ready"


def test_a_replacement_that_is_gone_undoes_it():
    mine = (old("a", REPLACE), old("b", REPLACE))
    assert judged(REPLACE, *mine).fate is Fate.UNDO
    assert judged(REPLACE, *mine, deleted(claim("new", stage="Initialized"))).fate is Fate.UNDO


def test_one_that_was_cut_short_while_it_was_written_is_undone_if_it_buys_and_goes_on_if_it_only_removes():
    assert judged(REPLACE, old("a", REPLACE), old("b")).fate is Fate.UNDO
    half = (old("a", DELETE), old("b"))
    assert judged(DELETE, *half).fate is Fate.END
    assert [c.name for c in orders.staying_of(DELETE, {c.name: c for c in half})] == ["a"]


def test_it_is_over_when_none_of_its_claims_is_left():
    assert judged(REPLACE, claim("new")).fate is Fate.OVER
    assert judged(REPLACE, deleted(old("a", REPLACE)), deleted(old("b", REPLACE)), claim("new")).fate is Fate.OVER
    assert judged(DELETE, old("a"), old("b")).fate is Fate.OVER


def test_once_begun_it_is_finished_whatever_somebody_else_has_removed():
    assert judged(REPLACE, deleted(old("a", REPLACE)), old("b", REPLACE), claim("new", stage="Initialized")).fate is Fate.END
    assert judged(REPLACE, old("b", REPLACE), claim("new", stage="Initialized")).fate is Fate.END


@pytest.mark.parametrize(("under_way", "minutes"), [(1, 10), (7_500, 10), (15_000, 20), (10**6, 60)])
def test_the_deadline_grows_with_what_is_under_way(under_way, minutes):
    assert orders.deadline_of(T0, under_way) == at(60 * minutes)


def test_a_failure_is_remembered_on_the_object_and_waits_longer_each_time():
    failed, waits = old("a", DELETE), []
    for _ in range(8):
        failed = orders.undone(orders.ordered(failed, DELETE, T0), failed_at=T0)
        waits.append((orders.retry_of(failed).until - T0).total_seconds() / 60)
        assert orders.is_held(failed, T0)
        assert not orders.is_held(failed, orders.retry_of(failed).until)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_pinned_pod_holds_back_what_was_decided_without_it():
    pinned = pod(annotations={labels.DO_NOT_DISRUPT: "true"})
    eventual = msgspec.structs.replace(REPLACE, graceful=False)
    bounded = claim("a", termination_grace_period="1h")
    for order, of, held in (
        (REPLACE, claim("a"), True),
        (REPLACE, bounded, True),
        (eventual, claim("a"), True),
        (eventual, bounded, False),
    ):
        assert (orders.pinned(order, of, [pod(), pinned], T0) is pinned) is held
    assert orders.pinned(REPLACE, claim("a"), [pod()], T0) is None
