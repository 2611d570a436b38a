"""C39, C40 and C43 to C46, C84: limits, DaemonSet overhead, reserved capacity. See docs/cases.md."""

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.quantity import parse
from kubewright.catalogue.types import Offering
from kubewright.scheduling.refusal import Because
from kubewright.solver.problem import Plan, Snapshot
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import one_of
from tests.cases.answers import answer
from tests.cases.shorthand import SETTINGS, case, world


def test_c39_claims_that_have_not_registered_count_and_are_used() -> None:
    got = answer(case("C39"))
    assert got.plan.claims == ()
    assert [p for ps in got.plan.existing.values() for p in ps] == ["default/web"]


def test_c39_what_they_cannot_hold_meets_the_limit() -> None:
    written = case("C39")
    written["pods"] = [{"app": "web", "n": 17, "cpu": 1}]
    got = answer(written)
    assert got.plan.claims == ()
    assert [r.because for r in got.refusals("web-016")] == [Because.LIMITS]
    assert len(got.plan.unplaced) == 1


def test_c40_a_lowered_limit_stops_new_nodes_only() -> None:
    written = case("C40")
    (nodes,) = written["nodes"]
    got = answer({**written, "nodes": [{**nodes, "used": {"cpu": 4}}], "pods": [{"app": "new", "cpu": 1}]})
    assert got.plan.claims == ()
    assert got.problem.leaving == ()
    (refusal,) = got.refusals("new")
    assert (refusal.because, refusal.facts["limit"]) == (Because.LIMITS, "cpu")


def test_c40_free_room_on_the_nodes_over_the_limit_is_used() -> None:
    written = case("C40")
    assert list(answer({**written, "pods": [{"app": "new", "cpu": 1}]}).plan.existing.values()) == [("default/new",)]


def test_c43_limits_of_a_daemon_count_as_its_requests() -> None:
    got = answer(case("C43"))
    assert got.types()[0] == "s4"
    assert got.plan.claims[0].requests["cpu"] == parse("2.1")
    assert answer(case("C43", without=["daemonsets"])).types()[0] == "s2"


def test_c44_daemons_that_wait_for_registration_count() -> None:
    got = answer(case("C44"))
    assert got.plan.claims[0].requests["cpu"] == parse("3125m")
    assert got.types()[0] == "s4"
    written = case("C44")
    assert answer({**written, "daemonsets": written["daemonsets"][:2]}).types()[0] == "s2"


def test_c44_initialized_works_the_same_and_false_does_not() -> None:
    written = case("C44")
    for text, cpu in (("karpenter.sh/initialized In [true]", "3125m"), ("karpenter.sh/registered In [false]", "1125m")):
        written["daemonsets"][2]["affinity"] = text
        assert answer(written).plan.claims[0].requests["cpu"] == parse(cpu)


def test_c46_the_second_of_two_terms_counts_whichever_way_round() -> None:
    for turn in (1, -1):
        written = case("C46")
        written["daemonsets"][0]["affinityTermsOR"] = written["daemonsets"][0]["affinityTermsOR"][::turn]
        got = answer(written)
        assert got.plan.claims == ()
        assert got.refusals("train")[0].because is Because.RESOURCES


def test_c46_without_the_daemon_it_fits() -> None:
    assert answer(case("C46", without=["daemonsets"])).types() == ("g8",)


RESERVATION = "example.com/reservation-id"


def with_reservations(snapshot: Snapshot, reserved: dict[str, dict[str, int]]) -> Snapshot:
    """Every pool selling these types from reservations too: type → zone → machines; the pools share them."""
    types = snapshot.pools[0].instance_types
    changed = []
    for kind in types:
        more = tuple(
            Offering(
                {
                    names.ZONE: one_of(names.ZONE, zone),
                    names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, names.RESERVED),
                    RESERVATION: one_of(RESERVATION, f"{kind.name}-{zone}"),
                },
                0.0001,
                reservation_capacity=count,
            )
            for zone, count in reserved.get(kind.name, {}).items()
        )
        if more:
            sold = one_of(names.CAPACITY_TYPE, "on-demand", "spot", names.RESERVED)
            kind = replace(  # noqa: PLW2901
                kind, offerings=(*kind.offerings, *more), requirements={**kind.requirements, names.CAPACITY_TYPE: sold}
            )
        changed.append(kind)
    shared = tuple(changed)
    return replace(snapshot, pools=tuple(replace(p, instance_types=shared) for p in snapshot.pools))


def reserved_plan(*, strict: bool, **reservations: dict[str, int]) -> Plan:
    how = replace(SETTINGS, well_known_labels=SETTINGS.well_known_labels | {RESERVATION}, reserved_strict=strict)
    snapshot = with_reservations(world(case("C84", without=["reservations"])), reservations)
    return solve(select(snapshot, how).problem)


def test_c84_a_reservation_is_used_up_before_on_demand() -> None:
    plan = reserved_plan(strict=False, s32={"a": 6})
    reserved = [c for c in plan.claims if c.node_pool == "res"]
    assert [(c.instance_types, len(c.pods)) for c in reserved] == [(("s32",), 32)] * 6
    assert sum(len(c.pods) for c in plan.claims if c.node_pool == "od") == 128
    assert plan.unplaced == {}
    assert all(c.instance_types for c in plan.claims)


def test_c84_a_reservation_in_two_pools_is_counted_once() -> None:
    plan = reserved_plan(strict=True, s32={"a": 1})
    held = [c for c in plan.claims if c.requirements[names.CAPACITY_TYPE].values == {names.RESERVED}]
    assert len(held) == 1


def test_c84_all_reservations_are_used_at_once_and_the_rest_does_not_wait() -> None:
    for strict in (True, False):
        plan = reserved_plan(strict=strict, s32={"a": 2, "b": 2, "c": 2})
        reserved = [c for c in plan.claims if c.node_pool == "res"]
        assert [len(c.pods) for c in reserved] == [32] * 6
        assert {c.requirements[names.CAPACITY_TYPE].values for c in reserved} == {frozenset({names.RESERVED})}
        assert sum(len(c.pods) for c in plan.claims if c.node_pool == "od") == 128
        assert plan.unplaced == {}
