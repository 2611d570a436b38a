"""C01 to C19: requirements, pools, weights, preferences, minValues, host ports. See docs/cases.md."""

import pytest
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeOverlay, NodeOverlaySpec
from kubewright.api.meta import ObjectMeta
from kubewright.api.quantity import parse
from kubewright.catalogue.corrections import Corrections
from kubewright.catalogue.overlays import Offered, Verdict, judge
from kubewright.scheduling.refusal import Because
from kubewright.settings import MinValuesPolicy, PreferencePolicy
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.cases.answers import answer, launched
from tests.cases.shorthand import SETTINGS, case, world


def test_c01_a_missing_label_satisfies_not_in_and_does_not_exist() -> None:
    got = answer(case("C01"))
    assert set(got.plan.unplaced) == {"default/p3"}
    (refusal,) = got.refusals("p3")
    assert (refusal.because, refusal.facts["keys"], refusal.where) == (Because.UNKNOWN_LABEL, "tier", "plain")


def test_c01_a_label_alone_never_repels_a_pod() -> None:
    got = answer(case("C01", pools=[{"name": "tiered", "req": ["tier Exists"]}], pods=[{"app": "p4", "cpu": 1}]))
    assert got.plan.claims[0].pods == ("default/p4",)


def test_c01_the_tiered_pool_takes_who_asks_for_a_tier_and_nobody_who_shuns_it() -> None:
    got = answer(case("C01", pools=[{"name": "tiered", "labels": {"tier": "gold"}}]))
    assert set(got.plan.unplaced) == {"default/p1", "default/p2"}


def test_c02_a_custom_label_that_no_pool_offers() -> None:
    got = answer(case("C02"))
    assert got.plan.claims == ()
    assert len(got.plan.unplaced) == 5


@pytest.mark.parametrize(
    "pool", [{"labels": {"workload": "batch"}}, {"req": ["workload Exists"]}, {"req": ["workload In [batch]"]}]
)
def test_c02_is_offered_by_template_label_or_requirement(pool: dict[str, object]) -> None:
    got = answer(case("C02", pools=[{"name": "default", **pool}]))
    (claim,) = got.plan.claims
    assert claim.labels["workload"] == "batch"
    assert len(claim.pods) == 5


def test_c03_only_one_edit_is_a_typo() -> None:
    (refusal,) = answer(case("C03")).refusals("feed")
    assert "hint" not in refusal.facts
    typo = case("C03", pods=[{"app": "feed", "cpu": 1, "nodeSelector": {"topology.kubernetes.io/zne": "a"}}])
    assert answer(typo).refusals("feed")[0].facts["hint"] == names.ZONE


def test_c04_a_pod_pinned_to_a_host_name_gets_no_node() -> None:
    got = answer(case("C04"))
    assert got.plan.claims == ()
    assert "kubernetes.io/hostname" in got.ignored["default/pinned"].found


def test_c06_the_heaviest_pool_that_fits_wins() -> None:
    got = answer(case("C06"))
    (claim,) = got.plan.claims
    assert (claim.node_pool, claim.instance_types) == ("second", ("m8",))
    assert (claim.requests["cpu"], claim.requests["memory"]) == (parse("7.5"), parse("16.5Gi"))


def test_c06_without_the_daemon_the_first_pool_is_enough() -> None:
    assert answer(case("C06", without=["daemonsets"])).plan.claims[0].node_pool == "first"


def test_c07_free_room_on_a_node_comes_before_weight() -> None:
    got = answer(case("C07"))
    assert got.plan.existing == {"n1": ("default/web",)}
    assert got.plan.claims == ()


def test_c07_a_full_node_leaves_it_to_weight() -> None:
    full = case("C07", nodes=[{"name": "n1", "pool": "lo", "type": "s8", "used": {"cpu": 7.5}}])
    assert answer(full).plan.claims[0].node_pool == "hi"


def test_c10_a_broken_pool_does_not_stop_the_others() -> None:
    got = answer(case("C10", without=["overlays"]))
    assert [c.node_pool for c in got.plan.claims] == ["good"]


def test_c10_alone_the_broken_pool_says_why() -> None:
    written = case("C10", without=["overlays"])
    (refusal,) = answer({**written, "pools": written["pools"][1:]}).refusals("web")
    assert (refusal.where, refusal.found) == ("broken", "no subnets")


def test_c11_dropping_a_preference_keeps_the_zone_of_the_volume() -> None:
    got = answer(case("C11"))
    assert got.ignored == {}, "only a required term opts out"
    assert got.zones == ["a"]


def test_c13_never_more_nodes_than_pods() -> None:
    written = case("C13")
    written["pools"] = [*written["pools"], *({"name": f"other-{i}"} for i in range(9))]
    got = answer(written)
    for _ in range(10):
        assert [c.node_pool for c in got.plan.claims] in (["worker"], [])
        got = launched(got)
        assert got.plan.claims == ()
        assert list(got.plan.existing.values()) == [("default/web",)]


def test_c14_respected_preferences_cost_nodes_and_ignored_ones_do_not() -> None:
    assert len(answer(case("C14")).plan.claims) == 8
    ignoring = replace(SETTINGS, preference_policy=PreferencePolicy.IGNORE)
    assert [len(c.pods) for c in answer(case("C14"), ignoring).plan.claims] == [8]


