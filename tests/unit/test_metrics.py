"""Every metric of the reference under its name, with its labels; and the text that Prometheus reads."""

import asyncio
import re

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kubewright.errors import ConfigError
from kubewright.metrics import TABLE, Kind, Registry
from kubewright.metrics.server import serve
from kubewright.metrics.table import DURATION_BUCKETS, OPERATOR_BUCKETS, for_provider

# Typed from the tables of the specification (scheduling 12.1, disruption 8.1, aws 11), not from the code.
NODE = "node_name phase managed nodepool zone region instance_type arch os capacity_type windows_build"
DISRUPTED = "reason nodepool capacity_type consolidation_policy termination_mode"
SPECIFIED = f"""
H scheduler_scheduling_duration_seconds: controller
G scheduler_queue_depth: controller scheduling_id
G scheduler_unfinished_work_seconds: controller scheduling_id
G scheduler_ignored_pods_count:
G scheduler_unschedulable_pods_count: controller
G scheduler_pending_pods_by_effective_zone_count: controller zone
T nodeclaims_created_total: reason nodepool min_values_relaxed
T nodeclaims_terminated_total: nodepool capacity_type zone
T nodeclaims_disrupted_total: {DISRUPTED}
T pods_disruption_initiated_total: {DISRUPTED}
H nodeclaims_instance_termination_duration_seconds: nodepool
H nodeclaims_termination_duration_seconds: nodepool
T nodeclaims_unhealthy_disrupted_total: condition nodepool capacity_type image_id
T nodes_created_total: nodepool zone
T nodes_terminated_total: nodepool zone
S nodes_termination_duration_seconds: nodepool
T nodes_drained_total: nodepool
H nodes_lifetime_duration_seconds: nodepool
G nodes_allocatable: resource_type {NODE}
G nodes_total_pod_requests: resource_type {NODE}
G nodes_total_pod_limits: resource_type {NODE}
G nodes_total_daemon_requests: resource_type {NODE}
G nodes_total_daemon_limits: resource_type {NODE}
G nodes_system_overhead: resource_type {NODE}
G nodes_current_lifetime_seconds: {NODE}
G cluster_utilization_percent: resource_type
G nodepools_limit: resource_type nodepool
G nodepools_usage: resource_type nodepool
G nodepools_cost_total: nodepool
T nodepools_cost_tracker_errors_total: nodepool
G nodepools_allowed_disruptions: nodepool reason
G nodepools_nodes_consuming_budgets: nodepool reason
G pods_state: name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed
S pods_startup_duration_seconds:
H pods_bound_duration_seconds:
H pods_provisioning_bound_duration_seconds:
H pods_provisioning_startup_duration_seconds:
H pods_scheduling_decision_duration_seconds:
G pods_unstarted_time_seconds: name namespace
G pods_unbound_time_seconds: name namespace
G pods_provisioning_unbound_time_seconds: name namespace
G pods_provisioning_unstarted_time_seconds: name namespace
G pods_provisioning_scheduling_undecided_time_seconds: name namespace
T pods_eviction_requests_total: code
T pods_drained_total: reason
H voluntary_disruption_decision_evaluation_duration_seconds: reason consolidation_type
T voluntary_disruption_decisions_total: decision reason consolidation_type
T voluntary_disruption_decisions_by_nodepool_total: nodepool decision reason consolidation_type
G voluntary_disruption_eligible_nodes: reason
T voluntary_disruption_consolidation_timeouts_total: consolidation_type
T voluntary_disruption_failed_validations_total: consolidation_type
T voluntary_disruption_queue_failures_total: decision reason consolidation_type
H consolidation_score: decision nodepool policy
T consolidation_moves_total: decision nodepool policy
G cluster_state_node_count:
G cluster_state_synced:
G cluster_state_unsynced_time_seconds:
H cloudprovider_duration_seconds: controller method provider
T cloudprovider_errors_total: controller method provider error
G build_info: version goversion goarch commit
G cloudprovider_instance_type_cpu_cores: instance_type
G cloudprovider_instance_type_memory_bytes: instance_type
G cloudprovider_instance_type_offering_available: instance_type capacity_type zone
G cloudprovider_instance_type_offering_price_estimate: instance_type capacity_type zone
T cloudprovider_instance_launch_failures_total: zone zone_id capacity_type reason
T cloudprovider_instance_termination_failures_total: zone zone_id
H cloudprovider_batcher_batch_time_seconds: batcher
H cloudprovider_batcher_batch_size: batcher
T interruption_received_messages_total: message_type
T interruption_deleted_messages_total:
H interruption_message_queue_duration_seconds:
T interruption_instance_status_unhealthy_total: category
G ec2nodeclasses_userdata_bytes: nodeclass
"""
KINDS = {"T": Kind.COUNTER, "G": Kind.GAUGE, "H": Kind.HISTOGRAM, "S": Kind.SUMMARY}
BY_NAME = {metric.name: metric for metric in TABLE}


