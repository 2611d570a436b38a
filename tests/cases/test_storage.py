"""C30 to C37: volumes. See docs/cases.md."""

import pytest
from msgspec.structs import replace

from kubewright.scheduling.refusal import Because
from kubewright.solver.select import problem_from
from kubewright.solver.solve import solve
from tests.cases.answers import ANY, answer, launched, zones_of
from tests.cases.shorthand import SETTINGS, case


def test_c30_volumes_in_three_zones_fit_no_node() -> None:
    got = answer(case("C30"))
    assert got.plan.claims == ()
    assert set(got.plan.unplaced) == {"default/etl"}


def test_c30_in_one_zone_they_do() -> None:
    written = case("C30")
    written["pods"][0]["pvcs"] = [{"bound": "b"}] * 3
    assert answer(written).zones == ["b"]


def test_c30_variant_the_node_selector_wants_another_zone() -> None:
    pod = {"app": "etl", "cpu": 2, "pvc": {"bound": "a"}, "nodeSelector": {"zone": "b"}}
    assert answer({"pods": [pod]}).plan.claims == ()
    assert answer({"pods": [{**pod, "nodeSelector": {"zone": "a"}}]}).zones == ["a"]


def test_c32_attach_limits_hold_on_nodes_to_come() -> None:
    got = answer(case("C32"))
    assert [len(c.pods) for c in got.plan.claims] == [10] * 10


def test_c32_a_shared_claim_takes_one_slot() -> None:
    written = case("C32")
    written["pods"] = [{"app": "db", "n": 12, "cpu": 0.1}]
    assert [len(c.pods) for c in answer(written).plan.claims] == [12]


def test_c32_a_larger_type_is_chosen_for_its_slots() -> None:
    written = case(
        "C32", catalogue={"s2": "volumeLimit 2", "s4": "volumeLimit 5"}, pools=[{"name": "p", "req": ["type In [s2,s4]"]}]
    )
    written["pods"] = [{"app": "db", "cpu": 0.1, "pvcs": 3}]
    assert answer(written).types() == ("s4",)


def test_c33_more_volumes_than_any_type_can_attach() -> None:
    got = answer(case("C33"))
    for _ in range(10):
        assert got.plan.claims == ()
        assert got.refusals("wide")[0].because is Because.VOLUME_LIMIT
        got = launched(got)
    written = case("C33")
    written["pods"][0]["pvcs"] = 25
    assert len(answer(written).plan.claims) == 1


def test_c35_a_storage_class_that_does_not_exist_stops_only_its_pod() -> None:
    got = answer(case("C35"))
    assert [c.pods for c in got.plan.claims] == [("default/ok",)]
    refusal = got.ignored["default/bad"]
    assert refusal.because is Because.VOLUME
    assert '"nope" not found' in refusal.found


def test_c36_a_class_without_zones_restricts_nothing() -> None:
    got = answer(case("C36"))
    assert got.zones == [ANY]


def test_c36_a_class_with_zones_does() -> None:
    written = case("C36", storageClasses=[{"name": "default", "allowedTopologies": [{"topology.kubernetes.io/zone": ["b"]}]}])
    assert answer(written).zones == ["b"]


def test_c36_variant_immediate_binding_waits_until_it_is_bound() -> None:
    got = answer(case("C36", storageClasses=[{"name": "default", "allowedTopologies": [], "binding": "Immediate"}]))
    assert got.plan.claims == ()
    assert "must be bound" in got.ignored["default/api"].found


@pytest.mark.parametrize(("mount", "zones"), [("ephemeral", ANY), ("pvc", "a")])
def test_c37_a_bound_ephemeral_volume_does_not_pin_its_successor(mount: str, zones: str) -> None:
    volume = {"bound": "a", "binding": "WaitForFirstConsumer"} if mount == "ephemeral" else {"bound": "a"}
    written = {
        "nodes": [{"name": "n1", "zone": "a", "type": "s16"}],
        "pods": [{"app": "web", "cpu": 1, mount: volume, "on": "n1"}],
    }
    snapshot = answer(written).snapshot
    (n1,) = snapshot.nodes
    plan = solve(problem_from(replace(snapshot, nodes=(replace(n1, marked_for_deletion=True),)), SETTINGS))
    (claim,) = plan.claims
    assert zones_of(claim) == zones