def test_c15_min_values_strict() -> None:
    # The document's catalogue has the families s, m and g; the pool narrows to one of them.
    got = answer(case("C15"))
    assert got.plan.claims == ()
    assert Because.MIN_VALUES in {r.because for r in got.refusals("web")}


def test_c15_min_values_best_effort_is_noted_on_the_claim() -> None:
    effort = replace(SETTINGS, min_values_policy=MinValuesPolicy.BEST_EFFORT)
    (claim,) = answer(case("C15"), effort).plan.claims
    assert claim.min_values_relaxed
    assert claim.requirements["instance-family"].min_values == 1


def test_c15_two_families_meet_it() -> None:
    (claim,) = answer(case("C15", pools=[{"name": "flex", "req": ["instance-family In [s,m] minValues 2"]}])).plan.claims
    assert {t[0] for t in claim.instance_types} == {"s", "m"}
    assert not claim.min_values_relaxed


def _ports(*lines: dict[str, object]) -> list[int]:
    pods = [{"app": f"gw{i}", "cpu": 1, **line} for i, line in enumerate(lines)]
    return [len(c.pods) for c in answer(case("C17", pods=pods)).plan.claims]


def test_c17_one_host_port_a_node() -> None:
    assert [len(c.pods) for c in answer(case("C17")).plan.claims] == [1, 1, 1]


def test_c17_protocol_and_address_tell_ports_apart() -> None:
    assert _ports({"hostPort": "8080/TCP"}, {"hostPort": "8080/UDP"}) == [2]
    first, second = {"hostPort": 8080, "hostIP": "10.0.0.1"}, {"hostPort": 8080, "hostIP": "10.0.0.2"}
    assert _ports(first, second) == [2]
    assert sorted(_ports(first, second, {"hostPort": 8080, "hostIP": "0.0.0.0"})) == [1, 2]


def test_c17_a_pod_that_is_ending_beside_its_successor_is_no_error() -> None:
    old = {"app": "d", "cpu": 0.1, "hostPort": 9100, "on": "n1"}
    nodes = [{"name": "n1", "type": "s4"}]
    got = answer(case("C17", nodes=nodes, pods=[old, {**old, "app": "e"}, {"app": "web", "cpu": 1}]))
    assert got.plan.existing == {"n1": ("default/web",)}


def test_c19_a_pod_that_is_being_made_smaller_still_holds_its_old_share() -> None:
    written = case("C19")
    java = written["pods"][0]
    moving = {"app": "web", "cpu": 5}
    got = answer({**written, "nodes": written["nodes"][:1], "pods": [java, moving]})
    assert got.plan.existing == {}, "4 held and 5 wanted do not fit 8"
    grown = answer({**written, "nodes": written["nodes"][:1], "pods": [{**java, "status": {"allocated": {"cpu": 1}}}, moving]})
    assert grown.plan.existing == {"n1": ("default/web",)}


def test_c19_the_pod_of_a_leaving_node_does_not_fit_beside_it() -> None:
    got = answer(case("C19"))
    assert got.plan.claims == ()
    n1, n2 = got.snapshot.nodes
    snapshot = replace(got.snapshot, nodes=(n1, replace(n2, marked_for_deletion=True)))
    from kubewright.solver.select import problem_from
    from kubewright.solver.solve import solve

    plan = solve(problem_from(snapshot, SETTINGS))
    assert plan.existing == {}
    assert [c.pods for c in plan.claims] == [("default/web",)]


def test_c75_a_node_with_a_foreign_taint_takes_no_pod_and_a_second_one_is_bought() -> None:
    written = {
        "pools": [{"name": "gpu"}],
        "nodes": [{"name": "n1", "type": "g8", "taints": ["agent/not-ready:NoSchedule"]}],
        "pods": [{"app": "gpu-job", "gpu": 1}],
    }
    assert answer(written).types() == ("g8",)
    written["nodes"] = [{"name": "n1", "type": "g8"}]
    assert answer(written).plan.existing == {"n1": ("default/gpu-job",)}


def test_c10_an_overlay_is_judged_by_the_pools_that_can_be_asked() -> None:
    written = case("C10")
    (asked,) = written.pop("overlays")
    overlay = NodeOverlay(metadata=ObjectMeta(name=asked["name"]), spec=NodeOverlaySpec(price_adjustment=asked["price"]))
    snapshot = world(written)
    judged = judge([overlay], [Offered(p.node_pool, p.instance_types) for p in snapshot.pools if p.instance_types])
    assert judged.verdicts == {"cheaper": Verdict()}
    corrections = Corrections(names.WELL_KNOWN)
    corrections.use(judged.accepted)
    pools = tuple(replace(p, instance_types=corrections.of(p.node_pool, p.instance_types)) for p in snapshot.pools)
    before, after = (solve(select(replace(snapshot, pools=ps), SETTINGS).problem) for ps in (snapshot.pools, pools))
    assert [c.node_pool for c in after.claims] == ["good"]
    assert after.usd_per_hour == pytest.approx(before.usd_per_hour * 0.9)
