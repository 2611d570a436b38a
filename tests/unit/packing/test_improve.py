"""What the improver saves, and what it leaves alone."""

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import Node, NodeStatus, Taint, Toleration, TopologySpreadConstraint
from kubewright.api.meta import LabelSelector, ObjectMeta, OwnerReference
from kubewright.catalogue.types import Offering
from kubewright.packing import plan
from kubewright.settings import NodeCount, Packing, Settings
from kubewright.solver.problem import SolverSettings, StateNode
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, instance_type, needs, node_pool, one_of, pod

IMPROVE = Settings(packing=Packing.IMPROVE, packing_steps=3000)
LARGE_IS_DEAR = (*S_TYPES, instance_type("x64", 64, 128, 6.0))


def mixed(count: int = 60, **more):
    return [pod(f"p{i:03}", ("500m", "1500m", "2")[i % 3], ("512Mi", "2Gi", "4Gi")[i // 3 % 3], **more) for i in range(count)]


def test_a_machine_that_is_dear_for_its_size_is_not_filled() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    first, better = solve(asked), plan(asked, IMPROVE)
    assert not better.unplaced
    assert better.usd_per_hour < 0.8 * first.usd_per_hour
    assert better.bound_usd_per_hour <= better.usd_per_hour <= 1.06 * better.bound_usd_per_hour


def test_a_claim_still_names_every_type_that_holds_its_pods() -> None:
    better = plan(ask(mixed(), types=LARGE_IS_DEAR), replace(IMPROVE, packing_node_cpu=0))
    assert all("x64" in claim.instance_types for claim in better.claims)


def test_limits_hold_and_leave_out_nobody_whom_first_fit_places() -> None:
    pool = node_pool(limits={"cpu": "100"})
    asked = ask(mixed(), [pool], types=LARGE_IS_DEAR)
    first, better = solve(asked), plan(asked, IMPROVE)
    assert better.unplaced.keys() <= first.unplaced.keys()
    most = {t.name: t.capacity["cpu"] // 10**9 for t in LARGE_IS_DEAR}
    assert sum(max(most[n] for n in claim.instance_types) for claim in better.claims) <= 100
    assert better.usd_per_hour < first.usd_per_hour


def test_the_heavier_pool_is_used_even_if_the_lighter_one_is_cheaper() -> None:
    heavy = node_pool("heavy", weight=10, requirements=(needs(names.CAPACITY_TYPE, "on-demand"),))
    better = plan(ask(mixed(), [node_pool("light"), heavy], types=LARGE_IS_DEAR), IMPROVE)
    assert {claim.node_pool for claim in better.claims} == {"heavy"}


def test_taints_selectors_and_min_values_hold() -> None:
    gold = node_pool(
        requirements=(needs(names.INSTANCE_TYPE, operator="Exists", min_values=2),),
        taints=(Taint(key="team", value="a", effect="NoSchedule"),),
    )
    tolerant = (Toleration(key="team", operator="Exists"),)
    wanted = [
        *mixed(30, tolerations=tolerant, node_selector={names.ZONE: "a"}),
        *(pod(f"q{i}", "3", "1Gi", tolerations=tolerant, node_selector={names.ZONE: "b"}) for i in range(9)),
        pod("stranger"),
    ]
    better = plan(ask(wanted, [gold], types=LARGE_IS_DEAR), IMPROVE)
    assert list(better.unplaced) == ["default/stranger"]
    for claim in better.claims:
        zones = {"a" if key.startswith("default/p") else "b" for key in claim.pods}
        assert claim.requirements[names.ZONE].values == zones
        assert len(claim.instance_types) >= 2


def test_spread_pods_stay_balanced_while_others_are_packed_around_them() -> None:
    spread = TopologySpreadConstraint(
        max_skew=1,
        topology_key=names.ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": "spread"}),
    )
    tied = [pod(f"s{i}", "3", "2Gi", app="spread", topology_spread_constraints=(spread,)) for i in range(12)]
    asked = ask([*mixed(), *tied], types=LARGE_IS_DEAR)
    first, better = solve(asked), plan(asked, IMPROVE)
    assert not better.unplaced
    zones = [min(c.requirements[names.ZONE].values) for c in better.claims for p in c.pods if p.startswith("default/s")]
    assert sorted(zones.count(z) for z in "abc") == [4, 4, 4]
    assert better.usd_per_hour < first.usd_per_hour


def test_pods_that_fit_nowhere_are_refused_as_by_first_fit() -> None:
    asked = ask([*mixed(9), pod("giant", "500")])
    assert plan(asked, IMPROVE).unplaced == solve(asked).unplaced


def test_first_fit_stays_first_fit_and_has_a_bound() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    given = plan(asked, Settings(packing=Packing.FIRST_FIT))
    assert given.claims == solve(asked).claims
    assert 0 < given.bound_usd_per_hour < given.usd_per_hour


def test_without_pods_to_buy_for_the_bound_is_nothing() -> None:
    assert plan(ask([]), IMPROVE).bound_usd_per_hour == 0


def test_room_on_a_node_that_stands_is_used_before_anything_is_bought() -> None:
    standing = StateNode(
        Node(
            metadata=ObjectMeta(name="n", labels={names.ZONE: "a", names.HOSTNAME: "n"}),
            status=NodeStatus(
                capacity={"cpu": "40", "memory": "400Gi", "pods": "110"},
                allocatable={"cpu": "40", "memory": "400Gi", "pods": "110"},
            ),
        ),
        None,
    )
    asked = ask(mixed(150), types=LARGE_IS_DEAR, nodes=(standing,))
    first, better = solve(asked), plan(asked, IMPROVE)
    assert better.existing == first.existing
    assert len(better.existing["n"]) == 20
    assert 0 < better.bound_usd_per_hour <= better.usd_per_hour < first.usd_per_hour


def test_machines_above_the_cap_are_named_only_for_pods_that_need_them() -> None:
    better = plan(ask([*mixed(), pod("large", "50")], types=LARGE_IS_DEAR), IMPROVE)
    assert not better.unplaced
    assert [c.pods for c in better.claims if "x64" in c.instance_types and "default/large" not in c.pods] == []


def test_a_pool_that_says_how_large_its_machines_are_is_not_capped() -> None:
    pool = node_pool(requirements=(needs(names.INSTANCE_TYPE, "x64", "s2"),))
    better = plan(ask(mixed(), [pool], types=LARGE_IS_DEAR), IMPROVE)
    assert any("x64" in c.instance_types for c in better.claims)


def test_no_node_takes_more_of_a_workload_than_the_share() -> None:
    owner = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="u-1", controller=True),)
    wanted = [replace(p, metadata=replace(p.metadata, owner_references=owner)) for p in mixed(24)]
    for share, most in ((0.25, 6), (0.5, 12)):
        better = plan(ask(wanted, types=LARGE_IS_DEAR), replace(IMPROVE, packing_workload_share=share))
        assert not better.unplaced
        assert max(len(c.pods) for c in better.claims) <= most


def test_what_a_node_costs_beyond_its_price_makes_for_fewer_nodes() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    dear = plan(asked, replace(IMPROVE, packing_node_usd=1.0))
    assert len(dear.claims) < len(plan(asked, IMPROVE).claims)
    assert dear.node_usd_per_hour == len(dear.claims)
    assert dear.bound_usd_per_hour <= dear.usd_per_hour + dear.node_usd_per_hour <= dear.first_fit_usd_per_hour


def test_fewer_or_more_nodes_within_a_share_of_the_least_cost() -> None:
    asked = ask(mixed(), types=LARGE_IS_DEAR)
    cheapest = plan(asked, IMPROVE)
    fewer, more = (
        plan(asked, replace(IMPROVE, packing_nodes=which, packing_nodes_within=0.05))
        for which in (NodeCount.FEWER, NodeCount.MORE)
    )
    assert len(fewer.claims) <= len(cheapest.claims) <= len(more.claims)
    assert len(fewer.claims) < len(more.claims)
    assert max(fewer.usd_per_hour, more.usd_per_hour) <= 1.05 * cheapest.usd_per_hour + 1e-9


def test_reserved_capacity_is_used_as_first_fit_uses_it_and_the_rest_is_improved() -> None:
    key = "example.com/reservation-id"
    reserved = Offering(
        {
            names.ZONE: one_of(names.ZONE, "a"),
            names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, names.RESERVED),
            key: one_of(key, "r-1"),
        },
        0.0001,
        reservation_capacity=2,
    )
    sold = {names.CAPACITY_TYPE: one_of(names.CAPACITY_TYPE, "on-demand", "spot", names.RESERVED)}
    types = tuple(
        replace(t, offerings=(*t.offerings, reserved), requirements={**t.requirements, **sold}) if t.name == "s8" else t
        for t in LARGE_IS_DEAR
    )
    elsewhere = [pod(f"q{i:02}", "1", "1Gi", node_selector={names.ZONE: "b"}) for i in range(20)]
    known = SolverSettings(well_known_labels=frozenset((key,)))
    asked = ask([*mixed(30), *elsewhere], types=types, settings=known)
    first, better = solve(asked), plan(asked, IMPROVE)
    held = [[c.pods for c in one.claims if key in c.requirements and c.requirements[key].values] for one in (first, better)]
    assert held[0] == held[1]
    assert len(held[0]) == 2
    assert better.usd_per_hour < first.usd_per_hour
    assert 0 < better.bound_usd_per_hour <= better.usd_per_hour


def test_an_exotic_machine_is_not_bought_for_being_cheap() -> None:
    bargain = replace(instance_type("metal", 32, 64, 0.4), exotic=True)
    better = plan(ask(mixed(), types=(*LARGE_IS_DEAR, bargain)), IMPROVE)
    assert not better.unplaced
    assert all("metal" not in claim.instance_types for claim in better.claims)
    needy = pod("needy", "24", "8Gi")
    only = plan(ask([*mixed(9), needy], types=(*S_TYPES, bargain)), IMPROVE)
    assert not only.unplaced
    assert [c.pods for c in only.claims if "metal" in c.instance_types and needy.key not in c.pods] == []
