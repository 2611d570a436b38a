"""`solve` on small problems whose answer is known; cases numbered C… and S… are restated public reports."""

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    Affinity,
    Container,
    ContainerPort,
    DaemonSet,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodTemplateSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
    WorkloadSpec,
)
from kubewright.api.meta import LabelSelector, ObjectMeta, SelectorRequirement
from kubewright.scheduling.refusal import Because
from kubewright.settings import FeatureGates, MinValuesPolicy, PreferencePolicy
from kubewright.solver.problem import SolverSettings, StateNode, Surroundings
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import S_TYPES, ask, instance_type, needs, node_pool, pod, pods
from tests.conformance.adapter import read
from tests.conformance.problems import problem


def selecting(app: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": app})


def spread(key: str, skew: int = 1, **more: object) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(topology_key=key, max_skew=skew, label_selector=selecting("web"), **more)  # type: ignore[arg-type]


def require(key: str, operator: str, *values: str) -> Affinity:
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=key, operator=operator, values=values),))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def node(name: str, zone: str = "a", cpu: str = "8", pool: str = "default", **labels: str) -> StateNode:
    amounts: dict[str, str | int] = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    own = {names.ZONE: zone, names.HOSTNAME: name, names.NODEPOOL: pool, names.ARCH: "amd64", **labels}
    return StateNode(
        Node(
            metadata=ObjectMeta(name=name, labels=own),
            spec=NodeSpec(provider_id=name),
            status=NodeStatus(capacity=amounts, allocatable=amounts),
        ),
        None,
    )


def zones(plan: object) -> list[str]:
    return sorted(next(iter(c.requirements[names.ZONE].values)) for c in plan.claims for _ in c.pods)  # type: ignore[attr-defined]


def test_one_pod_gets_the_cheapest_machine_that_holds_it() -> None:
    (claim,) = solve(ask([pod(cpu="3")])).claims
    assert claim.instance_types == ("s4", "s8", "s16", "g8")
    assert claim.usd_per_hour == 0.20 * 0.4
    assert claim.labels[names.NODEPOOL] == "default"


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert solve(ask([])).claims == ()


def test_without_pools_every_pod_is_told() -> None:
    plan = solve(ask([pod()], pools=[]))
    assert [r.found for r in plan.unplaced["default/p"]] == ["no dynamic nodepools found"]


def test_c01_negative_requirements_pass_and_positive_fail_on_labels_nobody_offers() -> None:
    plan = solve(
        ask(
            [
                pod("p1", affinity=require("tier", "DoesNotExist")),
                pod("p2", affinity=require("tier", "NotIn", "gold")),
                pod("p3", affinity=require("tier", "Exists")),
            ]
        )
    )
    assert set(plan.unplaced) == {"default/p3"}
    assert plan.unplaced["default/p3"][0].because is Because.UNKNOWN_LABEL


def test_c02_a_custom_label_is_offered_by_label_or_requirement() -> None:
    wanted = pods(5, node_selector={"workload": "batch"})
    assert len(solve(ask(wanted)).unplaced) == 5
    labelled = solve(ask(wanted, [node_pool(labels={"workload": "batch"})]))
    (claim,) = labelled.claims
    assert claim.labels["workload"] == "batch"
    (claim,) = solve(ask(wanted, [node_pool(requirements=(needs("workload", operator="Exists"),))])).claims
    assert claim.labels["workload"] == "batch"


def test_c03_a_typo_is_named_and_a_mere_ending_is_not() -> None:
    plan = solve(ask([pod("p1", node_selector={"name": "ng-1"}), pod("p2", node_selector={"topology.kubernetes.io/zne": "a"})]))
    assert "hint" not in plan.unplaced["default/p1"][0].facts
    assert plan.unplaced["default/p2"][0].facts["hint"] == names.ZONE


def test_c06_the_heaviest_pool_that_fits_wins() -> None:
    types = (*S_TYPES, instance_type("m8", 8, 32, 0.48), instance_type("s32", 32, 64, 1.60))
    pools = [
        node_pool("first", weight=30, requirements=(needs(names.INSTANCE_TYPE, "s8"),)),
        node_pool("second", weight=20, requirements=(needs(names.INSTANCE_TYPE, "m8"),)),
        node_pool("third", weight=10, requirements=(needs(names.INSTANCE_TYPE, "s32"),)),
    ]
    daemon = DaemonSet(
        metadata=ObjectMeta(name="agent", namespace="default"),
        spec=WorkloadSpec(template=PodTemplateSpec(spec=pod(cpu="500m", memory="1Gi").spec)),
    )
    plan = solve(ask([pod(cpu="7", memory="15872Mi")], pools, types, around=Surroundings(daemon_sets=(daemon,))))
    (claim,) = plan.claims
    assert (claim.node_pool, claim.instance_types) == ("second", ("m8",))
    assert claim.requests["cpu"] == 7_500_000_000


