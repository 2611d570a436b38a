"""The small rules: freeze, budgets of pods that never open, when budgets open, surge, what moving costs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import Budget, Disruption
from kubewright.disruption import budgets, cost, pdbs
from kubewright.disruption.candidates import candidates
from kubewright.disruption.decisions import decide
from kubewright.disruption.drift import PROBE_AFTER, broken
from kubewright.disruption.freeze import FREEZE, frozen_until
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Class, Decision, Reason
from kubewright.disruption.stays import Because
from kubewright.disruption.surge import SURGE
from kubewright.lifecycle import claims
from kubewright.settings import DisruptionSettings
from kubewright.solver.problem import Pool, Snapshot, Surroundings
from tests.builders import NOW, needs, node_pool, pod
from tests.property.disruption.world import SETTINGS, TYPES, Spot, guard, machine, running
from tests.unit.lifecycle.builders import pdb, pool

S2, S4, S8, S16 = TYPES
KNOBS = DisruptionSettings()


def drifted(name, *, owner="a", kind=S4, pods=(), since=NOW):
    known = machine(name, kind, Spot(0, "a", "on-demand", owner), pods)
    return replace(known, claim=claims.with_condition(known.claim, claims.DRIFTED, "True", "NodePoolDrifted", now=since))


def cluster(*nodes, guards=(), annotations=None, budget="100%", **spec):
    disruption = Disruption(consolidate_after="Never", budgets=(Budget(nodes=budget),))
    one = node_pool("a", disruption=disruption, requirements=(needs(names.CAPACITY_TYPE, "on-demand"),), **spec)
    one = replace(one, metadata=replace(one.metadata, annotations=annotations or {}))
    return Snapshot(NOW, tuple(nodes), (), (Pool(one, TYPES),), Surroundings(budgets=tuple(guards)))


@pytest.mark.parametrize(
    ("written", "frozen"),
    [
        ("true", True),
        ("false", False),
        ("2026-01-01T00:00:01Z", True),
        ("2026-01-01T00:00:00Z", False),
        ("yes", True),
        ("", True),
    ],
)
def test_the_freeze_switch_holds_until_it_is_off_or_over_and_when_it_cannot_be_read(written, frozen):
    assert bool(frozen_until({FREEZE: written}, NOW)) is frozen
    assert not frozen_until({}, NOW)


def test_a_frozen_pod_holds_its_node_even_against_drift_with_a_grace_period():
    held = running("p", "web", "1000m", "n1")
    held = replace(held, metadata=replace(held.metadata, annotations={FREEZE: "true"}))
    known = drifted("n1", pods=(held,))
    known = replace(known, claim=replace(known.claim, spec=replace(known.claim.spec, termination_grace_period="1h")))
    found = decide(cluster(known), SETTINGS, NOW, Memory())
    assert not found.commands
    assert [s.because for s in found.stays["n1"]] == [Because.FROZEN]


@pytest.mark.parametrize(
    ("spec", "expected", "never"),
    [
        ({"max_unavailable": 0}, 3, True),
        ({"max_unavailable": "0%"}, 3, True),
        ({"max_unavailable": "1%"}, 3, False),
        ({"min_available": "100%"}, 3, True),
        ({"min_available": 3}, 3, True),
        ({"min_available": 4}, 3, True),
        ({"min_available": 2}, 3, False),
        ({"min_available": "67%"}, 3, True),
        ({"min_available": "66%"}, 3, False),
        ({"min_available": 3}, 0, False),
        ({}, 3, False),
    ],
)
def test_a_budget_that_can_never_let_anybody_go_is_told_by_arithmetic(spec, expected, never):
    made = pdb("web", allowed=0, **spec)
    made = replace(made, status=replace(made.status, expected_pods=expected))
    assert bool(pdbs.never(made)) is never


@given(st.integers(1, 100), st.integers(1, 50))
def test_never_is_what_the_disruption_controller_would_say_with_everybody_healthy(percent, expected):
    made = pdb("web", min_available=f"{percent}%")
    made = replace(made, status=replace(made.status, expected_pods=expected))
    desired = -(-percent * expected // 100)
    assert bool(pdbs.never(made)) is (expected - desired <= 0)


def test_what_a_stale_status_says_of_the_number_of_pods_does_not_count():
    made = pdb("web", min_available=3, generation=2)
    assert pdbs.never(replace(made, status=replace(made.status, expected_pods=3))) == ""


def test_pods_that_can_never_leave_are_named_and_nothing_is_bought_for_them():
    """With a terminationGracePeriod drift goes past them; a home is found only for those that can be asked to leave."""
    stuck, free = running("stuck", "guarded", "1000m", "n1"), running("free", "web", "1000m", "n1")
    never = replace(guard(0), spec=replace(guard(0).spec, max_unavailable=0))
    known = drifted("n1", pods=(stuck, free))
    blocked = decide(cluster(known, guards=(never,)), SETTINGS, NOW, Memory()).stays["n1"][0]
    assert blocked.because is Because.PDB_NEVER
    assert blocked.facts["pod"] == "default/stuck"
    assert blocked.facts["never"] == "maxUnavailable is 0"
    bounded = replace(known, claim=replace(known.claim, spec=replace(known.claim.spec, termination_grace_period="1h")))
    (command,) = decide(cluster(bounded, guards=(never,)), SETTINGS, NOW, Memory()).commands
    assert [r.pods for r in command.replacements] == [("default/free",)]


def test_a_budget_says_when_it_next_opens():
    monday = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
    shut = Budget(nodes="0", schedule="0 9 * * mon-fri", duration="8h")
    one = pool(budgets=(Budget(nodes="10%"), shut))
    assert budgets.next_opening(one, Reason.EMPTY, 20, monday.replace(hour=12)) == monday.replace(hour=17, minute=0)
    assert budgets.next_opening(one, Reason.EMPTY, 20, monday) is None, "it is open, and will only shut"
    assert budgets.next_opening(pool(budgets=(Budget(nodes="0"),)), Reason.EMPTY, 20, monday) is None
    left = budgets.remaining([one], {one.name: budgets.Usage(20, 0)}, Reason.EMPTY, monday.replace(hour=12))
    assert left.stay(one).facts["opens"] == "2026-01-05T17:00:00+00:00"


def test_a_pool_at_its_limits_drifts_one_node_at_a_time_and_as_many_as_its_surge_says():
    full = [drifted(f"n{i}", pods=(running(f"p{i}", "web", "3000m", f"n{i}"),)) for i in range(4)]
    limited = {"limits": {"cpu": "16"}}
    found = decide(cluster(*full, **limited), SETTINGS, NOW, Memory())
    assert [c.decision for c in found.commands] == [Decision.REPLACE]
    assert {s.because for stays in found.stays.values() for s in stays} >= {Because.LIMITS}
    for written, count in (("3", 3), ("50%", 2), ("0", 0), ("many", 0)):
        found = decide(cluster(*full, annotations={SURGE: written}, **limited), SETTINGS, NOW, Memory())
        assert len(found.commands) == count
    under_way = Memory(queued=frozenset({"aws:///n0"}))
    assert not decide(cluster(*full, **limited), SETTINGS, NOW, under_way).commands


def test_a_replacement_that_fits_into_the_limits_needs_no_surge():
    full = [drifted(f"n{i}", pods=(running(f"p{i}", "web", "3000m", f"n{i}"),)) for i in range(4)]
    assert len(decide(cluster(*full, limits={"cpu": "100"}), SETTINGS, NOW, Memory()).commands) == 4


def test_empty_nodes_drift_first_then_who_drifted_first():
    busy = drifted("n0", pods=(running("p", "web", "1000m", "n0"),), since=NOW - timedelta(hours=2))
    found = decide(
        cluster(busy, drifted("n1"), drifted("n2", since=NOW - timedelta(hours=1)), budget="2"), SETTINGS, NOW, Memory()
    )
    assert [c.candidates[0].name for c in found.commands] == ["n2", "n1"]


def test_drift_stops_when_machines_do_not_join_and_tries_again_after_a_while():
    one = node_pool("a")
    assert broken(one, Memory(), KNOBS, NOW) is None
    assert broken(one, Memory(failed_joins={"a": 2}), KNOBS, NOW) is None
    assert broken(one, Memory(failed_joins={"a": 3}), KNOBS, NOW).because is Because.BREAKER
    assert timedelta() < PROBE_AFTER <= timedelta(hours=2)


def test_moving_costs_a_pod_each_and_more_or_less_by_what_pods_say():
    plain = pod("p")
    assert cost.of_pod(plain) == 1.0
    assert cost.of_pods([plain, plain]) == 3.0
    dear = replace(plain, spec=replace(plain.spec, priority=10**9))
    assert cost.of_pod(dear) == 10.0
    for written, worth in (("134217728", 2.0), ("-134217728", 0.0), ("nan", 1.0), ("inf", 1.0), ("much", 1.0)):
        said = replace(plain, metadata=replace(plain.metadata, annotations={cost.DELETION_COST: written}))
        assert cost.of_pod(said) == worth


def test_what_has_not_settled_costs_more_and_balanced_pools_at_most_twice():
    known = machine("n1", S4, Spot(0, "a", "on-demand", "a"), (running("p", "web", "1000m", "n1"),), NOW)
    for policy, most in (("WhenEmptyOrUnderutilized", 1 + KNOBS.unrest), ("Balanced", 2.0)):
        one = node_pool("a", disruption=Disruption(consolidation_policy=policy))
        snapshot = Snapshot(NOW, (known,), (), (Pool(one, TYPES),))
        (fresh,) = candidates(snapshot, Class.GRACEFUL, (), KNOBS).found
        assert fresh.disturbance == pytest.approx(2.0 * most)
        half = replace(snapshot, now=NOW + KNOBS.settled_after / 2)
        assert candidates(half, Class.GRACEFUL, (), KNOBS).found[0].disturbance == pytest.approx(1 + most)
        old = replace(snapshot, now=NOW + KNOBS.settled_after)
        assert candidates(old, Class.GRACEFUL, (), KNOBS).found[0].disturbance == 2.0