def test_the_prefixed_metrics_are_exactly_those_of_the_specification() -> None:
    wanted = {}
    for line in SPECIFIED.strip().splitlines():
        kind, name, labels = re.fullmatch(r"(.) (\w+):(.*)", line).groups()  # type: ignore[union-attr]
        wanted[f"karpenter_{name}"] = (KINDS[kind], tuple(labels.split()))
    assert {m.name: (m.kind, m.labels) for m in TABLE if m.name.startswith("karpenter_")} == wanted


def test_the_operator_library_s_metrics_are_there_for_every_kind() -> None:
    wanted = {
        f"operator_{kind}{name}"
        for kind in ("nodeclaim_", "nodepool_", "node_", "capacitybuffer_", "ec2nodeclass_", "")
        for name in (
            "status_condition_transition_seconds",
            "status_condition_count",
            "status_condition_current_status_seconds",
            "status_condition_transitions_total",
            "termination_current_time_seconds",
            "termination_duration_seconds",
        )
    }
    assert {m.name for m in TABLE if m.name.startswith("operator_")} == wanted


def test_no_name_is_declared_twice() -> None:
    assert len(BY_NAME) == len(TABLE)


def test_buckets_are_the_reference_s() -> None:
    assert len(DURATION_BUCKETS) == 45
    assert DURATION_BUCKETS[:6] == (0.005, 0.01, 0.025, 0.05, 0.1, 0.15)
    assert DURATION_BUCKETS[-4:] == (150, 300, 450, 600)
    assert OPERATOR_BUCKETS[:3] + OPERATOR_BUCKETS[-1:] == (0.5, 1, 2, 8192)
    assert BY_NAME["karpenter_nodeclaims_instance_termination_duration_seconds"].buckets[-1] == 1024
    assert BY_NAME["karpenter_nodeclaims_termination_duration_seconds"].buckets[-1] == 2048
    assert BY_NAME["karpenter_consolidation_score"].buckets == (0.1, 0.25, 0.33, 0.5, 1, 2, 5, 10)
    for metric in TABLE:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name


def test_everything_declared_can_be_counted_and_is_read_back_by_prometheus() -> None:
    registry = Registry()
    for metric in TABLE:
        labels = dict.fromkeys(metric.labels, "x")
        match metric.kind:
            case Kind.COUNTER:
                registry.inc(metric.name, 2, **labels)
            case Kind.GAUGE:
                registry.set(metric.name, 2, **labels)
            case _:
                registry.observe(metric.name, 2, **labels)
    families = {f.name: f for f in text_string_to_metric_families(registry.expose().decode())}
    for metric in TABLE:
        family = families[metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name]
        assert family.type == metric.kind.value, metric.name
        sample = family.samples[0]
        assert sample.labels.keys() - {"le", "quantile"} == set(metric.labels), metric.name
    assert not [s.name for family in families.values() for s in family.samples if s.name.endswith("_created")]


VALUES = st.text(max_size=12).filter(lambda text: text.isprintable() or text in {"\n", '"', "\\"})


@settings(max_examples=100, deadline=None)
@given(rows=st.dictionaries(st.tuples(VALUES, VALUES), st.floats(0, 1e9), max_size=20))
def test_wide_series_are_read_back_as_they_were_given(rows: dict[tuple[str, str], float]) -> None:
    registry = Registry()
    name = "karpenter_pods_unbound_time_seconds"
    registry.set(name, 1, name="old", namespace="old")
    registry.replace(name, rows)
    samples = [s for f in text_string_to_metric_families(registry.expose().decode()) if f.name == name for s in f.samples]
    assert {(s.labels["name"], s.labels["namespace"]): s.value for s in samples} == rows


