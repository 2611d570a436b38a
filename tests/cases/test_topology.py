"""C20 to C29: spread and affinity. See docs/cases.md."""

import pytest

from kubewright.scheduling.refusal import Because
from tests.cases.answers import answer, launched
from tests.cases.shorthand import case


def test_c20_only_domains_that_the_pod_could_go_to_count() -> None:
    got = answer(case("C20"))
    (claim,) = got.plan.claims
    assert (claim.node_pool, claim.labels["spread"]) == ("A", "1")


@pytest.mark.parametrize("policy", ["nodeAffinityPolicy", "nodeTaintsPolicy"])
def test_c20_either_policy_is_enough(policy: str) -> None:
    written = case("C20")
    tsc = {k: v for k, v in written["pods"][0]["tsc"].items() if k in ("key", "maxSkew", "when", policy)}
    other = "nodeTaintsPolicy" if policy == "nodeAffinityPolicy" else "nodeAffinityPolicy"
    written["pods"][0]["tsc"] = {**tsc, other: "Ignore"}
    # Pool B has no taints and other labels: taints alone cannot tell its domains apart.
    assert bool(answer(written).plan.claims) == (policy == "nodeAffinityPolicy")


def test_c20_without_honour_the_empty_domains_of_the_other_pool_count() -> None:
    written = case("C20")
    written["pods"][0]["tsc"].update(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Ignore")
    assert answer(written).refusals("svc")[0].because in (Because.SPREAD, Because.TAINT, Because.LABEL)
    assert answer(written).plan.claims == ()


def full_nodes(written: dict[str, object], *zones: str) -> dict[str, object]:
    return {**written, "nodes": [{"zone": z, "type": "s2", "pods": ["db"], "used": {"cpu": 2}} for z in zones]}


def test_c22_the_zone_of_a_volume_filters_candidates_and_not_counts() -> None:
    got = answer(full_nodes(case("C22"), "a", "b", "b", "c"))
    assert got.zones == ["a"]
    assert got.plan.existing == {}


def test_c22_negative_the_volume_allows_only_a_zone_that_is_too_full() -> None:
    got = answer(full_nodes(case("C22"), "a", "a", "b", "c"))
    (refusal,) = got.refusals("db")
    assert (refusal.because, refusal.facts["counts"]) == (Because.SPREAD, "a: 2, b: 1, c: 1")


def test_c22_min_domains_is_met_by_zones_that_exist_only_on_offer() -> None:
    got = answer({**case("C22"), "nodes": []})
    assert got.zones == ["a"]


def _revisions(old: dict[str, int], new: dict[str, int]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for revision, counts in (("old", old), ("new", new)):
        for zone, count in counts.items():
            found += [{"name": f"{revision}-{zone}-{i}", "zone": zone, "type": "s2", "rev": revision} for i in range(count)]
    return found


def test_c23_match_label_keys_count_one_revision_only() -> None:
    written = case("C23")
    hosts = _revisions(written["old revision running"], written["new revision running"])
    running = [{"app": f"{h['name']}", "on": h["name"], "revision": h["rev"], "cpu": 2, "labels": {"app": "api"}} for h in hosts]
    nodes = [{k: v for k, v in h.items() if k != "rev"} for h in hosts]
    (pending,) = written["pods"]
    assert answer({"nodes": nodes, "pods": [*running, pending]}).zones == ["c"]
    both = {**pending, "tsc": {k: v for k, v in pending["tsc"].items() if k != "matchLabelKeys"}}
    assert answer({"nodes": nodes, "pods": [*running, both]}).zones == ["a"]


@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_c25_a_zone_that_nothing_offers_is_no_domain(when: str) -> None:
    written = case("C25")
    written["pods"][0]["tsc"]["when"] = when
    got = answer(written)
    assert got.zones == ["a", "a", "b", "b", "c", "c"]


def test_c27_a_selector_that_misses_its_own_pod_spreads_nothing() -> None:
    got = answer(case("C27"))
    assert [len(c.pods) for c in got.plan.claims] == [3]
    own = case("C27")
    own["pods"][0]["tsc"]["selector"] = {"app": "web"}
    assert [len(c.pods) for c in answer(own).plan.claims] == [1, 1, 1]


def test_c28_affinity_to_a_daemon_holds_on_a_new_node() -> None:
    got = answer(case("C28"))
    (claim,) = got.plan.claims
    assert claim.pods == ("default/relay",)


def test_c28_the_next_pass_uses_the_node_on_its_way() -> None:
    again = launched(answer(case("C28")))
    assert again.plan.claims == ()
    assert list(again.plan.existing.values()) == [("default/relay",)]


def test_c28_on_a_type_where_the_daemon_runs() -> None:
    written = case("C28")
    written["daemonsets"][0]["affinity"] = "type In [s8,s16]"
    assert answer(written).types() == ("s8", "s16")


def test_c28_not_where_the_limit_leaves_only_other_types() -> None:
    written = case("C28", pools=[{"name": "default", "limits": {"cpu": 6}}])
    written["daemonsets"][0]["affinity"] = "type In [s8,s16]"
    got = answer(written)
    assert got.refusals("relay")[0].because is Because.AFFINITY


def test_c28_a_full_node_leads_to_another_and_friends_share_it() -> None:
    written = case("C28")
    written["pods"] = [{**written["pods"][0], "n": 12, "cpu": 8}, {"app": "web", "cpu": 1}]
    got = answer(written)
    assert got.plan.unplaced == {}
    assert sum(len(c.pods) for c in got.plan.claims) == 13


def test_c28_not_where_it_is_not_sure_that_the_daemon_runs() -> None:
    written = case("C28")
    written["daemonsets"][0]["affinity"] = "zone In [a]"
    assert answer(written).plan.claims == ()
    sure = {**written, "pools": [{"name": "default", "req": ["zone In [a]"]}]}
    assert len(answer(sure).plan.claims) == 1


def test_c28_not_where_the_daemon_does_not_tolerate_the_pool() -> None:
    written = case("C28", pools=[{"name": "default", "taints": ["team=x:NoSchedule"]}])
    written["pods"][0]["tolerate"] = "team"
    got = answer(written)
    assert got.plan.claims == ()
    assert got.refusals("relay")[0].because is Because.AFFINITY


@pytest.mark.parametrize("reverse", [False, True])
def test_c29_a_pod_bound_by_its_volume_decides_the_zone_of_its_friends(reverse: bool) -> None:
    written = case("C29")
    if reverse:
        written["pods"] = [{**p, "app": f"{'z' if p['app'] == 'store' else 'a'}-{p['app']}"} for p in reversed(written["pods"])]
    assert answer(written).zones == ["c", "c"]


def test_c29_also_when_the_free_one_is_larger() -> None:
    written = case("C29")
    written["pods"][1]["cpu"] = 3
    assert set(answer(written).zones) == {"c"}
