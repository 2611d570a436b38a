"""kill -9 of the operator, the API server and etcd at random moments under load, each started again.

    PYTHONPATH=src:. python -m tests.e2e.chaos 20       twenty runs, each with its own seed

Afterwards nothing has leaked (machines, NodeClaims and Nodes are the same set), no pod is left pending, and no budget was broken:
of the guarded pods never fewer were ready than their PodDisruptionBudget says, and never were more nodes given up at a time than
the NodePool's budget allows.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.test_operator import items, living
from tests.plane.kubewright import NODECLAIMS, NODECLASSES, NODEPOOLS, Kubewright, nodeclass, nodepool
from tests.plane.plane import Plane
from tests.plane.waiting import eventually
from tests.plane.wire import RequestRefused

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
VICTIMS = ("kubewright", "kube-apiserver", "etcd")
KILLS = 3
GUARDED, AT_LEAST = 6, 4
LOADS = (12, 2, 16, 20)
"""Pods of the second Deployment at first and before each kill: machines are emptied, then bought."""
SMALL = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["5"]}


class Outcome(NamedTuple):
    seed: int
    killed: list[str]
    least_ready: int
    most_going: int


class Watcher(threading.Thread):
    """Looks at what must never happen, as often as the API server answers."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self._over = threading.Event()
        self.least_ready = GUARDED
        self.going = 0
        self.most_going = 0

    def run(self) -> None:
        while not self._over.wait(0.2):
            try:
                there = ready(self._plane, "guarded")
                going = sum(1 for node in items(self._plane, NODES) if is_given_up(node))
            except (OSError, RequestRefused):
                continue  # it is being killed
            self.least_ready = min(self.least_ready, there)
            self.going, self.most_going = going, max(self.most_going, going)

    def end(self) -> None:
        self._over.set()
        self.join()


def is_given_up(node: Any) -> bool:
    tainted = any(taint["key"] == "karpenter.sh/disrupted" for taint in node["spec"].get("taints", ()))
    return tainted or "deletionTimestamp" in node["metadata"]


def pool() -> dict[str, Any]:
    made = nodepool("default")
    made["spec"]["template"]["spec"]["requirements"].append(SMALL)
    made["spec"]["disruption"] = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "1"}],
    }
    return made


def deploy(plane: Plane, name: str, replicas: int) -> None:
    container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "1", "memory": "500Mi"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    plane.create(
        DEPLOYMENTS, {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": selector, "template": template}}
    )


def scale(plane: Plane, name: str, replicas: int) -> None:
    def done() -> bool:
        try:
            answer = plane.request("PATCH", f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}}, content_type=MERGE)
        except OSError:
            return False
        return answer.status == 200

    eventually(done)


def ready(plane: Plane, name: str) -> int:
    """Pods that are ready, counted here: a controller manager whose API server was killed may be long in counting again."""
    return sum(
        "deletionTimestamp" not in one["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", ()))
        for one in items(plane, f"{PODS}?labelSelector=app%3D{name}")
    )


def one_run(plane: Plane, operator: Kubewright, state: Path, seed: int) -> Outcome:
    """Load, kills, and what is left afterwards; the plane is empty again at the end.

    Raises:
        AssertionError: something leaked, a pod was left pending, or a budget was broken.
    """
    rng = random.Random(seed)
    plane.create(NODEPOOLS, pool())
    deploy(plane, "guarded", GUARDED)
    deploy(plane, "web", LOADS[0])
    spec = {"minAvailable": AT_LEAST, "selector": {"matchLabels": {"app": "guarded"}}}
    plane.create(BUDGETS, {"metadata": {"name": "guarded"}, "spec": spec})
    eventually(lambda: ready(plane, "guarded") == GUARDED and ready(plane, "web") == LOADS[0])
    watcher = Watcher(plane)
    watcher.start()
    killed = []
    load = LOADS[0]
    try:
        for number in range(KILLS):
            before, load = load, LOADS[(number + 1) % len(LOADS)]
            scale(plane, "web", load)
            if load < before:
                try:
                    eventually(lambda: watcher.going, within_s=90)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, no node is given up: {story(plane, state, operator)}") from error
            time.sleep(rng.uniform(0, 4))
            victim = rng.choice(VICTIMS)
            killed.append(victim)
            if victim == "kubewright":
                operator.process.kill()
                operator.restart()
            else:
                plane.kill(victim)
                plane.restart(victim)
                if victim == "etcd":
                    plane.wait_ready("kube-apiserver")
        try:
            eventually(lambda: ready(plane, "web") == load and ready(plane, "guarded") == GUARDED, within_s=120)
            eventually(lambda: is_whole(plane, state), within_s=120)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after killing {', '.join(killed)}: {story(plane, state, operator)}") from error
    finally:
        watcher.end()
    assert watcher.least_ready >= AT_LEAST, f"{watcher.least_ready} guarded pods were ready, {AT_LEAST} must be"
    assert watcher.most_going <= 1, f"{watcher.most_going} nodes were given up at a time, the budget is 1"
    empty(plane, state)
    return Outcome(seed, killed, watcher.least_ready, watcher.most_going)


def is_whole(plane: Plane, state: Path) -> bool:
    """Whether NodeClaims, Nodes and machines are one and the same set, and no pod waits."""
    claims, nodes = items(plane, NODECLAIMS), items(plane, NODES)
    pods = items(plane, PODS)
    return (
        {c["status"].get("nodeName") for c in claims} == {n["metadata"]["name"] for n in nodes}
        and len(claims) == len(nodes) == living(state)
        and all(p["status"].get("phase") == "Running" for p in pods)
    )


def story(plane: Plane, state: Path, operator: Kubewright) -> str:
    """What there is, for who has to find out why it is not whole."""
    seen = plane.kubectl("get", "nodeclaims,nodes,pods", "--output=wide", "--no-headers")
    return f"{living(state)} machines\n{seen}\n{operator.process.tail(30)}"


def empty(plane: Plane, state: Path) -> None:
    plane.delete(DEPLOYMENTS)
    plane.delete(BUDGETS)
    plane.delete(NODEPOOLS)
    eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES) and not living(state), within_s=120)


def runs(plane: Plane, state: Path, seeds: range) -> list[Outcome]:
    with Kubewright(plane, state=state, checked=False) as operator:
        plane.create(NODECLASSES, nodeclass("default"))
        return [one_run(plane, operator, state, seed) for seed in seeds]


def main() -> int:
    """The exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=20, help="how many runs (20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Plane() as plane:
        state = Path(folder) / "ec2.json"
        with Kubewright(plane, state=state, checked=False) as operator:
            plane.create(NODECLASSES, nodeclass("default"))
            for seed in range(asked.first, asked.first + asked.count):
                print(one_run(plane, operator, state, seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
