"""What a user of the pretend cluster sees, told from the outside."""

import pytest

from kubewright.errors import NotFound, TooManyRequests
from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.unit.sim.builders import (
    Item,
    budget,
    job,
    names,
    node,
    nodes_of,
    play,
    pod,
    pods,
    ready,
    workload,
)


async def three_nodes(store: Store) -> None:
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "c")):
        store.create(node(name, zone=zone))
    await loop.until(lambda: not any("taints" in n["spec"] for n in store.list("v1", "Node")[0]), within_s=1)


def test_a_deployment_of_ten_stands_on_three_nodes() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment", replicas=10))
        await loop.until(lambda: len(ready(store)) == 10, within_s=10, what="ten ready pods")
        assert {nodes_of(pods(store)).count(n) for n in ("n1", "n2", "n3")} == {3, 4}
        status = store.get("apps/v1", "Deployment", "default", "web")["status"]
        assert (status["replicas"], status["availableReplicas"], status["updatedReplicas"]) == (10, 10, 10)
        reasons = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
        assert reasons == {
            "Available": ("True", "MinimumReplicasAvailable"),
            "Progressing": ("True", "NewReplicaSetAvailable"),
        }

    play(story)


def test_a_rollout_keeps_within_its_limits_and_ends_with_new_pods_only() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        limits = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}, "type": "RollingUpdate"}
        store.create(workload("Deployment", replicas=10, strategy=limits))
        await loop.until(lambda: len(ready(store)) == 10, within_s=10)
        old = set(names(pods(store)))
        image = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        store.patch("apps/v1", "Deployment", "default", "web", image)

        def rolled() -> bool:
            living = [p for p in pods(store) if "deletionTimestamp" not in p["metadata"]]
            assert len(living) <= 12
            assert len(ready(store)) >= 9
            return len(ready(store)) == 10 and not old & set(names(pods(store)))

        await loop.until(rolled, within_s=60, what="only new pods")
        sets, _ = store.list("apps/v1", "ReplicaSet")
        assert sorted(s["spec"]["replicas"] for s in sets) == [0, 10]
        assert {s["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for s in sets} == {"1", "2"}

    play(story)


def test_going_back_reuses_the_old_replica_set() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment", replicas=2))
        await loop.until(lambda: len(ready(store)) == 2, within_s=10)
        for value in ("2", None):
            body = {"spec": {"template": {"metadata": {"annotations": {"version": value}}}}}
            store.patch("apps/v1", "Deployment", "default", "web", body)
            await loop.until(lambda: len(pods(store)) == 2 and len(ready(store)) == 2, within_s=60)
            await loop.at(loop.asyncio.get_running_loop().time() + 20)
        sets, _ = store.list("apps/v1", "ReplicaSet")
        revisions = {s["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: s["spec"]["replicas"] for s in sets}
        assert revisions == {"2": 0, "3": 2}

    play(story)


def test_recreate_starts_the_new_only_after_the_last_of_the_old() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment", strategy={"type": "Recreate"}))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        old = set(names(pods(store)))
        body = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        store.patch("apps/v1", "Deployment", "default", "web", body)

        def replaced() -> bool:
            there = set(names(pods(store)))
            assert not (there & old and there - old)
            return len(ready(store)) == 3 and not there & old

        await loop.until(replaced, within_s=30, every_s=0.05)

    play(story)


def test_scaling_down_takes_pods_that_never_started_first() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1", cpu="2"))
        store.create(workload("Deployment", replicas=6))
        await loop.until(lambda: len(ready(store)) == 4, within_s=10)
        running = names(ready(store))
        store.patch("apps/v1", "Deployment", "default", "web", {"spec": {"replicas": 4}})
        await loop.until(lambda: len(pods(store)) == 4, within_s=10)
        assert names(pods(store)) == running

    play(story)


def test_a_deleted_deployment_takes_its_replica_sets_and_pods_along() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment"))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        store.delete("apps/v1", "Deployment", "default", "web", propagation="Foreground")
        kept = store.get("apps/v1", "Deployment", "default", "web")
        assert "foregroundDeletion" in kept["metadata"]["finalizers"]
        await loop.until(lambda: not pods(store), within_s=10)
        await loop.until(lambda: not store.list("apps/v1", "Deployment")[0], within_s=10)
        assert store.list("apps/v1", "ReplicaSet")[0] == []

    play(story)


def test_orphaned_pods_stay_and_are_adopted_again() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("ReplicaSet"))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        before = names(pods(store))
        store.delete("apps/v1", "ReplicaSet", "default", "web", propagation="Orphan")
        await loop.until(lambda: not store.list("apps/v1", "ReplicaSet")[0], within_s=10)
        assert all("ownerReferences" not in p["metadata"] for p in pods(store))
        made = store.create(workload("ReplicaSet"))
        await loop.until(lambda: all("ownerReferences" in p["metadata"] for p in pods(store)), within_s=10)
        assert names(pods(store)) == before
        assert {p["metadata"]["ownerReferences"][0]["uid"] for p in pods(store)} == {made["metadata"]["uid"]}

    play(story)


def test_a_drain_waits_for_what_the_budget_allows() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment", replicas=4))
        store.create(budget(minAvailable="75%"))
        await loop.until(lambda: len(ready(store)) == 4, within_s=10)
        await loop.until(lambda: _allowed(store) == 1, within_s=5)
        first, second = names(pods(store))[:2]
        store.evict("default", first)
        with pytest.raises(TooManyRequests):
            store.evict("default", second)
        await loop.until(lambda: len(ready(store)) == 4 and _allowed(store) == 1, within_s=30)
        store.evict("default", second)
        assert first not in names(pods(store))

    play(story)


def _allowed(store: Store) -> int:
    status: Item = store.get("policy/v1", "PodDisruptionBudget", "default", "web").get("status", {})
    return int(status.get("disruptionsAllowed", 0))


@pytest.mark.parametrize(
    ("replicas", "spec", "allowed", "desired"),
    [
        (10, {"minAvailable": 8}, 2, 8),
        (10, {"minAvailable": "75%"}, 2, 8),
        (10, {"maxUnavailable": "25%"}, 3, 7),
        (10, {"maxUnavailable": 0}, 0, 10),
        (3, {"maxUnavailable": "1%"}, 1, 2),
        (1, {"minAvailable": "1%"}, 0, 1),
        (10, {}, 10, 0),
    ],
)
def test_a_budget_counts_as_the_disruption_controller_does(replicas: int, spec: Item, allowed: int, desired: int) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment", replicas=replicas))
        store.create(budget(**spec))
        await loop.at(10)
        status = store.get("policy/v1", "PodDisruptionBudget", "default", "web")["status"]
        shown = {k: status[k] for k in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")}
        assert shown == {
            "disruptionsAllowed": allowed,
            "currentHealthy": replicas,
            "desiredHealthy": desired,
            "expectedPods": replicas,
        }

    play(story)


def test_a_budget_over_pods_without_a_scale_allows_nothing_by_percentage() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(pod("lonely", labels={"app": "web"}))
        store.create(budget(maxUnavailable=1))
        await loop.at(10)
        status = store.get("policy/v1", "PodDisruptionBudget", "default", "web")["status"]
        assert status["disruptionsAllowed"] == 0
        assert status["conditions"][0]["reason"] == "SyncFailed"

    play(story)


def test_a_job_runs_its_pods_a_few_at_a_time_and_completes() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(job(parallelism=3, completions=7, annotations={"kubewright.sh/sim-duration": "1m"}))
        await loop.at(30)
        assert len(ready(store)) == 3
        await loop.until(lambda: _is_over(store, "Complete"), within_s=300, what="the job's end")
        status = store.get("batch/v1", "Job", "default", "batch")["status"]
        assert (status["succeeded"], status.get("failed", 0), status.get("active", 0)) == (7, 0, 0)
        # seven pods of a minute, three at a time: three rounds
        assert 180 <= loop.asyncio.get_running_loop().time() < 200
        assert {p["status"]["phase"] for p in pods(store)} == {"Succeeded"}
        assert all("finalizers" not in p["metadata"] for p in pods(store))

    play(story)


def test_a_job_that_fails_backs_off_and_gives_up() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        told = {"kubewright.sh/sim-duration": "5s", "kubewright.sh/sim-exit-code": "3"}
        store.create(job(backoffLimit=2, annotations=told))
        await loop.until(lambda: _is_over(store, "Failed"), within_s=300)
        status = store.get("batch/v1", "Job", "default", "batch")["status"]
        assert status["failed"] == 3
        assert {c["type"]: c["reason"] for c in status["conditions"]} == {
            "FailureTarget": "BackoffLimitExceeded",
            "Failed": "BackoffLimitExceeded",
        }
        # three pods of 2 s start and 5 s run, with 10 s and 20 s between them
        assert loop.asyncio.get_running_loop().time() == pytest.approx(3 * 7 + 10 + 20, abs=2)

    play(story)


def test_an_indexed_job_runs_every_index_once_and_a_ttl_removes_it() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(job(completions=4, parallelism=2, completionMode="Indexed", ttlSecondsAfterFinished=60, annotations={}))
        await loop.until(lambda: _is_over(store, "Complete"), within_s=300)
        assert store.get("batch/v1", "Job", "default", "batch")["status"]["completedIndexes"] == "0-3"
        await loop.until(lambda: not store.list("batch/v1", "Job")[0], within_s=70)
        await loop.until(lambda: not pods(store), within_s=10)

    play(story)


def test_an_evicted_pod_of_a_job_is_made_again() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(job(annotations={"kubewright.sh/sim-duration": "10m"}))
        await loop.until(lambda: len(ready(store)) == 1, within_s=10)
        [first] = names(pods(store))
        store.evict("default", first)
        await loop.until(lambda: len(ready(store)) == 1 and first not in names(pods(store)), within_s=60)
        assert store.get("batch/v1", "Job", "default", "batch")["status"]["failed"] == 1

    play(story)


def _is_over(store: Store, kind: str) -> bool:
    conditions = store.get("batch/v1", "Job", "default", "batch").get("status", {}).get("conditions", ())
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def test_a_stateful_set_starts_in_order_and_stops_in_reverse() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("StatefulSet", "db", replicas=3))
        seen: list[str] = []

        def note() -> bool:
            for name in names(pods(store)):
                if name not in seen:
                    assert len(ready(store)) == len(seen)
                    seen.append(name)
            return len(ready(store)) == 3

        await loop.until(note, within_s=60)
        assert seen == ["db-0", "db-1", "db-2"]
        store.patch("apps/v1", "StatefulSet", "default", "db", {"spec": {"replicas": 1}})
        left: list[list[str]] = []

        def shrunk() -> bool:
            if not left or left[-1] != names(pods(store)):
                left.append(names(pods(store)))
            return names(pods(store)) == ["db-0"]

        await loop.until(shrunk, within_s=60)
        assert left == [["db-0", "db-1", "db-2"], ["db-0", "db-1"], ["db-0"]]

    play(story)


def test_a_stateful_set_is_updated_from_its_last_pod_down_to_the_partition() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        kept = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        store.create(workload("StatefulSet", "db", replicas=3, updateStrategy=kept))
        await loop.until(lambda: len(ready(store)) == 3, within_s=60)
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(store)}
        body = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        store.patch("apps/v1", "StatefulSet", "default", "db", body)
        await loop.at(60)
        changed = {n for n, uid in ((p["metadata"]["name"], p["metadata"]["uid"]) for p in pods(store)) if before[n] != uid}
        assert changed == {"db-1", "db-2"}
        store.delete("v1", "Pod", "default", "db-0")
        await loop.at(90)
        assert "version" not in store.get("v1", "Pod", "default", "db-0")["metadata"].get("annotations", {})

    play(story)


def test_a_daemon_set_stands_on_every_node_it_tolerates_also_on_later_ones() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create(node("gpu", taints=[{"key": "gpu", "effect": "NoSchedule"}]))
        store.create(workload("DaemonSet", "agent", replicas=None))
        store.create(workload("DaemonSet", "everywhere", replicas=None, pods={"tolerations": [{"operator": "Exists"}]}))
        await loop.until(lambda: len(ready(store)) == 7, within_s=10)
        assert nodes_of(pods(store, "agent")) == ["n1", "n2", "n3"]
        assert nodes_of(pods(store, "everywhere")) == ["gpu", "n1", "n2", "n3"]
        store.create(node("late", ready=False))
        await loop.until(lambda: nodes_of(ready(store, "agent")) == ["late", "n1", "n2", "n3"], within_s=30)
        store.patch("v1", "Node", "", "n1", {"spec": {"unschedulable": True}})
        store.patch("v1", "Node", "", "n2", {"spec": {"taints": [{"key": "bad", "effect": "NoExecute"}]}})
        await loop.until(lambda: nodes_of(pods(store, "agent")) == ["late", "n1", "n3"], within_s=30)
        status = store.get("apps/v1", "DaemonSet", "default", "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)

    play(story)


@pytest.mark.parametrize("strategy", [{"maxUnavailable": 1}, {"maxSurge": 1, "maxUnavailable": 0}])
def test_a_daemon_set_is_updated_node_by_node(strategy: Item) -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        update = {"type": "RollingUpdate", "rollingUpdate": strategy}
        store.create(workload("DaemonSet", "agent", replicas=None, updateStrategy=update))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        old = set(names(pods(store)))
        body = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        store.patch("apps/v1", "DaemonSet", "default", "agent", body)

        def rolled() -> bool:
            assert len(ready(store)) >= 3 - strategy["maxUnavailable"]
            return len(ready(store)) == 3 and not old & set(names(pods(store)))

        await loop.until(rolled, within_s=60)

    play(story)


def test_a_node_that_falls_silent_loses_its_pods_and_they_run_elsewhere() -> None:
    async def story(store: Store, cluster: PretendCluster) -> None:
        await three_nodes(store)
        store.create(workload("Deployment"))
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        cluster.kill_node("n1")
        await loop.at(70)
        taints = {(t["key"], t["effect"]) for t in store.get("v1", "Node", "", "n1")["spec"]["taints"]}
        assert taints == {("node.kubernetes.io/unreachable", e) for e in ("NoSchedule", "NoExecute")}
        assert len(ready(store)) == 2
        # tolerated for 300 s, then deleted; the dead kubelet never confirms, so the pod stays until its node is gone
        await loop.until(lambda: len(ready(store)) == 3, within_s=310)
        assert len(pods(store)) == 4
        store.delete("v1", "Node", "", "n1")
        await loop.until(lambda: len(pods(store)) == 3, within_s=60)
        assert "n1" not in nodes_of(pods(store))

    play(story)


def test_a_new_node_keeps_pods_away_until_it_is_ready() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        store.create(node("n1", ready=False))
        store.create(pod())
        await loop.at(5)
        assert nodes_of(pods(store)) == [""]
        [condition] = store.get("v1", "Pod", "default", "p")["status"]["conditions"]
        assert (condition["reason"], condition["message"]) == (
            "Unschedulable",
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
        )
        await loop.until(lambda: len(ready(store)) == 1, within_s=15)
        assert "taints" not in store.get("v1", "Node", "", "n1")["spec"]

    play(story)


def test_a_terminating_pod_takes_its_time_but_not_more_than_its_grace() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        for name, grace_s in (("slow", 120), ("hasty", 5)):
            slow = pod(name, terminationGracePeriodSeconds=grace_s)
            slow["metadata"]["annotations"] = {"kubewright.sh/sim-stop-duration": "45s"}
            store.create(slow)
        await loop.at(10)
        for name in ("slow", "hasty"):
            store.delete("v1", "Pod", "default", name)
        await loop.at(14.9)
        assert names(pods(store)) == ["hasty", "slow"]
        await loop.at(15.1)
        assert names(pods(store)) == ["slow"]
        await loop.at(54.9)
        assert names(pods(store)) == ["slow"]
        await loop.at(55.1)
        assert pods(store) == []

    play(story)


def test_a_namespace_takes_everything_in_it_along() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        shop = workload("Deployment")
        shop["metadata"]["namespace"] = "shop"
        store.create(shop)
        await loop.until(lambda: len(ready(store)) == 3, within_s=10)
        store.delete("v1", "Namespace", "", "shop")
        await loop.until(lambda: not any(n["metadata"]["name"] == "shop" for n in store.list("v1", "Namespace")[0]), within_s=30)
        assert pods(store) == []
        with pytest.raises(NotFound):
            store.get("apps/v1", "Deployment", "shop", "web")

    play(story)


def test_a_controllers_own_fault_ends_the_block() -> None:
    async def story(store: Store, _: PretendCluster) -> None:
        await three_nodes(store)
        broken = pod("p", restartPolicy="Never")
        broken["metadata"]["annotations"] = {"kubewright.sh/sim-duration": "soon"}
        store.create(broken)
        await loop.at(100)
        raise AssertionError("the block should have been cancelled")

    with pytest.raises(ValueError, match=r"Pod default/p: annotation kubewright.sh/sim-duration: not a duration: 'soon'"):
        play(story)


def test_the_same_seed_gives_the_same_history() -> None:
    async def story(store: Store, cluster: PretendCluster) -> list[tuple[str, str, str]]:
        history: list[tuple[str, str, str]] = []
        store.on_written(lambda verb, kind, key: history.append((verb, kind.kind, key)))
        await three_nodes(store)
        store.create(workload("Deployment", replicas=12))
        store.create(workload("DaemonSet", "agent", replicas=None))
        store.create(job(parallelism=5, completions=9))
        await loop.at(60)
        cluster.kill_node("n2")
        store.patch("apps/v1", "Deployment", "default", "web", {"spec": {"replicas": 5}})
        await loop.at(600)
        return history

    first = play(story, seed=7)
    assert first == play(story, seed=7)
    assert first != play(story, seed=8)
