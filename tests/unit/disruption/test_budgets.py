from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api.karpenter import Budget
from kubewright.disruption import budgets
from kubewright.disruption.reasons import Reason
from kubewright.lifecycle import claims
from tests.unit.lifecycle.builders import T0, at, known, pod, pool

NIGHT = Budget(nodes="0", schedule="0 22 * * *", duration="8h")


@pytest.mark.parametrize(
    ("text", "total", "value"),
    [("10%", 0, 0), ("10%", 1, 1), ("10%", 10, 1), ("10%", 11, 2), ("100%", 7, 7), ("0%", 50, 0), ("5", 2, 5), ("0", 9, 0)],
)
def test_a_percentage_is_rounded_up(text, total, value):
    assert budgets.value_of(Budget(nodes=text), total) == value


@given(st.integers(0, 100), st.integers(0, 5000))
def test_a_percentage_never_exceeds_the_nodes_and_is_never_less_than_its_share(percent, total):
    value = budgets.value_of(Budget(nodes=f"{percent}%"), total)
    assert percent * total <= value * 100 < percent * total + 100
    assert value <= total


@pytest.mark.parametrize(
    ("hours", "active"), [(9.99, False), (10, True), (17.99, True), (18, False), (34, True)]
)  # from noon: 22:00 is 10 h later, 06:00 is 18 h
def test_a_window_opens_at_the_hit_and_is_shut_at_its_end(hours, active):
    assert budgets.is_active(NIGHT, T0 + timedelta(hours=hours)) is active


def test_windows_that_overlap_are_always_open():
    hourly = Budget(nodes="1", schedule="@hourly", duration="1h30m")
    assert all(budgets.is_active(hourly, T0 + timedelta(minutes=7 * i)) for i in range(60))


def test_the_least_budget_for_the_reason_counts():
    chosen = pool(budgets=(Budget(nodes="5"), Budget(nodes="2", reasons=("Empty",)), Budget(nodes="1", reasons=("Drifted",))))
    assert budgets.allowed(chosen, Reason.EMPTY, 100, T0) == 2
    assert budgets.allowed(chosen, Reason.DRIFTED, 100, T0) == 1
    assert budgets.allowed(chosen, Reason.UNDERUTILIZED, 100, T0) == 5
    assert budgets.allowed(pool(budgets=()), Reason.EMPTY, 100, T0) == budgets.UNLIMITED
    assert budgets.allowed(pool(budgets=(Budget(nodes="0", reasons=()),)), Reason.EMPTY, 100, T0) == budgets.UNLIMITED
    assert budgets.allowed(pool(budgets=(NIGHT,)), Reason.EMPTY, 100, T0) == budgets.UNLIMITED
    assert budgets.allowed(pool(budgets=(NIGHT,)), Reason.EMPTY, 100, T0 + timedelta(hours=11)) == 0


@pytest.mark.parametrize(
    "broken",
    [
        Budget(nodes="ten"),
        Budget(nodes="5", schedule="* * *", duration="1h"),
        Budget(nodes="5", duration="1h"),
        Budget(nodes="5", schedule="@daily"),
    ],
)
def test_a_budget_nobody_can_read_allows_nothing_whatever_it_is_for(broken):
    broken = Budget(nodes=broken.nodes, schedule=broken.schedule, duration=broken.duration, reasons=("Drifted",))
    found = budgets.remaining([pool(budgets=(broken,))], {}, Reason.EMPTY, T0)
    assert found.left == {"general": 0}
    assert found.problems["general"]


def test_what_is_down_or_going_is_charged_and_what_is_not_ours_or_not_ready_yet_does_not_count():
    ended = known("n-5")
    ended = type(ended)(ended.node, claims.with_condition(ended.claim, claims.INSTANCE_TERMINATING, "True", now=T0), (), True)
    unmanaged = type(ended)(known("n-6").node, None)
    cluster = [
        known("n-1"),
        known("n-2", marked=True),
        known("n-3", ready=False),
        known("n-4", stage="Registered"),
        ended,
        unmanaged,
    ]
    assert budgets.usage(cluster) == {"general": budgets.Usage(3, 2)}
    found = budgets.remaining([pool(budgets=(Budget(nodes="3"),))], budgets.usage(cluster), Reason.EMPTY, T0)
    assert found.left == {"general": 1}
    assert found.allowed == {"general": 3}


@pytest.mark.parametrize(
    ("initialized", "launching", "deleting", "down", "text", "left"),
    [(19, 0, 2, 1, "20%", 1), (10, 2, 0, 0, "10%", 1), (3, 0, 0, 0, "10%", 1), (10, 0, 0, 0, "0%", 0), (20, 0, 0, 3, "10%", 0)],
)
def test_percentages_of_what_is_initialized_less_what_is_going_or_down(initialized, launching, deleting, down, text, left):
    """Cases C62 and C64."""
    cluster = [known(f"n-{i}", marked=i < deleting, ready=not deleting <= i < deleting + down) for i in range(initialized)]
    cluster += [known(f"l-{i}", stage="Registered") for i in range(launching)]
    found = budgets.remaining([pool(budgets=(Budget(nodes=text),))], budgets.usage(cluster), Reason.EMPTY, T0)
    assert found.left == {"general": left}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12), st.integers(0, 100))
def test_never_more_than_the_budget_is_down_or_going_after_what_is_left_is_used(machines, percent):
    cluster = [known(f"n-{i}", marked=m, ready=r, pods=(pod(),) if p else ()) for i, (m, r, p) in enumerate(machines)]
    used = budgets.usage(cluster).get("general", budgets.Usage())
    found = budgets.remaining([pool(budgets=(Budget(nodes=f"{percent}%"),))], {"general": used}, Reason.EMPTY, T0)
    left = found.left["general"]
    assert left == 0 or used.disrupting + left <= budgets.value_of(Budget(nodes=f"{percent}%"), used.total)


def test_the_moment_is_read_in_utc():
    eight_hours_east = at(0).astimezone(tz=__import__("datetime").timezone(timedelta(hours=8)))
    assert budgets.is_active(NIGHT, eight_hours_east) is budgets.is_active(NIGHT, T0)
