"""Every metric by name, type, labels and buckets. Source: spec/scheduling 12.1, spec/disruption 8.1, spec/aws 11."""

import enum

import msgspec


class Kind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Metric(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without +Inf."""
    wide: bool = False
    """One series for each pod or node: kept and written by us, because there may be a hundred thousand."""


DURATION_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0),
)
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
LIFETIME_BUCKETS = (
    *(15 * _MINUTE_S, 30 * _MINUTE_S, _HOUR_S, 2 * _HOUR_S, 4 * _HOUR_S, 8 * _HOUR_S, 12 * _HOUR_S, _DAY_S),
    *(2 * _DAY_S, 5 * _DAY_S, 7 * _DAY_S, 10 * _DAY_S, 15 * _DAY_S, 20 * _DAY_S, 25 * _DAY_S, 30 * _DAY_S),
)
"""The specification has the ends, 15 minutes and 30 days; the steps between are ours."""
OPERATOR_BUCKETS = tuple(0.5 * 2.0**k for k in range(15))
SIZE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
SCORE_BUCKETS = (0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0)
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)

NODE_LABELS = ("nodepool", "zone", "region", "instance_type", "arch", "os", "capacity_type", "windows_build")
"""The well-known labels as snake case of their name part; providers add theirs, see `for_provider`."""


def _powers_of_two(count: int) -> tuple[float, ...]:
    return tuple(2.0**k for k in range(count))


def _counter(name: str, labels: str, help_: str) -> Metric:
    return Metric(f"karpenter_{name}", Kind.COUNTER, tuple(labels.split()), help_)


def _gauge(name: str, labels: str, help_: str, *, wide: bool = False) -> Metric:
    return Metric(f"karpenter_{name}", Kind.GAUGE, tuple(labels.split()), help_, wide=wide)


def _histogram(name: str, labels: str, help_: str, buckets: tuple[float, ...] = DURATION_BUCKETS) -> Metric:
    return Metric(f"karpenter_{name}", Kind.HISTOGRAM, tuple(labels.split()), help_, buckets)


def _summary(name: str, labels: str, help_: str) -> Metric:
    return Metric(f"karpenter_{name}", Kind.SUMMARY, tuple(labels.split()), help_)


_DISRUPTED = "reason nodepool capacity_type consolidation_policy termination_mode"
_NODE = " ".join(("node_name", "phase", "managed", *NODE_LABELS))
_DECISION = "decision reason consolidation_type"

_SCHEDULING = (
    _histogram("scheduler_scheduling_duration_seconds", "controller", "Time of a scheduling pass, and of its solving alone."),
    _gauge("scheduler_queue_depth", "controller scheduling_id", "Pods that the running pass has still to place."),
    _gauge("scheduler_unfinished_work_seconds", "controller scheduling_id", "How long the running pass has taken so far."),
    _gauge("scheduler_ignored_pods_count", "", "Pods left out of the last pass because they cannot be read."),
    _gauge("scheduler_unschedulable_pods_count", "controller", "Pods that the last pass found no place for."),
    Metric("kubewright_plan_cost_usd_per_hour", Kind.GAUGE, (), "What the last pass that bought machines buys, an hour."),
    Metric("kubewright_plan_bound_usd_per_hour", Kind.GAUGE, (), "What any plan for the same pods costs at least; 0: not known."),
    Metric(
        "kubewright_unused_purchases_total",
        Kind.COUNTER,
        ("nodepool", "reason"),
        "Machines that no pod came to: never, elsewhere, or gone, by what became of the pods.",
    ),
    Metric(
        "kubewright_capped_purchases_total", Kind.COUNTER, ("nodepool",), "Planned machines that a cap on spending kept back."
    ),
    Metric("kubewright_plan_gap_ratio", Kind.GAUGE, (), "Share by which that cost may lie above the least possible."),
    Metric("kubewright_plan_first_fit_usd_per_hour", Kind.GAUGE, (), "What first fit would have cost in that pass."),
    Metric(
        "kubewright_event_loop_longest_block_seconds", Kind.GAUGE, (), "Longest time in which the event loop did not come round."
    ),
    Metric("kubewright_shadow_nodes", Kind.GAUGE, ("by", "what"), "In shadow: nodes that would have been, and that were."),
    Metric("kubewright_shadow_usd_per_hour", Kind.GAUGE, ("by", "what"), "In shadow: what these nodes cost together, an hour."),
    _gauge("scheduler_pending_pods_by_effective_zone_count", "controller zone", "Pending pods by the zone they must go to."),
)

_NODECLAIMS = (
    _counter("nodeclaims_created_total", "reason nodepool min_values_relaxed", "NodeClaims created."),
    _counter("nodeclaims_terminated_total", "nodepool capacity_type zone", "NodeClaims terminated."),
    _counter("nodeclaims_disrupted_total", _DISRUPTED, "NodeClaims whose disruption began."),
    _counter("pods_disruption_initiated_total", _DISRUPTED, "Pods on nodes whose disruption began."),
    _histogram(
        "nodeclaims_instance_termination_duration_seconds",
        "nodepool",
        "From the request to terminate the instance to its end.",
        _powers_of_two(11),
    ),
    _histogram(
        "nodeclaims_termination_duration_seconds", "nodepool", "From the deletion of a NodeClaim to its end.", _powers_of_two(12)
    ),
    _counter(
        "nodeclaims_unhealthy_disrupted_total",
        "condition nodepool capacity_type image_id",
        "NodeClaims disrupted because their node was unhealthy.",
    ),
)

_NODES = (
    _counter("nodes_created_total", "nodepool zone", "Nodes that joined."),
    _counter("nodes_terminated_total", "nodepool zone", "Nodes terminated."),
    _summary("nodes_termination_duration_seconds", "nodepool", "From the deletion of a node to its end."),
    _counter("nodes_drained_total", "nodepool", "Nodes drained."),
    _histogram("nodes_lifetime_duration_seconds", "nodepool", "From the creation of a node to its end.", LIFETIME_BUCKETS),
    *(
        _gauge(f"nodes_{what}", f"resource_type {_NODE}", text, wide=True)
        for what, text in (
            ("allocatable", "What a node has for pods."),
            ("total_pod_requests", "Requests of the pods on a node that are no daemons."),
            ("total_pod_limits", "Limits of the pods on a node that are no daemons."),
            ("total_daemon_requests", "Requests of the daemons on a node."),
            ("total_daemon_limits", "Limits of the daemons on a node."),
            ("system_overhead", "Capacity less allocatable."),
        )
    ),
    _gauge("nodes_current_lifetime_seconds", _NODE, "Age of a node.", wide=True),
    _gauge("cluster_utilization_percent", "resource_type", "Requests as a share of allocatable, over all nodes."),
)

_NODEPOOLS = (
    _gauge("nodepools_limit", "resource_type nodepool", "Limits of a NodePool."),
    _gauge("nodepools_usage", "resource_type nodepool", "Capacity that a NodePool has now."),
    _gauge("nodepools_cost_total", "nodepool", "Price of a NodePool's nodes, in dollars an hour."),
    _counter("nodepools_cost_tracker_errors_total", "nodepool", "Nodes whose price was not found."),
    _gauge("nodepools_allowed_disruptions", "nodepool reason", "Nodes that the budgets let go now."),
    _gauge("nodepools_nodes_consuming_budgets", "nodepool reason", "Nodes that count against the budgets now."),
)

_PODS = (
    _gauge(
        "pods_state",
        "name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed",
        "One for each pod, with where it is and how it does.",
        wide=True,
    ),
    _summary("pods_startup_duration_seconds", "", "From the creation of a pod to its running."),
    _histogram("pods_bound_duration_seconds", "", "From the creation of a pod to its binding."),
    _histogram("pods_provisioning_bound_duration_seconds", "", "From our first sight of a pod to its binding."),
    _histogram("pods_provisioning_startup_duration_seconds", "", "From our first sight of a pod to its running."),
    _histogram("pods_scheduling_decision_duration_seconds", "", "From our first sight of a pod to a decision about it."),
    *(
        _gauge(f"pods_{what}", "name namespace", text, wide=True)
        for what, text in (
            ("unstarted_time_seconds", "Age of a pod that does not run yet."),
            ("unbound_time_seconds", "Age of a pod that is not bound yet."),
            ("provisioning_unbound_time_seconds", "Since our first sight of a pod that is not bound yet."),
            ("provisioning_unstarted_time_seconds", "Since our first sight of a pod that does not run yet."),
            ("provisioning_scheduling_undecided_time_seconds", "Since our first sight of a pod that is not decided on yet."),
        )
    ),
    _counter("pods_eviction_requests_total", "code", "Evictions asked for, by the answer's HTTP code."),
    _counter("pods_drained_total", "reason", "Pods drained."),
)

_DISRUPTION = (
    _histogram(
        "voluntary_disruption_decision_evaluation_duration_seconds", "reason consolidation_type", "Time of looking for a command."
    ),
    _counter("voluntary_disruption_decisions_total", _DECISION, "Commands decided on."),
    _counter("voluntary_disruption_decisions_by_nodepool_total", f"nodepool {_DECISION}", "Commands decided on, by NodePool."),
    _gauge("voluntary_disruption_eligible_nodes", "reason", "Nodes that may be disrupted."),
    _counter("voluntary_disruption_consolidation_timeouts_total", "consolidation_type", "Searches that ran out of time."),
    _counter("voluntary_disruption_failed_validations_total", "consolidation_type", "Commands that did not hold a second look."),
    _counter("voluntary_disruption_queue_failures_total", _DECISION, "Commands that failed while carried out."),
    _histogram("consolidation_score", "decision nodepool policy", "Scores of consolidations weighed.", SCORE_BUCKETS),
    _counter("consolidation_moves_total", "decision nodepool policy", "Consolidations weighed."),
)

_STATE = (
    _gauge("cluster_state_node_count", "", "Nodes in the mirror."),
    _gauge("cluster_state_synced", "", "1 if the mirror knows what the API server has, else 0."),
    _gauge("cluster_state_unsynced_time_seconds", "", "How long the mirror has not been synced."),
    _gauge("build_info", "version goversion goarch commit", "Always 1; the labels say what runs."),
)

_CLOUD = (
    _histogram("cloudprovider_duration_seconds", "controller method provider", "Time of a call of the cloud provider."),
    _counter("cloudprovider_errors_total", "controller method provider error", "Calls of the cloud provider that failed."),
    _gauge("cloudprovider_instance_type_cpu_cores", "instance_type", "Cores of an instance type."),
    _gauge("cloudprovider_instance_type_memory_bytes", "instance_type", "Memory of an instance type."),
    _gauge(
        "cloudprovider_instance_type_offering_available",
        "instance_type capacity_type zone",
        "1 if it can be bought, else 0.",
        wide=True,
    ),
    _gauge(
        "cloudprovider_instance_type_offering_price_estimate",
        "instance_type capacity_type zone",
        "Price in dollars an hour.",
        wide=True,
    ),
    _counter("cloudprovider_instance_launch_failures_total", "zone zone_id capacity_type reason", "Errors of fleets."),
    _counter("cloudprovider_instance_termination_failures_total", "zone zone_id", "Terminations that failed."),
    _histogram("cloudprovider_batcher_batch_time_seconds", "batcher", "How long a batch was gathered."),
    _histogram("cloudprovider_batcher_batch_size", "batcher", "Requests in a batch.", SIZE_BUCKETS),
    _counter("interruption_received_messages_total", "message_type", "Interruption messages received."),
    _counter("interruption_deleted_messages_total", "", "Interruption messages deleted."),
    _histogram("interruption_message_queue_duration_seconds", "", "Age of a message when it was handled."),
    _counter("interruption_instance_status_unhealthy_total", "category", "Instances found impaired."),
    _gauge("ec2nodeclasses_userdata_bytes", "nodeclass", "Size of the user data."),
)


def _conditions(kind: str) -> tuple[Metric, ...]:
    """What the reference's operator library publishes for a kind; "" for the deprecated names that carry the kind as labels."""
    prefix = f"operator_{kind}_" if kind else "operator_"
    kinds = () if kind else ("group", "kind")
    return (
        Metric(
            f"{prefix}status_condition_transition_seconds",
            Kind.HISTOGRAM,
            (*kinds, "type", "status"),
            "How long a condition kept its status.",
            OPERATOR_BUCKETS,
        ),
        Metric(
            f"{prefix}status_condition_count",
            Kind.GAUGE,
            (*kinds, "namespace", "name", "type", "status", "reason"),
            "1 for each condition of each object.",
            wide=True,
        ),
        Metric(
            f"{prefix}status_condition_current_status_seconds",
            Kind.GAUGE,
            (*kinds, "namespace", "name", "type", "status", "reason"),
            "How long a condition has had its status.",
            wide=True,
        ),
        Metric(
            f"{prefix}status_condition_transitions_total",
            Kind.COUNTER,
            (*kinds, "type", "status", "reason"),
            "Changes of a condition's status.",
        ),
        Metric(
            f"{prefix}termination_current_time_seconds",
            Kind.GAUGE,
            (*kinds, "namespace", "name"),
            "How long an object has been in deletion.",
            wide=True,
        ),
        Metric(
            f"{prefix}termination_duration_seconds",
            Kind.HISTOGRAM,
            kinds,
            "From deletion to the end of an object.",
            OPERATOR_BUCKETS,
        ),
    )


_OPERATOR = tuple(
    m for kind in ("nodeclaim", "nodepool", "node", "capacitybuffer", "ec2nodeclass", "") for m in _conditions(kind)
)

_RUNTIME = (
    Metric("controller_runtime_reconcile_total", Kind.COUNTER, ("controller", "result"), "Reconciles by result."),
    Metric("controller_runtime_reconcile_errors_total", Kind.COUNTER, ("controller",), "Reconciles that failed."),
    Metric(
        "controller_runtime_reconcile_time_seconds", Kind.HISTOGRAM, ("controller",), "Time of a reconcile.", DURATION_BUCKETS
    ),
    Metric("controller_runtime_max_concurrent_reconciles", Kind.GAUGE, ("controller",), "Reconciles allowed at a time."),
    Metric("controller_runtime_active_workers", Kind.GAUGE, ("controller",), "Reconciles running now."),
    Metric("workqueue_depth", Kind.GAUGE, ("name", "controller"), "Keys that wait."),
    Metric("workqueue_adds_total", Kind.COUNTER, ("name", "controller"), "Keys that began to wait."),
    Metric("workqueue_retries_total", Kind.COUNTER, ("name", "controller"), "Keys put back after a failure."),
    Metric(
        "workqueue_queue_duration_seconds", Kind.HISTOGRAM, ("name", "controller"), "How long a key waited.", DURATION_BUCKETS
    ),
    Metric(
        "workqueue_work_duration_seconds",
        Kind.HISTOGRAM,
        ("name", "controller"),
        "How long a key was worked on.",
        DURATION_BUCKETS,
    ),
    Metric("workqueue_unfinished_work_seconds", Kind.GAUGE, ("name", "controller"), "Sum of the work under way."),
    Metric("workqueue_longest_running_processor_seconds", Kind.GAUGE, ("name", "controller"), "The longest work under way."),
    Metric("client_go_request_total", Kind.COUNTER, ("code", "method"), "Requests to the API server by answer."),
    Metric(
        "client_go_request_duration_seconds",
        Kind.HISTOGRAM,
        ("verb", "group", "version", "kind", "subresource"),
        "Time of a request to the API server.",
        DURATION_BUCKETS,
    ),
    Metric("leader_election_master_status", Kind.GAUGE, ("name",), "1 if this process leads."),
    Metric("aws_sdk_go_request_total", Kind.COUNTER, ("service", "action", "status_code"), "Requests to AWS by answer."),
    Metric("aws_sdk_go_request_retry_count", Kind.HISTOGRAM, ("service", "action"), "Retries of a request.", SIZE_BUCKETS),
    Metric("aws_sdk_go_request_duration_seconds", Kind.HISTOGRAM, ("service", "action"), "Time of a request.", DURATION_BUCKETS),
    Metric("aws_sdk_go_request_attempt_total", Kind.COUNTER, ("service", "action", "status_code"), "Attempts by answer."),
    Metric(
        "aws_sdk_go_request_attempt_duration_seconds",
        Kind.HISTOGRAM,
        ("service", "action", "status_code"),
        "Time of an attempt.",
        DURATION_BUCKETS,
    ),
)

TABLE: tuple[Metric, ...] = (
    *_SCHEDULING,
    *_NODECLAIMS,
    *_NODES,
    *_NODEPOOLS,
    *_PODS,
    *_DISRUPTION,
    *_STATE,
    *_CLOUD,
    *_OPERATOR,
    *_RUNTIME,
)


def for_provider(node_labels: tuple[str, ...], table: tuple[Metric, ...] = TABLE) -> tuple[Metric, ...]:
    """The table with a provider's own well-known labels (snake case) on the per-node metrics."""
    return tuple(
        msgspec.structs.replace(metric, labels=(*metric.labels, *(n for n in node_labels if n not in metric.labels)))
        if metric.wide and "node_name" in metric.labels
        else metric
        for metric in table
    )
