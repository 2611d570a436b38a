from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.karpenter import Budget, Disruption
from kubewright.disruption.decisions import decide, stays
from kubewright.disruption.memory import Memory
from kubewright.disruption.reasons import Decision, Reason
from kubewright.disruption.stays import Because
from kubewright.disruption.validation import Rejected, validate
from kubewright.settings import FeatureGates
from kubewright.solver.problem import Pool, Snapshot, Surroundings
from tests.builders import NOW, ZONES, instance_type, needs, node_pool, pod
from tests.property.disruption.world import BORN, SETTINGS, TYPES, Spot, guard, machine, running

S2, S4, S8, S16 = TYPES
GATED = replace(SETTINGS, feature_gates=FeatureGates(spot_to_spot_consolidation=True))


def node(name, kind, *pods, zone="a", capacity_type="on-demand", owner="a", age=timedelta(days=1)):
    """`pods` are (kind, cpu in thousandths)."""
    on = [running(f"{name}-{i}", k, f"{cpu}m", name) for i, (k, cpu) in enumerate(pods)]
    return machine(name, kind, Spot(0, zone, capacity_type, owner), on, NOW - age)


def cluster(*nodes, types=TYPES, policy="WhenEmptyOrUnderutilized", capacity_types=("on-demand",), guards=(), pending=(), **more):
    disruption = Disruption(
        consolidation_policy=policy, consolidate_after="30s", budgets=(Budget(nodes=more.pop("budget", "100%")),)
    )
    requirements = (needs(names.CAPACITY_TYPE, *capacity_types), *more.pop("requirements", ()))
    one = node_pool("a", disruption=disruption, requirements=requirements, **more)
    return Snapshot(NOW, tuple(nodes), tuple(pending), (Pool(one, types),), Surroundings(budgets=tuple(guards)))


def look(snapshot, chosen=SETTINGS, memory=None):
    return decide(snapshot, chosen, NOW, memory or Memory())


def why(snapshot, name, chosen=SETTINGS):
    return look(snapshot, chosen).stays[name][0].because


def test_a_node_whose_pods_fit_elsewhere_goes_without_a_replacement():
    found = look(cluster(node("n1", S8, ("web", 5000), ("web", 1000)), node("n2", S8, ("web", 1000)))).commands
    assert [(c.decision, [x.name for x in c.candidates], c.method) for c in found] == [(Decision.DELETE, ["n2"], "single")]
    assert found[0].destinations == {"n1": ("default/n2-0",)}
    assert found[0].savings_usd_per_hour == pytest.approx(0.4)
    assert found[0].delay == timedelta(seconds=15)


def test_a_machine_too_large_for_its_pods_gives_way_to_a_smaller_one():
    (command,) = look(cluster(node("n1", S16, ("web", 3000)))).commands
    assert command.decision is Decision.REPLACE
    assert command.replacements[0].instance_types == ("s4", "s8")
    assert command.savings_usd_per_hour == pytest.approx(0.6)


def test_several_machines_share_one_that_is_cheaper_than_they_are():
    full = [node(f"n{i}", S8, ("web", 5000)) for i in range(3)]
    (command,) = look(cluster(*full)).commands
    assert command.method == "multi"
    assert sum(r.usd_per_hour for r in command.replacements) == pytest.approx(0.8)
    assert len(command.candidates) == 3


def test_many_machines_give_way_to_several():
    full = [node(f"n{i}", S8, ("web", 5000)) for i in range(6)]
    found = look(cluster(*full)).commands
    assert sum(len(c.candidates) for c in found) == 6
    assert sum(len(c.replacements) for c in found) == 2
    assert len(found) == 2, "each new machine can come, and fail, alone"


def test_among_equals_the_older_goes():
    young, old = node("n1", S4, ("web", 1000), age=timedelta(hours=1)), node("n2", S4, ("web", 1000))
    (command,) = look(cluster(young, old, node("n3", S16, ("web", 14000)))).commands
    assert [c.name for c in command.candidates] == ["n2"] or len(command.candidates) == 2


def test_pending_pods_that_have_nothing_to_do_with_a_node_do_not_keep_it():
    waiting = (pod("huge", "15", "1Gi"), pod("impossible", "500", "1Gi"))
    (command,) = look(
        cluster(node("n1", S8, ("web", 5000), ("web", 1000)), node("n2", S8, ("web", 1000)), pending=waiting)
    ).commands
    assert command.decision is Decision.DELETE