def test_c07_free_room_on_a_node_comes_before_any_pool() -> None:
    plan = solve(ask([pod()], [node_pool("hi", weight=99), node_pool("lo")], nodes=[node("n1", pool="lo")]))
    assert plan.existing == {"n1": ("default/p",)}
    assert plan.claims == ()


def test_equal_weights_are_resolved_by_the_later_name() -> None:
    (claim,) = solve(ask([pod()], [node_pool("a"), node_pool("b")])).claims
    assert claim.node_pool == "b"


def test_taints_keep_out_who_does_not_tolerate_them() -> None:
    tainted = node_pool(taints=(Taint(key="dedicated", value="batch", effect="NoSchedule"),))
    assert solve(ask([pod()], [tainted])).unplaced["default/p"][0].because is Because.TAINT
    tolerant = pod(tolerations=(Toleration(key="dedicated", value="batch"),))
    assert len(solve(ask([tolerant], [tainted])).claims) == 1


def test_startup_taints_do_not_matter() -> None:
    pool = node_pool(startup_taints=(Taint(key="boot", effect="NoSchedule"),))
    assert len(solve(ask([pod()], [pool])).claims) == 1


def test_a_soft_taint_is_tolerated_last_and_another_pool_is_taken_first() -> None:
    soft = node_pool("z-soft", taints=(Taint(key="soft", effect="PreferNoSchedule"),), weight=50)
    assert solve(ask([pod()], [soft, node_pool("plain")])).claims[0].node_pool == "plain"
    assert solve(ask([pod()], [soft])).claims[0].node_pool == "z-soft"


def test_zone_spread_is_even() -> None:
    plan = solve(ask(pods(9, topology_spread_constraints=(spread(names.ZONE),))))
    assert [zones(plan).count(z) for z in "abc"] == [3, 3, 3]


def test_min_domains_keeps_pods_waiting_for_a_third_zone() -> None:
    pool = node_pool(requirements=(needs(names.ZONE, "a", "b"),))
    plan = solve(ask(pods(3, topology_spread_constraints=(spread(names.ZONE, min_domains=3),)), [pool]))
    assert zones(plan) == ["a", "b"]
    assert len(plan.unplaced) == 1
    eleven = solve(ask(pods(11, topology_spread_constraints=(spread(names.ZONE, min_domains=3),))))
    assert sorted(zones(eleven).count(z) for z in "abc") == [3, 4, 4]


def test_a_running_pod_holds_down_the_minimum() -> None:
    running = replace(pod("old"), spec=replace(pod("old").spec, node_name="n3"))
    full = replace(node("n3", zone="c", cpu="1"), pods=(running,))
    pool = node_pool(requirements=(needs(names.ZONE, "a", "b"),))
    plan = solve(ask(pods(6, cpu="2", topology_spread_constraints=(spread(names.ZONE),)), [pool], nodes=[full]))
    assert [zones(plan).count(z) for z in "ab"] == [2, 2]
    assert len(plan.unplaced) == 2


def test_hostname_spread_limits_pods_a_node() -> None:
    assert len(solve(ask(pods(4, topology_spread_constraints=(spread(names.HOSTNAME),)))).claims) == 4
    assert len(solve(ask(pods(4, topology_spread_constraints=(spread(names.HOSTNAME, 4),)))).claims) == 1


def test_an_unknown_topology_key_never_schedules() -> None:
    assert len(solve(ask(pods(1, topology_spread_constraints=(spread("nobody.has/this"),)))).unplaced) == 1


def test_schedule_anyway_is_given_up_in_the_end() -> None:
    soft = spread("nobody.has/this", when_unsatisfiable="ScheduleAnyway")
    assert len(solve(ask(pods(3, topology_spread_constraints=(soft,)))).claims) == 1


def anti(key: str, app: str = "web") -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=key, label_selector=selecting(app)),)))


def test_hostname_anti_affinity_gives_everyone_a_node() -> None:
    assert len(solve(ask(pods(5, affinity=anti(names.HOSTNAME)))).claims) == 5


