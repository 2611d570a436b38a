"""Who counts where, in small problems whose answer is known."""

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import (
    Affinity,
    Container,
    DaemonSet,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodTemplateSpec,
    ReplicaSet,
    Taint,
    TemplateMeta,
    Toleration,
    TopologySpreadConstraint,
    WorkloadSpec,
)
from kubewright.api.meta import LabelSelector, ObjectMeta, OwnerReference, SelectorRequirement
from kubewright.solver.problem import Pool, Snapshot, SolverSettings, Surroundings
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import NOW, S_TYPES, ask, instance_type, needs, node_pool, pod, pods

SHARE = "example.com/share"
WEB = LabelSelector(match_labels={"app": "web"})


def spread(key: str, **more: object) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(topology_key=key, label_selector=WEB, **more)  # type: ignore[arg-type]


def by_host(**labels: str) -> tuple[PodAffinityTerm, ...]:
    return (PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelector(match_labels=labels)),)


def agent(affinity: Affinity | None = None) -> DaemonSet:
    spec = PodSpec(containers=(Container(name="d"),), affinity=affinity, tolerations=(Toleration(operator="Exists"),))
    template = PodTemplateSpec(metadata=TemplateMeta(labels={"d": "agent"}), spec=spec)
    return DaemonSet(metadata=ObjectMeta(name="agent", namespace="default"), spec=WorkloadSpec(template=template))


def test_a_taint_that_merely_prefers_keeps_no_zone_out_of_a_spread_that_honours_taints() -> None:
    pool = node_pool(taints=(Taint(key="soft", effect="PreferNoSchedule"),))
    rule = spread(names.ZONE, node_taints_policy="Honor")
    plan = solve(ask(pods(3, cpu="4", topology_spread_constraints=(rule,)), [pool]))
    assert sorted(min(c.requirements[names.ZONE].values) for c in plan.claims) == ["a", "b", "c"]


def test_pods_that_begin_to_count_on_a_claim_are_counted_before_another_joins_them() -> None:
    """The first asks nothing of a node, so it counts for the second only where both land on one claim; then the skew is 2."""
    rule = spread(names.ZONE, min_domains=2)
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key="size", operator="In", values=("small",)),))
    bound = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    wanted = [
        pod("first", memory="2Gi", topology_spread_constraints=(rule,)),
        pod("second", topology_spread_constraints=(rule,), affinity=bound),
    ]
    plan = solve(ask(wanted, [node_pool(requirements=(needs("size", "big", "small"),))]))
    assert not plan.unplaced
    assert [len(c.pods) for c in plan.claims] == [1, 1]


def test_pods_whose_node_may_come_to_count_are_reckoned_with() -> None:
    """The first's node will be labelled big, the least value that is open: then the second would lean too far beside it."""
    rule = spread(names.ZONE, min_domains=2)
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key="size", operator="In", values=("big",)),))
    bound = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    wanted = [
        pod("first", memory="2Gi", topology_spread_constraints=(rule,)),
        pod("second", topology_spread_constraints=(rule,), affinity=bound),
    ]
    plan = solve(ask(wanted, [node_pool(requirements=(needs("size", "big", "small"),))]))
    assert not plan.unplaced
    assert len({min(c.requirements[names.ZONE].values) for c in plan.claims}) == 2


def test_what_is_for_sale_in_one_zone_alone_counts_there_at_once() -> None:
    only_b = (instance_type("b4", 4, 8, 0.2, zones=("b",)),)
    free = [pod(f"free{i}", cpu="2") for i in range(2)]
    bound = [pod(f"bound{i}", cpu="1", topology_spread_constraints=(spread(names.ZONE, min_domains=2),)) for i in range(2)]
    plan = solve(ask([*free, *bound], types=only_b))
    assert len(plan.unplaced) == 1, "one that is bound goes first, the others would lean further than the one zone allows"


def test_a_preferred_spread_of_the_cluster_gives_way_and_a_required_one_does_not() -> None:
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="set", uid="u", controller=True)
    wanted = [replace(p, metadata=replace(p.metadata, owner_references=(owner,))) for p in pods(4)]
    replicas = ReplicaSet(metadata=ObjectMeta(name="set", namespace="default"), spec=WorkloadSpec(selector=WEB))
    around = Surroundings(replica_sets=(replicas,))
    only_b = (instance_type("b4", 4, 8, 0.2, zones=("b",)),)
    for when, placed in (("ScheduleAnyway", 4), ("DoNotSchedule", 1)):
        rule = TopologySpreadConstraint(topology_key=names.ZONE, when_unsatisfiable=when, min_domains=3)
        plan = solve(ask(wanted, types=only_b, settings=SolverSettings(default_constraints=(rule,)), around=around))
        assert 4 - len(plan.unplaced) == placed


def test_pods_that_must_not_be_beside_a_daemon_get_no_node_that_it_will_run_on() -> None:
    away = Affinity(pod_anti_affinity=PodAffinity(required=by_host(d="agent")))
    around = Surroundings(daemon_sets=(agent(),))
    plan = solve(ask([pod(affinity=away)], around=around))
    assert sorted(plan.unplaced) == ["default/p"]
    assert "anti-affinity" in plan.unplaced["default/p"][0].facts["shape"]
    assert not solve(ask([pod(affinity=away)])).unplaced


def test_pods_that_a_daemon_keeps_off_get_no_node_that_it_will_run_on() -> None:
    shy = agent(Affinity(pod_anti_affinity=PodAffinity(required=by_host(app="web"))))
    plan = solve(ask([pod("web"), pod("other", app="other")], around=Surroundings(daemon_sets=(shy,))))
    assert sorted(plan.unplaced) == ["default/web"]


def test_capacity_spread_splits_spot_and_on_demand_between_pools() -> None:
    """Nine parts spot, one part on-demand: a custom label with ten values, spread over like zones."""
    spot = node_pool(
        "spot",
        requirements=(needs(names.CAPACITY_TYPE, "spot"), needs(SHARE, *map(str, range(2, 11)))),
    )
    on_demand = node_pool("on-demand", requirements=(needs(names.CAPACITY_TYPE, "on-demand"), needs(SHARE, "1")))
    plan = solve(ask(pods(20, topology_spread_constraints=(spread(SHARE),)), [spot, on_demand]))
    assert not plan.unplaced
    per_pool = {name: sum(len(c.pods) for c in plan.claims if c.node_pool == name) for name in ("spot", "on-demand")}
    assert per_pool == {"spot": 18, "on-demand": 2}


def test_an_expression_that_cannot_be_read_holds_nowhere() -> None:
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key="cpus", operator="Gt", values=("many",)),))
    odd = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    daemon = agent(odd)
    plan = solve(ask([pod()], around=Surroundings(daemon_sets=(daemon,))))
    assert not plan.unplaced
    assert plan.claims[0].requests["pods"] == 10**9


def test_an_empty_required_term_matches_no_node() -> None:
    empty = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(NodeSelectorTerm(),))))
    asked = ask([pod(affinity=empty)])
    assert solve(asked).unplaced
    good = NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ARCH, operator="In", values=("amd64",)),))
    both = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(NodeSelectorTerm(), good))))
    assert not solve(ask([pod(affinity=both)])).unplaced


def test_a_pod_that_is_nominated_is_left_alone() -> None:
    waiting = pod()
    nominated = replace(waiting, status=replace(waiting.status, nominated_node_name="node-0"))
    snapshot = Snapshot(NOW, pods=(nominated,), pools=(Pool(node_pool(), S_TYPES),))
    assert select(snapshot, SolverSettings()).problem.pods == ()