def test_room_that_pending_pods_are_about_to_take_is_not_given_away():
    first = cluster(node("n1", S8, ("web", 6000)), node("n2", S8, ("web", 1500)), pending=(pod("soon", "2", "1Gi"),))
    assert not any(c.decision is Decision.DELETE for c in look(first).commands)


@pytest.mark.parametrize(
    ("snapshot", "because"),
    [
        (cluster(node("n1", S2, ("web", 1500))), Because.NOT_CHEAPER),
        (cluster(node("n1", S8, ("web", 1000)), policy="WhenEmpty"), Because.POLICY),
        (cluster(node("n1", S8, ("web", 1000)), budget="0"), Because.BUDGET),
        (cluster(node("n1", S8, ("guarded", 1000)), guards=(guard(0),)), Because.PDB),
        (cluster(node("n1", S8, ("web", 1000)), replicas=1), Because.STATIC),
        (cluster(node("n1", S8, ("web", 1000), capacity_type="spot"), capacity_types=("spot",)), Because.SPOT_TO_SPOT),
        (cluster(node("n1", S16, ("web", 9000)), policy="Balanced"), Because.UNBALANCED),
        (
            cluster(node("n1", S8, ("web", 3500)), policy="Balanced", types=(S8, instance_type("s6", 6, 12, 0.35))),
            Because.UNBALANCED,
        ),
    ],
)
def test_a_node_that_stays_says_why(snapshot, because):
    assert because in {s.because for s in look(snapshot).stays["n1"]}


def test_spot_gives_way_to_spot_only_with_fifteen_cheaper_types_to_choose_from():
    def priced(count):
        return (*(instance_type(f"t{i:02}", 4, 8, 0.10 + i / 1000) for i in range(count)), S8)

    def one(count):
        return cluster(node("n1", S8, ("web", 1000), capacity_type="spot"), types=priced(count), capacity_types=("spot",))

    assert Because.FLEXIBILITY in {s.because for s in look(one(14), GATED).stays["n1"]}
    (command,) = look(one(20), GATED).commands
    assert command.replacements[0].instance_types == tuple(f"t{i:02}" for i in range(15))
    assert command.replacements[0].requirements[names.CAPACITY_TYPE].values == {"spot"}


def test_spot_goes_without_a_replacement_whatever_the_gate():
    spot = [node(f"n{i}", S8, ("web", 3000), capacity_type="spot") for i in range(2)]
    (command,) = look(cluster(*spot, capacity_types=("spot",))).commands
    assert command.decision is Decision.DELETE


def test_on_demand_gives_way_to_spot_and_to_nothing_dearer_if_spot_runs_out():
    (command,) = look(cluster(node("n1", S8, ("web", 6000)), capacity_types=("on-demand", "spot"))).commands
    (claim,) = command.replacements
    assert claim.requirements[names.CAPACITY_TYPE].values == {"spot"}
    assert claim.usd_per_hour == pytest.approx(0.16)


def test_one_dear_zone_narrows_the_zones_and_rules_nothing_out():
    cheap = instance_type("c4", 4, 8, 0.2)
    dear = tuple(replace(o, price=9.0) if o.zone == "b" else o for o in cheap.offerings)
    (command,) = look(cluster(node("n1", S8, ("web", 3000)), types=(S8, replace(cheap, offerings=dear)))).commands
    (claim,) = command.replacements
    assert claim.instance_types == ("c4",)
    assert claim.requirements[names.ZONE].values < set(ZONES)
    assert "b" not in claim.requirements[names.ZONE].values


def test_min_values_are_not_given_up_for_a_saving():
    wide = (needs(names.INSTANCE_TYPE, operator="Exists", min_values=3),)
    assert Because.MIN_VALUES in {s.because for s in look(cluster(node("n1", S16, ("web", 3000)), requirements=wide)).stays["n1"]}


def test_pods_are_not_moved_to_a_node_that_is_not_ready_yet():
    coming = node("n2", S16)
    bare = replace(coming.node.metadata, labels={k: v for k, v in coming.node.metadata.labels.items() if k != names.INITIALIZED})
    coming = replace(coming, node=replace(coming.node, metadata=bare))
    found = look(cluster(node("n1", S2, ("web", 1000)), coming))
    assert not found.commands
    assert {s.because for s in found.stays["n1"]} == {Because.WAITING}