def test_series_are_forgotten_by_some_of_their_labels() -> None:
    registry = Registry()
    for zone in "ab":
        registry.inc("karpenter_nodes_created_total", nodepool="p", zone=zone)
        registry.set("karpenter_pods_unbound_time_seconds", 1, name="p", namespace=zone)
    registry.remove("karpenter_nodes_created_total", zone="a")
    registry.remove("karpenter_pods_unbound_time_seconds", namespace="a")
    assert registry.value("karpenter_nodes_created_total", nodepool="p", zone="a") is None
    assert registry.value("karpenter_nodes_created_total", nodepool="p", zone="b") == 1
    assert registry.value("karpenter_pods_unbound_time_seconds", name="p", namespace="a") is None
    assert registry.value("karpenter_pods_unbound_time_seconds", name="p", namespace="b") == 1
    registry.inc("karpenter_nodes_created_total", nodepool="p", zone="a")
    assert registry.value("karpenter_nodes_created_total", nodepool="p", zone="a") == 1


def test_a_summary_has_the_reference_s_quantiles() -> None:
    registry = Registry()
    for value in range(101):
        registry.observe("karpenter_pods_startup_duration_seconds", value)
    text = registry.expose().decode()
    for quantile, value in (("0", 0), ("0.5", 50), ("0.9", 90), ("0.99", 99), ("1", 100)):
        assert f'karpenter_pods_startup_duration_seconds{{quantile="{quantile}"}} {value}.0\n' in text
    assert registry.value("karpenter_pods_startup_duration_seconds") == 101


def test_a_wrong_name_label_or_kind_is_a_bug_that_says_so() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match="no metric is called 'karpenter_x'"):
        registry.inc("karpenter_x")
    with pytest.raises(ValueError, match=r"has labels \['nodepool', 'zone'\], got \['zone'\]"):
        registry.inc("karpenter_nodes_created_total", zone="a")
    with pytest.raises(ValueError, match="is a counter, not a gauge"):
        registry.set("karpenter_nodes_created_total", 1, nodepool="p", zone="a")
    registry.inc("karpenter_nodes_created_total", nodepool="p", zone="a")
    with pytest.raises(ValueError, match="is a counter, not a gauge"):
        registry.set("karpenter_nodes_created_total", 1, nodepool="p", zone="a")


def test_two_registries_know_nothing_of_each_other() -> None:
    one, two = Registry(), Registry()
    one.set("karpenter_cluster_state_node_count", 3)
    assert two.value("karpenter_cluster_state_node_count") is None


def test_what_was_never_written_is_not_shown() -> None:
    registry = Registry()
    assert b"karpenter" not in registry.expose()
    registry.inc("karpenter_nodes_created_total", nodepool="p", zone="a")
    assert {f.name for f in text_string_to_metric_families(registry.expose().decode())} == {"karpenter_nodes_created"}


def test_a_provider_s_labels_are_on_the_metrics_of_nodes_and_nowhere_else() -> None:
    table = {m.name: m for m in for_provider(("instance_category", "zone"))}
    assert table["karpenter_nodes_allocatable"].labels[-1] == "instance_category"
    assert table["karpenter_nodes_allocatable"].labels.count("zone") == 1
    assert table["karpenter_pods_state"].labels == BY_NAME["karpenter_pods_state"].labels


def test_the_server_serves_metrics_and_probes() -> None:
    async def main() -> None:
        registry = Registry()
        ready = False
        async with (
            serve(
                registry,
                ready={"caches-synced": lambda: ready, "crds": lambda: True},
                host="127.0.0.1",
                metrics_port=0,
                health_port=0,
                before_scrape=lambda: registry.set("karpenter_cluster_state_node_count", 7),
            ) as ports,
            aiohttp.ClientSession() as session,
        ):

            async def get(port: int, path: str) -> tuple[int, str]:
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    return response.status, await response.text()

            assert await get(ports.health, "/healthz") == (200, "ok")
            assert await get(ports.health, "/readyz") == (500, "[-]caches-synced\n[+]crds\n")
            ready = True
            assert await get(ports.health, "/readyz") == (200, "ok")
            code, text = await get(ports.metrics, "/metrics")
            assert code == 200
            assert "karpenter_cluster_state_node_count 7.0\n" in text
            assert (await get(ports.metrics, "/healthz"))[0] == 404
            with pytest.raises(ConfigError, match=f"--metrics-port {ports.metrics} cannot be opened"):
                async with serve(registry, ready={}, host="127.0.0.1", metrics_port=ports.metrics, health_port=0):
                    pass

    asyncio.run(main())
