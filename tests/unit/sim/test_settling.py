"""Whatever people and machines do to it, a cluster with room settles: everything wanted runs, and nobody writes any more."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.errors import KubeError
from kubewright.sim import loop
from kubewright.sim.apiserver.store import Store
from kubewright.sim.cluster import PretendCluster
from tests.unit.sim.builders import budget, job, names, node, nodes_of, play, pods, ready, workload

KINDS = {"web": "Deployment", "db": "StatefulSet", "agent": "DaemonSet"}
Act = tuple[str, int]

ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "scale web",
                "scale db",
                "roll web",
                "roll db",
                "roll agent",
                "delete pod",
                "evict pod",
                "kill node",
                "revive node",
                "remove node",
                "add node",
                "cordon",
                "uncordon",
                "wait",
            ]
        ),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=10,
)


def act(store: Store, cluster: PretendCluster, what: str, number: int) -> None:
    """Do one thing; what cannot be done (any more) is refused by the server, as it should be."""
    verb, _, about = what.partition(" ")
    there = names(store.list("v1", "Node")[0]) or ["none"]
    picked = pods(store)[number % len(pods(store))]["metadata"]["name"] if pods(store) else "none"
    patch = store.patch
    todo: dict[str, Callable[[], Any]] = {
        "scale": lambda: patch("apps/v1", KINDS[about], "default", about, {"spec": {"replicas": number}}),
        "roll": lambda: patch(
            "apps/v1",
            KINDS[about],
            "default",
            about,
            {"spec": {"template": {"metadata": {"annotations": {"v": str(number)}}}}},
        ),
        "delete": lambda: store.delete("v1", "Pod", "default", picked),
        "evict": lambda: store.evict("default", picked),
        "kill": lambda: cluster.kill_node(there[number % len(there)]),
        "revive": lambda: cluster.revive_node(there[number % len(there)]),
        "remove": lambda: store.delete("v1", "Node", "", there[number % len(there)]),
        "add": lambda: store.create(node(f"extra{number}", cpu="32", ready=False)),
        "cordon": lambda: patch("v1", "Node", "", there[number % len(there)], {"spec": {"unschedulable": True}}),
        "uncordon": lambda: patch("v1", "Node", "", there[number % len(there)], {"spec": {"unschedulable": None}}),
        "wait": lambda: None,
    }
    with suppress(KubeError):
        todo[verb]()


@settings(max_examples=60, deadline=None)
@given(ACTS)
def test_a_cluster_with_room_settles(acts: list[Act]) -> None:
    async def story(store: Store, cluster: PretendCluster) -> None:
        for name in ("n1", "n2", "n3"):
            store.create(node(name, cpu="32"))
        store.create(workload("Deployment", "web", replicas=4))
        store.create(workload("StatefulSet", "db", replicas=2))
        store.create(workload("DaemonSet", "agent", replicas=None))
        store.create(budget("web", maxUnavailable=1))
        store.create(job("batch", parallelism=2, completions=3, backoffLimit=100))
        time_s = 5.0
        for what, number in acts:
            await loop.at(time_s)
            act(store, cluster, what, number)
            time_s += (0.5, 3.0, 70.0)[number % 3]
        await loop.at(time_s)
        # At last a machine that lives, and the dead ones are taken away, as an autoscaler would.
        store.create(node("sound", cpu="64"))
        for obj in store.list("v1", "Node")[0]:
            if not cluster.kubelets.is_alive(obj["metadata"]["name"]):
                store.delete("v1", "Node", "", obj["metadata"]["name"])
        await loop.at(time_s + 1500)
        check(store)
        version = store.version
        await loop.at(time_s + 4000)
        assert store.version == version, "somebody still writes"

    play(story)


def check(store: Store) -> None:
    web, db = (store.get("apps/v1", kind, "default", name) for name, kind in list(KINDS.items())[:2])
    wanted = web["spec"]["replicas"]
    assert len(ready(store, "web")) == len(pods(store, "web")) == wanted
    assert web["status"].get("updatedReplicas", 0) == web["status"].get("availableReplicas", 0) == wanted
    hashes = {p["metadata"]["labels"]["pod-template-hash"] for p in pods(store, "web")}
    assert len(hashes) == (1 if wanted else 0)
    assert names(ready(store, "db")) == names(pods(store, "db")) == [f"db-{i}" for i in range(db["spec"]["replicas"])]
    assert db["status"]["currentRevision"] == db["status"]["updateRevision"]
    agents = ready(store, "agent")
    assert nodes_of(agents) == names(store.list("v1", "Node")[0])
    assert len(pods(store, "agent")) == len(agents)
    done = store.get("batch/v1", "Job", "default", "batch")
    assert done["status"]["succeeded"] == 3
    assert {p["metadata"]["labels"].get("job-name") for p in pods(store)} <= {None, "batch"}
    status = store.get("policy/v1", "PodDisruptionBudget", "default", "web")["status"]
    assert (status["currentHealthy"], status["expectedPods"]) == (wanted, wanted)
    for obj in store.list("v1", "Node")[0]:
        keys = {t["key"] for t in obj["spec"].get("taints", ())}
        assert keys == ({"node.kubernetes.io/unschedulable"} if obj["spec"].get("unschedulable") else set())