def test_a_pod_budget_is_not_asked_for_more_than_it_gives():
    guarded = [node(f"n{i}", S8, ("guarded", 1000)) for i in range(4)]
    found = look(cluster(*guarded, node("n9", S8, ("web", 3000)), guards=(guard(2),))).commands
    going = [c for command in found for c in command.candidates if c.name != "n9"]
    assert len(going) == 2


def test_new_nodes_cost_more_to_move():
    restless = replace(
        SETTINGS, disruption=replace(SETTINGS.disruption, settled_after=timedelta(days=2), unrest=1.0, least_score=0.9)
    )
    settled = replace(SETTINGS, disruption=replace(SETTINGS.disruption, least_score=0.9))
    snapshot = cluster(node("n1", S8, ("web", 6000)), node("n2", S8, ("web", 1000), ("web", 500)))
    assert look(snapshot, settled).commands
    assert not look(snapshot, restless).commands


def test_with_few_steps_the_next_look_begins_with_those_the_last_did_not_reach():
    few = replace(SETTINGS, disruption=replace(SETTINGS.disruption, search_steps=0))
    snapshot = cluster(*(node(f"n{i}", S8, ("web", 3000)) for i in range(4)))
    found = look(snapshot, few)
    assert not found.commands
    assert found.out_of_steps
    assert set(found.memory.unreached) == {"n0", "n1", "n2", "n3"}


# --- second thoughts --------------------------------------------------------------------------------------------------------


def shrinking(*more):
    return cluster(node("n1", S8, ("web", 5000), ("web", 1000)), node("n2", S8, ("web", 1000)), *more)


def test_a_command_that_still_holds_is_carried_out_as_it_would_be_found_now():
    (command,) = look(shrinking()).commands
    later = shrinking(node("n0", S8, ("web", 100), ("web", 7500)))
    again = validate(command, later, SETTINGS, NOW, Memory(queued=frozenset({"aws:///n2"})))
    assert [c.name for c in again.candidates] == ["n2"]


@pytest.mark.parametrize(
    ("later", "category"),
    [
        (cluster(node("n1", S8, ("web", 5000), ("web", 1000))), "churn"),
        (cluster(node("n1", S8, ("web", 6500), ("web", 1000)), node("n2", S8, ("web", 1000)), types=(S8,)), "scheduling"),
        (cluster(node("n1", S8, ("web", 5000), ("web", 1000)), node("n2", S8, ("web", 1000)), budget="0"), "budget"),
    ],
)
def test_a_command_that_does_not_hold_any_more_says_which_way(later, category):
    (command,) = look(shrinking()).commands
    again = validate(command, later, SETTINGS, NOW, Memory())
    assert isinstance(again, Rejected)
    assert again.category == category


def test_nodes_that_go_without_replacements_do_not_hold_each_other():
    before = cluster(node("n1", S16, *[("web", 1500)] * 6), node("n2", S8, ("web", 1000)), node("n3", S8, ("web", 1500)))
    (command,) = look(before).commands
    assert [c.name for c in command.candidates] == ["n2", "n3"]
    after = cluster(node("n1", S16, ("web", 9000)), node("n3", S8, ("web", 1500)))
    assert [c.name for c in validate(command, after, SETTINGS, NOW, Memory()).candidates] == ["n3"]


# --- what is remembered -----------------------------------------------------------------------------------------------------


def versioned(snapshot, version="1"):
    def stamp(obj):
        return replace(obj, metadata=replace(obj.metadata, resource_version=version))

    nodes = tuple(replace(n, node=stamp(n.node), claim=stamp(n.claim), pods=tuple(map(stamp, n.pods))) for n in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def test_a_cluster_that_has_not_changed_is_not_searched_again():
    settled = versioned(cluster(node("n1", S2, ("web", 1500))))
    first = look(settled)
    again = look(settled, memory=first.memory)
    assert first.steps > 0
    assert again.steps == 0
    assert again.stays == first.stays
    assert again.eligible == first.eligible
    assert look(versioned(settled, "2"), memory=first.memory).steps > 0
    later = replace(settled, now=NOW + timedelta(minutes=6))
    assert decide(later, SETTINGS, later.now, first.memory).steps > 0


def test_every_method_is_asked_for_reasons_even_when_one_finds_something():
    snapshot = cluster(node("n1", S2, ("web", 1500)), node("n2", S2))
    assert look(snapshot).commands[0].reason is Reason.EMPTY
    assert {s.because for s in stays(snapshot, SETTINGS, NOW, Memory())["n1"]} == {Because.NOT_CHEAPER}
    assert BORN < NOW