def test_zonal_anti_affinity_places_one_a_zone_in_one_pass() -> None:
    plan = solve(ask(pods(4, affinity=anti(names.ZONE))))
    assert zones(plan) == ["a", "b", "c"]
    assert len(plan.unplaced) == 1


def test_anti_affinity_binds_those_it_selects() -> None:
    loner = pod("loner", cpu="2", app="loner", affinity=anti(names.HOSTNAME, "web"))
    plan = solve(ask([loner, *pods(2)]))
    assert sorted(len(c.pods) for c in plan.claims) == [1, 2]


def test_affinity_gathers_followers_in_the_zone_of_the_leader() -> None:
    term = PodAffinityTerm(topology_key=names.ZONE, label_selector=selecting("leader"))
    followers = pods(3, affinity=Affinity(pod_affinity=PodAffinity(required=(term,))))
    leader = pod("z-leader", cpu="100m", app="leader", node_selector={names.ZONE: "b"})
    plan = solve(ask([leader, *followers]))
    assert set(zones(plan)) == {"b"}
    assert plan.unplaced == {}


def test_self_affinity_may_begin_anywhere_but_stays_together() -> None:
    term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=selecting("web"))
    affinity = Affinity(pod_affinity=PodAffinity(required=(term,)))
    plan = solve(ask(pods(10, cpu="3", affinity=affinity)))
    assert [len(c.pods) for c in plan.claims] == [5]
    assert len(plan.unplaced) == 5


def test_c14_preferences_decide_the_number_of_nodes() -> None:
    preferred = WeightedPodAffinityTerm(
        weight=1, pod_affinity_term=PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=selecting("web"))
    )
    wanted = pods(8, affinity=Affinity(pod_anti_affinity=PodAffinity(preferred=(preferred,))))
    pool = node_pool(requirements=(needs(names.INSTANCE_TYPE, "s16"),))
    assert len(solve(ask(wanted, [pool])).claims) == 8
    relaxed = SolverSettings(preference_policy=PreferencePolicy.IGNORE)
    assert len(solve(ask(wanted, [pool], settings=relaxed)).claims) == 1


def test_a_preference_that_cannot_be_met_is_dropped() -> None:
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ZONE, operator="In", values=("mars",)),))
    wish = Affinity(node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=1, preference=term),)))
    assert solve(ask([pod(affinity=wish)])).unplaced == {}


def test_the_second_required_term_is_tried_and_the_last_is_kept() -> None:
    bad = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ZONE, operator="In", values=("mars",)),))
    good = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ZONE, operator="In", values=("b",)),))

    def with_terms(*terms: NodeSelectorTerm) -> Affinity:
        return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))

    assert zones(solve(ask([pod(affinity=with_terms(bad, good))]))) == ["b"]
    assert len(solve(ask([pod(affinity=with_terms(bad))])).unplaced) == 1


def test_limits_hold_within_one_pass() -> None:
    pool = node_pool(limits={"cpu": "4"}, requirements=(needs(names.INSTANCE_TYPE, "s2", "s4"),))
    plan = solve(ask(pods(6, cpu="1500m"), [pool]))
    assert len(plan.claims) == 1
    assert plan.unplaced["default/p005"][0].because is Because.LIMITS


def test_node_limits_count_inside_the_pass() -> None:
    plan = solve(ask(pods(5, affinity=anti(names.HOSTNAME)), [node_pool(limits={"nodes": "2"})]))
    assert len(plan.claims) == 2


def test_where_limits_leave_pods_out_the_more_important_go_first() -> None:
    small = pods(1, "important", cpu="1", priority=100)
    large = pods(4, "large", cpu="2", priority=0)
    pool = node_pool(limits={"cpu": "2"}, requirements=(needs(names.INSTANCE_TYPE, "s2"),))
    plan = solve(ask([*small, *large], [pool]))
    assert plan.claims[0].pods == ("default/important000",)


def test_existing_nodes_count_against_the_limits_of_their_pool() -> None:
    pool = node_pool(limits={"cpu": "9"})
    plan = solve(ask([pod(cpu="8")], [pool], nodes=[node("n1", cpu="7")]))
    assert plan.unplaced["default/p"][0].because is Because.LIMITS


def test_min_values_keep_types_open_strictly_or_as_far_as_possible() -> None:
    pool = node_pool(requirements=(needs(names.INSTANCE_TYPE, operator="Exists", min_values=3),))
    assert len(solve(ask([pod(cpu="3")], [pool])).claims[0].instance_types) >= 3
    assert solve(ask([pod(cpu="9")], [pool])).unplaced["default/p"][0].because is Because.MIN_VALUES
    effort = SolverSettings(min_values_policy=MinValuesPolicy.BEST_EFFORT)
    (claim,) = solve(ask([pod(cpu="9")], [pool], settings=effort)).claims
    assert claim.min_values_relaxed
    assert claim.requirements[names.INSTANCE_TYPE].min_values == 1


