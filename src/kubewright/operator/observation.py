"""Metrics that nobody has to count: what the mirror holds when somebody scrapes, and what its changes tell.

What would be very many series is made while it is sent (`operator.series`); nothing here writes to the cluster.
"""

import asyncio
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from kubewright import VERSION
from kubewright.api.meta import Condition, Object, find_condition
from kubewright.clock import Clock
from kubewright.cloud.provider import CloudProvider
from kubewright.controllers.podtimes import PodTimes
from kubewright.disruption.candidates import prices
from kubewright.kube.informer import Informer
from kubewright.kube.instruments import ControllerMetrics
from kubewright.metrics import Registry
from kubewright.operator import series
from kubewright.solver.problem import Plan, Problem
from kubewright.state.mirror import Mirror

Decide = Callable[[Problem], Plan]

_PASSES = uuid.UUID("6ad0d1c5-9a5d-5c0f-8f6e-3b0c3f6f3a52")
PROVISIONER = "provisioner"


class Observation:
    """Hangs itself onto a mirror and a registry; call `before_scrape` each time before the registry is written out.

    Without `everything` only what is cheap is kept: no series for each pod, node or condition
    (--disable-cluster-state-observability).
    """

    def __init__(
        self,
        mirror: Mirror,
        provider: CloudProvider,
        clock: Clock,
        registry: Registry,
        pod_times: PodTimes,
        *,
        everything: bool = True,
    ) -> None:
        self._mirror = mirror
        self._clock = clock
        self._registry = registry
        self._pod_times = pod_times
        self._everything = everything
        self._nodes = series.Nodes(sorted(provider.well_known_labels))
        self._controllers: list[ControllerMetrics] = []
        self._passes: dict[str, tuple[datetime, int]] = {}
        """Scheduling passes under way: id → since when, and how many pods it has."""
        self._serial = 0
        self._unsynced_since: datetime | None = None
        self._unpriced: Mapping[str, str] = {}
        registry.widen(self._nodes.names)
        registry.set(
            "karpenter_build_info",
            1,
            version=VERSION,
            goversion=f"python{platform.python_version()}",
            goarch=platform.machine(),
            commit="",
        )
        if everything:
            self._derive()

    def listen(self, controller: ControllerMetrics) -> None:
        """Bring a controller's gauges of work under way up to date at each scrape."""
        self._controllers.append(controller)

    def noting(self, decide: Decide) -> Decide:
        """`decide`, with its passes seen from here. It may run in a thread."""
        loop = asyncio.get_running_loop()

        def noted(problem: Problem) -> Plan:
            self._serial += 1
            key = str(uuid.uuid5(_PASSES, str(self._serial)))
            began = loop.time()
            self._passes[key] = (problem.now, len(problem.pods))
            try:
                return decide(problem)
            finally:
                took = timedelta(seconds=loop.time() - began)
                self._passes.pop(key, None)
                self._pod_times.passes.append((problem.now + took, tuple([pod.metadata.uid for pod in problem.pods])))

        return noted

    def before_scrape(self) -> None:
        """Bring gauges up to date that depend on the time, or that are added up."""
        now = self._clock.now()
        self._pod_times.catch_up()
        for controller in self._controllers:
            controller.tick()
        self._show_passes(now)
        self._show_sync(now)
        snapshot = self._mirror.snapshot(now)
        if self._everything:
            self._nodes.update(snapshot.nodes)
            for resource, percent in self._nodes.utilization().items():
                self._registry.set("karpenter_cluster_utilization_percent", percent, resource_type=resource)
        cost, unpriced = series.usd_per_hour(prices(snapshot.nodes, snapshot.pools))
        for pool in self._mirror.node_pools.objects:
            self._registry.set("karpenter_nodepools_cost_total", cost.get(pool, 0.0), nodepool=pool)
        for uid in unpriced.keys() - self._unpriced.keys():
            self._registry.inc("karpenter_nodepools_cost_tracker_errors_total", nodepool=unpriced[uid])
        self._unpriced = unpriced

    def _show_passes(self, now: datetime) -> None:
        for name in ("karpenter_scheduler_queue_depth", "karpenter_scheduler_unfinished_work_seconds"):
            self._registry.remove(name, controller=PROVISIONER)
        for key, (since, count) in list(self._passes.items()):
            labelled = {"controller": PROVISIONER, "scheduling_id": key}
            self._registry.set("karpenter_scheduler_queue_depth", count, **labelled)
            self._registry.set("karpenter_scheduler_unfinished_work_seconds", (now - since).total_seconds(), **labelled)

    def _show_sync(self, now: datetime) -> None:
        synced = all(i.synced for i in self._mirror.informers) and not self._mirror.unlaunched(now)
        self._unsynced_since = None if synced else self._unsynced_since or now
        unsynced = timedelta() if self._unsynced_since is None else now - self._unsynced_since
        self._registry.set("karpenter_cluster_state_synced", int(synced))
        self._registry.set("karpenter_cluster_state_unsynced_time_seconds", unsynced.total_seconds())

    # --- one series for each ---------------------------------------------------------------------------------------------

    def _derive(self) -> None:
        mirror, derive, now = self._mirror, self._registry.derive, self._clock.now
        for kind in series.KINDS:
            derive(f"karpenter_nodes_{kind}", partial(self._nodes.amounts, kind))
        derive("karpenter_nodes_current_lifetime_seconds", lambda: self._nodes.lifetimes(now()))
        derive("karpenter_pods_state", lambda: series.pod_states(list(mirror.pods.objects.values()), mirror.nodes.objects))
        waiting = (
            "pods_unstarted_time_seconds",
            "pods_unbound_time_seconds",
            "pods_provisioning_unbound_time_seconds",
            "pods_provisioning_unstarted_time_seconds",
            "pods_provisioning_scheduling_undecided_time_seconds",
        )
        for name in waiting:
            derive(f"karpenter_{name}", partial(self._waiting, name))
        kinds: dict[str, Informer[Any]] = {"nodeclaim": mirror.node_claims, "nodepool": mirror.node_pools, "node": mirror.nodes}
        kinds |= {kind.lower(): informer for (_, kind), informer in mirror.node_classes.items()}
        if mirror.buffers is not None:
            kinds |= {i.kind.RESOURCE.kind.lower(): i for i in mirror.buffers.informers}
        for kind, informer in kinds.items():
            if not self._registry.has(f"operator_{kind}_status_condition_count"):
                continue  # a kind that the table does not know: a third party's NodeClass
            informer.subscribe(partial(self._changed, kind))
            self._derive_conditions(f"operator_{kind}", partial(_all, informer))

    def _derive_conditions(self, prefix: str, objects: Callable[[], list[Object]]) -> None:
        derive, now = self._registry.derive, self._clock.now
        derive(f"{prefix}_status_condition_count", lambda: series.condition_counts(objects()))
        derive(f"{prefix}_status_condition_current_status_seconds", lambda: series.condition_ages(objects(), now()))
        derive(f"{prefix}_termination_current_time_seconds", lambda: series.deletion_ages(objects(), now()))

    def _waiting(self, name: str) -> Iterator[series.Series]:
        pods = list(self._mirror.pods.objects.values())
        yield from series.waiting_pods(pods, self._pod_times.seen, self._pod_times.answered, self._clock.now())[name]

    def _changed(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            deleted = old.metadata.deletion_timestamp
            if deleted is not None:
                took = (self._clock.now() - deleted).total_seconds()
                self._registry.observe(f"operator_{kind}_termination_duration_seconds", took)
            return
        if old is None:
            return
        before = series.conditions_of(old)
        if before is series.conditions_of(new):
            return
        for one in series.conditions_of(new):
            was = find_condition(before, one.type)
            if was is not None and was.status != one.status:
                self._moved(kind, was, one)

    def _moved(self, kind: str, was: Condition, now: Condition) -> None:
        self._registry.inc(
            f"operator_{kind}_status_condition_transitions_total", type=now.type, status=now.status, reason=now.reason
        )
        if was.last_transition_time is not None and now.last_transition_time is not None:
            took = (now.last_transition_time - was.last_transition_time).total_seconds()
            self._registry.observe(f"operator_{kind}_status_condition_transition_seconds", took, type=was.type, status=was.status)


def _all(informer: Informer[Any]) -> list[Object]:
    return list(informer.objects.values())
