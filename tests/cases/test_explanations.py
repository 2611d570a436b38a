"""The cases marked WHY, and some others: what the reader is told. See docs/cases.md."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kubewright.catalogue.types import Offering
from kubewright.cloud.aws import api
from kubewright.cloud.aws.shift import active
from kubewright.explain.why import Explanation, brief, explain, explain_ignored, short, text
from kubewright.solver.select import problem_from
from kubewright.solver.solve import solve
from tests.cases.answers import Answer, answer
from tests.cases.shorthand import SETTINGS, case
from tests.cases.test_topology import full_nodes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def why(got: Answer, pod: str) -> Explanation:
    key = f"default/{pod}"
    if key in got.ignored:
        pending = next(p for p in got.snapshot.pods if p.key == key)
        return explain_ignored(got.problem, pending, got.ignored[key])
    return explain(got.problem, got.plan, key)


def members(one: Explanation) -> list[str]:
    return [m.what for m in one.conflict]


def test_c01_the_pool_that_lacks_the_label_is_named() -> None:
    one = why(answer(case("C01")), "p3")
    assert members(one) == ["nodeAffinity tier Exists"]
    assert one.fixes[0] == "add template label tier=true to NodePool plain"


def test_c02_both_ways_to_offer_a_label() -> None:
    one = why(answer(case("C02")), "job-000")
    assert members(one) == ["nodeSelector workload=batch"]
    assert one.fixes[:2] == (
        "add template label workload=batch to NodePool default",
        "add requirement workload In [batch] to NodePool default",
    )
    assert "sets neither a template label nor a requirement for workload" in one.reasons[0]
    assert short(one).startswith("cannot be met: nodeSelector workload=batch. Nearest fix: add template label workload=batch")


def test_c03_no_word_of_another_key_but_for_a_typo() -> None:
    one = why(answer(case("C03")), "feed")
    assert not any("write nodeSelector" in f for f in one.fixes)
    assert "Did you mean" not in text(one)
    typo = case("C03", pods=[{"app": "feed", "cpu": 1, "nodeSelector": {"topology.kubernetes.io/zne": "a"}}])
    assert why(answer(typo), "feed").fixes[0] == (
        "write nodeSelector topology.kubernetes.io/zone instead of topology.kubernetes.io/zne"
    )


def test_c04_the_host_is_named_and_what_is_the_matter_with_it() -> None:
    assert why(answer(case("C04")), "pinned").reasons == (
        "Pinned to node n1, which is full (short by 1 cpu); a new node can never have that name.",
    )
    gone = why(answer(case("C04", without=["nodes"])), "pinned")
    assert gone.reasons == ("Pinned to node n1, which does not exist; a new node can never have that name.",)


def test_c06_the_heavier_pool_is_short_of_memory() -> None:
    one = why(answer(case("C06")), "big")
    first, second = one.narrowings
    assert (first.pools, dict(first.short), first.left) == (("first",), {"memory": "512Mi"}, 0)
    assert second.pools == ("second",)
    assert "of NodePool second (m8" in one.placed


def test_c07_existing_before_new() -> None:
    one = why(answer(case("C07")), "web")
    assert one.placed == "node n1"
    assert "is used before new capacity" in one.notes[0]


def test_c10_the_broken_pool_keeps_its_own_message() -> None:
    one = why(answer(case("C10", without=["overlays"])), "web")
    assert [n.problem for n in one.narrowings if n.pools == ("broken",)] == ["no subnets"]


def test_c11_the_preference_that_was_dropped_is_named() -> None:
    one = why(answer(case("C11")), "ctl")
    assert one.placed.startswith("new node ")
    assert one.notes[0] == (
        "Gave up preferred node affinity (karpenter.sh/nodepool DoesNotExist): no place takes the pod with it."
    )
    assert "Gave up preferred" in text(one)


def test_c15_the_count_of_values() -> None:
    one = why(answer(case("C15")), "web")
    assert one.narrowings[0].problem == "only 1 of 2 required values for instance-family"
    assert one.fixes == ("lower minValues of instance-family in NodePool flex from 2 to 1",)


def test_c22_the_spread_in_numbers_and_who_allows_only_that_zone() -> None:
    got = answer(full_nodes(case("C22"), "a", "a", "b", "c"))
    one = why(got, "db")
    assert one.notes == ("zone a would have 3, minimum is 1, maxSkew 1; the volume allows only zone a.",)
    assert "raise maxSkew of the spread over topology.kubernetes.io/zone from 1 to 2" in one.fixes
    assert len(one.conflict) == 2


def test_c25_the_pool_without_offerings_is_told_of() -> None:
    one = why(answer(case("C25")), "web-000")
    (typo,) = [n for n in one.narrowings if n.pools == ("typo",)]
    assert typo.problem == "requirement topology.kubernetes.io/zone In [z] matches no offering"


def test_c27_a_selector_that_misses_is_warned_of() -> None:
    assert "does not match this pod" in why(answer(case("C27")), "web-000").notes[0]


def test_c28_the_affinity_is_named_when_the_daemon_stays_away() -> None:
    written = case("C28", pools=[{"name": "default", "taints": ["team=x:NoSchedule"]}])
    written["pods"][0]["tolerate"] = "team"
    one = why(answer(written), "relay")
    assert members(one) == ["podAffinity over kubernetes.io/hostname"]


def test_c30_every_volume_with_its_zone() -> None:
    one = why(answer(case("C30")), "etl")
    assert one.notes[0].startswith("Volume pvc-1 is in a, pvc-2 is in b, pvc-3 is in c: no zone holds all.")
    assert "WaitForFirstConsumer" in one.notes[0]
    assert len(one.conflict) == 2


def test_c30_variant_the_selector_is_named() -> None:
    pod = {"app": "etl", "cpu": 2, "pvc": {"bound": "a"}, "nodeSelector": {"zone": "b"}}
    one = why(answer({"pods": [pod]}), "etl")
    assert "etl-pvc is in a: nodeSelector wants b" in one.notes[0]
    assert one.fixes[0] == "drop nodeSelector topology.kubernetes.io/zone=b from the pod"


def test_c33_volumes_counted_against_the_largest_limit() -> None:
    one = why(answer(case("C33")), "wide")
    assert members(one) == ["28 volumes of driver ebs"]
    assert one.fixes == ("mount 25 volumes of driver ebs at most, 3 fewer",)


def test_c35_the_missing_class_is_named() -> None:
    assert '"nope" not found' in why(answer(case("C35")), "bad").reasons[0]


def test_c37_the_volume_that_ends_with_its_pod_does_not_pin_it_and_says_so() -> None:
    volume = {"bound": "a", "binding": "WaitForFirstConsumer"}
    for mount, notes in (("ephemeral", 1), ("pvc", 0)):
        written = {
            "nodes": [{"name": "n1", "zone": "a", "type": "s16"}],
            "pods": [{"app": "web", "cpu": 1, mount: volume, "on": "n1"}],
        }
        snapshot = answer(written).snapshot
        (n1,) = snapshot.nodes
        asked = problem_from(replace(snapshot, nodes=(replace(n1, marked_for_deletion=True),)), SETTINGS)
        one = explain(asked, solve(asked), "default/web")
        assert len([n for n in one.notes if "is ephemeral: it ends with this pod" in n]) == notes
        pinned = any("volume is in" in s.what for n in one.narrowings for s in n.steps)
        assert not pinned, "all types are sold in zone a"


def test_c39_and_c40_use_against_limit() -> None:
    written = case("C39")
    written["pods"] = [{"app": "web", "n": 17, "cpu": 1}]
    one = why(answer(written), "web-016")
    assert any("limits: 16 of 16 cpu in use" in s.what for s in one.narrowings[0].steps)
    written = case("C40")
    nodes = [{**written["nodes"][0], "used": {"cpu": 4}}]
    one = why(answer({**written, "nodes": nodes, "pods": [{"app": "new", "cpu": 1}]}), "new")
    assert [s.what for s in one.narrowings[0].steps] == ["limits: 12 of 4 cpu in use"]
    assert one.fixes[0].startswith("raise limits.cpu of NodePool main from 4 to 14")


def test_c46_short_by_a_tenth_of_a_core() -> None:
    one = why(answer(case("C46")), "train")
    assert dict(one.narrowings[0].short) == {"cpu": "100m"}
    assert one.fixes[0] == "lower the cpu request by 100m to 7500m"
    assert "room for DaemonSet default/driver" in members(one)


def test_pools_with_the_same_story_are_told_once() -> None:
    pools = [{"name": f"p{i}", "taints": ["dedicated=batch:NoSchedule"]} for i in range(4)]
    one = why(answer({"pools": pools, "pods": [{"app": "web", "cpu": 1}]}), "web")
    (story,) = one.narrowings
    assert story.pools == ("p3", "p2", "p1", "p0")
    assert one.fixes == ("tolerate dedicated=batch:NoSchedule (NodePool p0)",)


def test_a_zone_that_no_pool_allows() -> None:
    pools = [{"name": "general", "req": ["zone In [a]"]}]
    one = why(answer({"pools": pools, "pods": [{"app": "web", "cpu": 1, "nodeSelector": {"zone": "b"}}]}), "web")
    assert one.fixes[0] == "add zone b to NodePool general"


def test_memory_to_the_mebibyte() -> None:
    pools = [{"name": "small", "req": ["type In [s2,s4]"]}]
    one = why(answer({"pools": pools, "pods": [{"app": "web", "cpu": 2, "memory": "8504Mi"}]}), "web")
    assert one.fixes[0] == "lower the memory request by 312Mi to 8Gi"
    assert one.fixes[1] == "add node.kubernetes.io/instance-type m4 to NodePool small"


ZONE_SPREAD = {"key": "zone", "maxSkew": 1, "when": "DoNotSchedule"}


def shifted(zones: str, standing: str, **pod: Any) -> tuple[Explanation, str]:
    """What a pod is told, at length and in brief, when `zones` are shifted away from and its app runs in `standing`."""
    asked = answer(full_nodes({"pods": [{"app": "db", "cpu": 2, **pod}]}, *standing)).problem
    shifts = tuple(api.ZonalShift(applied_status="APPLIED", away_from=z, expiry_time=NOON) for z in zones)
    because = active(api.ManagedResourceAnswer(arn="cluster", zonal_shifts=shifts), NOON - timedelta(hours=1))

    def offering(one: Offering, kind: str) -> Offering:
        # One type can be had nowhere, for a reason that would be read first.
        why = "AL2023 does not run on it" if kind == "m8" else because.get(one.zone, "")
        return replace(one, available=not why, unavailable_because=why)

    types = tuple(replace(t, offerings=tuple(offering(o, t.name) for o in t.offerings)) for t in asked.pools[0].instance_types)
    asked = replace(asked, pools=tuple(replace(p, instance_types=types) for p in asked.pools))
    plan = solve(asked)
    return explain(asked, plan, "default/db"), brief(asked, plan, "default/db")


def shut(zone: str) -> str:
    return (
        f"nothing is for sale in zone {zone} (ARC zonal shift away from the zone until 2026-01-01 12:00 UTC; "
        "its nodes stay, and kube-scheduler's topology spread still counts it while they do)"
    )


def test_a_spread_whose_emptiest_zone_is_shifted_away_from() -> None:
    one, event = shifted("c", "aabbc", tsc=ZONE_SPREAD)
    spread = "spread over topology.kubernetes.io/zone with maxSkew 1"
    assert one.notes == ("zone a would have 3, b would have 3, minimum is 1 (in c, where nothing is for sale), maxSkew 1.",)
    assert members(one) == [spread, shut("c"), "request cpu 2"]
    assert one.fixes == (
        "raise maxSkew of the spread over topology.kubernetes.io/zone from 1 to 2",
        "let the spread over topology.kubernetes.io/zone be ScheduleAnyway",
        "wait until zone c is for sale again",
    )
    assert f"{spread} and {shut('c')}" in event
    for said in (*one.notes, shut("c"), *one.fixes):
        assert said in text(one)
        assert said in json.dumps(json.loads(one.as_json()))


def test_a_spread_whose_emptiest_zone_sells_is_not_told_of_the_shift() -> None:
    one, _ = shifted("c", "abbcc", tsc=ZONE_SPREAD)
    assert one.placed.startswith("new node ")
    refused, _ = shifted("c", "abbcc", tsc=ZONE_SPREAD, pvc={"bound": "b"})
    assert refused.notes == ("zone b would have 3, minimum is 1, maxSkew 1; the volume allows only zone b.",)
    assert not any("for sale" in said for said in (*members(refused), *refused.fixes))


def test_waiting_for_a_zone_is_no_fix_where_the_type_is_not_for_sale_anywhere() -> None:
    one, _ = shifted("c", "", nodeSelector={"zone": "c", "type": "m8"})
    assert shut("c") in members(one)
    assert not any(f == "wait until zone c is for sale again" for f in one.fixes)


def test_a_pod_that_wants_a_zone_that_is_shifted_away_from() -> None:
    one, event = shifted("c", "aabbc", nodeSelector={"zone": "c"})
    assert members(one) == ["nodeSelector topology.kubernetes.io/zone=c", shut("c"), "request cpu 2"]
    assert one.fixes == (
        "wait until zone c is for sale again",
        "drop nodeSelector topology.kubernetes.io/zone=c from the pod",
    )
    assert shut("c") in event


def test_of_two_zones_that_are_shifted_away_from_either_would_do() -> None:
    one, _ = shifted("bc", "", affinity="zone In [b,c]")
    assert [m for m in members(one) if "for sale" in m] == [shut("b"), shut("c")]
    assert one.fixes[:2] == ("wait until zone b is for sale again", "wait until zone c is for sale again")


def test_text_and_json_hold_the_same_story() -> None:
    one = why(answer(case("C46")), "train")
    told = json.loads(one.as_json())
    shown = text(one)
    for member in told["conflict"]:
        assert f"{member['who']}: {member['what']}" in shown
    for fix in told["fixes"]:
        assert fix in shown
    assert [s["left"] for s in told["narrowings"][0]["steps"]] == [5, 1, 0]


def test_a_pod_that_nobody_asked_about() -> None:
    got = answer(case("C02"))
    with pytest.raises(KeyError):
        explain(got.problem, got.plan, "default/stranger")