def test_host_ports_do_not_share_a_node() -> None:
    container = Container(
        name="main",
        resources=ResourceRequirements(requests={"cpu": "100m"}),
        ports=(ContainerPort(container_port=80, host_port=8080),),
    )
    assert len(solve(ask(pods(3, containers=(container,)))).claims) == 3


def test_init_containers_decide_the_size() -> None:
    init = Container(name="init", resources=ResourceRequirements(requests={"cpu": "7"}))
    (claim,) = solve(ask([pod(init_containers=(init,))])).claims
    assert "s4" not in claim.instance_types


def test_pod_level_resources_win_over_those_of_containers() -> None:
    (claim,) = solve(ask([pod(resources=ResourceRequirements(requests={"cpu": "7"}))])).claims
    assert "s4" not in claim.instance_types


def test_a_zero_request_of_an_unknown_resource_is_fine_and_a_real_one_is_not() -> None:
    assert solve(ask([pod(more={"example.com/fpga": "0"})])).unplaced == {}
    assert solve(ask([pod(more={"example.com/fpga": "1"})])).unplaced["default/p"][0].because is Because.RESOURCES


def test_a_daemon_counts_only_on_the_types_where_it_would_run() -> None:
    spec = PodSpec(containers=pod(cpu="1500m", memory="1Gi").spec.containers, node_selector={names.INSTANCE_TYPE: "s2"})
    daemon = DaemonSet(
        metadata=ObjectMeta(name="agent", namespace="default"), spec=WorkloadSpec(template=PodTemplateSpec(spec=spec))
    )
    (claim,) = solve(ask([pod(cpu="1")], around=Surroundings(daemon_sets=(daemon,)))).claims
    assert claim.instance_types[0] == "s4"
    assert claim.requests["cpu"] == 1_000_000_000


def test_the_plan_does_not_depend_on_the_order_of_pods() -> None:
    wanted = [*pods(5, "x", cpu="2"), *pods(5, "y", topology_spread_constraints=(spread(names.ZONE),))]
    problem = ask(wanted)
    assert solve(problem) == solve(replace(problem, pods=tuple(reversed(problem.pods))))


def test_reserved_capacity_is_taken_first_and_what_is_left_is_bought() -> None:
    key = "example.com/reservation-id"
    kind = instance_type("s2", 2, 4, 0.10)
    offering = replace(
        kind.offerings[0],
        requirements={
            **kind.offerings[0].requirements,
            names.CAPACITY_TYPE: replace(kind.offerings[0].requirements[names.CAPACITY_TYPE], values=frozenset({"reserved"})),
            key: replace(kind.offerings[0].requirements[names.CAPACITY_TYPE], key=key, values=frozenset({"r-1"})),
        },
        price=0.0001,
        reservation_capacity=1,
    )
    requirement = kind.requirements[names.CAPACITY_TYPE]
    kinds = {**kind.requirements, names.CAPACITY_TYPE: replace(requirement, values=requirement.values | {"reserved"})}
    types = (replace(kind, offerings=(*kind.offerings, offering), requirements=kinds),)
    settings = SolverSettings(well_known_labels=frozenset({key}))
    plan = solve(ask(pods(2, cpu="1500m"), types=types, settings=settings))
    claim, other = plan.claims
    assert claim.requirements[names.CAPACITY_TYPE].values == {"reserved"}
    assert claim.requirements[key].values == {"r-1"}
    assert "reserved" not in other.requirements[names.CAPACITY_TYPE].values
    off = replace(settings, feature_gates=FeatureGates(reserved_capacity=False))
    assert solve(ask(pods(2, cpu="1500m"), types=types, settings=off)).unplaced == {}


def test_claims_whose_zone_was_fixed_at_the_end_can_still_be_joined() -> None:
    # Found by chance: fixing a zone opens a domain for a pod that had none, which then asks the fixed claims.
    asked = select(*read(problem(5982)[0])).problem
    plan = solve(asked)
    assert sorted(
        [*plan.unplaced, *(k for c in plan.claims for k in c.pods), *(k for ks in plan.existing.values() for k in ks)]
    ) == [pod.key for pod in asked.pods]
