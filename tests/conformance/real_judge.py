"""The real kube-scheduler as judge: what is planned is built on a real control plane, and the scheduler has to agree.

`python -m tests.conformance.real_judge 0 100` does it for a hundred random workloads. The planned machines become kwok nodes with
exactly the planned labels, taints and allocatable; then every placed pod is created, nominated for the node it was planned for
(which makes kube-scheduler ask that node first, with all its filters), and has to be bound there. Pods come one after the other,
since spread and affinity depend on the order, and one that is refused is tried again once others stand: only what is refused in
every order counts. With `--late` nodes have 3 % less memory than planned and DaemonSets come last: pods, those of DaemonSets
included, that then stay pending are counted and nothing more, for no plan can foresee that.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from kubewright.api.core import Pod
from kubewright.scheduling.resources import pod_requests
from tests.conformance.adapter import answer
from tests.conformance.judge import for_reference
from tests.conformance.on_plane import (
    MERGE,
    NOW,
    J,
    built,
    clear,
    create_daemons,
    furnish,
    made_claims,
    pending_daemons,
    pods_of,
    provision,
    ready_node,
    soon,
    unbind_claims,
    wire,
)
from tests.conformance.problems import problem
from tests.conformance.problems.features import NOT_ON_A_PLANE
from tests.conformance.validator.places import Cluster
from tests.conformance.validator.selecting import key_of
from tests.conformance.validator.together import binding_order
from tests.plane.plane import Plane

_GATE = "kubewright.test/wait"


class Outcome(NamedTuple):
    seed: int
    placed: int
    refused: dict[str, str]
    """Placed pod that kube-scheduler never bound to its node → what it said last."""


def judge(plane: Plane, seed: int, *, memory: float = 1.0, late: bool = False) -> Outcome:
    """Plan the workload of `seed`, build the plan, and have every placed pod bound; leaves the plane as it was.

    New nodes have `memory` times what was planned; with `late` DaemonSets come last.
    """
    asked = for_reference(problem(seed, without=NOT_ON_A_PLANE)[0])
    planned = answer(asked)
    assert not planned.get("error"), planned
    by_kind: dict[str, list[J]] = {}
    for one in asked["objects"]:
        by_kind.setdefault(one["kind"], []).append(one)
    places: dict[str, list[str]] = {n["name"]: n["pods"] for n in planned["existingNodes"]}
    nodes = [
        ready_node(n["metadata"]["name"], n["metadata"]["labels"], n["status"], n["spec"].get("taints", []))
        for n in by_kind.get("Node", ())
    ]
    rng = random.Random(seed)
    for index, new in enumerate(planned["newNodes"]):
        name = f"new-{index}"
        nodes.append(built(name, new, asked, rng, memory))
        places[name] = new["pods"]
    pods = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p for p in by_kind.get("Pod", ())}
    try:
        furnish(plane, by_kind, nodes, daemons=not late)
        for pod in pods.values():
            if pod["spec"].get("nodeName"):
                plane.create(pods_of(pod), wire(pod))
        order = [(key_of(pod), place.name) for pod, place in binding_order(Cluster(asked, planned))]
        refused = _all_bound(plane, order, places, pods, by_kind)
        if late:
            create_daemons(plane, by_kind)
            refused |= pending_daemons(plane)
        return Outcome(seed, sum(map(len, places.values())), refused)
    finally:
        clear(plane)


def _all_bound(
    plane: Plane,
    order: Sequence[tuple[str, str]],
    places: Mapping[str, Sequence[str]],
    pods: Mapping[str, J],
    by_kind: Mapping[str, Sequence[J]],
) -> dict[str, str]:
    """Bind every placed pod to its node, in any order that works; what is refused in the best one, with the scheduler's words.

    `order` is tried first: the one in which, by what the validator thinks, all are let in.
    """
    turns = list(_by_turns(places))
    paths = [f"{pods_of(pods[pod])}/{pods[pod]['metadata']['name']}" for pod, _ in turns]
    best: dict[str, str] | None = None
    for waiting in (order, *(sorted(turns, key=lambda one: key(pods[one[0]])) for key in _OTHER_ORDERS)):
        refused = _bound_in(plane, waiting, pods)
        if best is None or len(refused) < len(best):
            best = refused
        if not refused:
            break
        for path in paths:
            plane.request("DELETE", path, NOW)
        soon(lambda: all(plane.request("GET", path).status == 404 for path in paths) and not made_claims(plane))
        unbind_claims(plane, by_kind)
    return best or {}


def _size(pod: J) -> tuple[object, ...]:
    """Largest first, as they are planned."""
    requests = pod_requests(msgspec.convert(pod, Pod))
    return -requests.get("cpu", 0), -requests.get("memory", 0), pod["metadata"]["name"]


def _bound_first(pod: J) -> tuple[object, ...]:
    """Pods that have to be spread before those that merely count, followers last."""
    return "podAffinity" in pod["spec"].get("affinity", {}), not _must_spread(pod), *_size(pod)


def _free_first(pod: J) -> tuple[object, ...]:
    return "podAffinity" in pod["spec"].get("affinity", {}), _must_spread(pod)


def _followers_first(pod: J) -> tuple[object, ...]:
    """The first of a group that must be together may go anywhere only while none of them stands."""
    return "podAffinity" not in pod["spec"].get("affinity", {}), not _must_spread(pod), *_size(pod)


_OTHER_ORDERS = (_size, _bound_first, _free_first, _followers_first)


def _must_spread(pod: J) -> bool:
    return any(c["whenUnsatisfiable"] == "DoNotSchedule" for c in pod["spec"].get("topologySpreadConstraints", ()))


def _bound_in(plane: Plane, waiting: Sequence[tuple[str, str]], pods: Mapping[str, J]) -> dict[str, str]:
    while True:
        refused = {pod: said for pod, node in waiting if (said := _bind(plane, pods[pod], node))}
        if not refused or len(refused) == len(waiting):
            return refused
        waiting = [one for one in waiting if one[0] in refused]


def _by_turns(places: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """A pod of every node, then another of every node, so that spreads stay even."""
    for turn in zip_longest(*([(pod, node) for pod in found] for node, found in places.items())):
        yield from (one for one in turn if one is not None)


def _bind(plane: Plane, pod: J, node: str) -> str:
    """Create the pod, nominated for `node`; "" once it is bound there, otherwise what was said, and the pod is gone again."""
    body = wire(pod)
    body["spec"]["schedulingGates"] = [{"name": _GATE}]
    path = f"{pods_of(pod)}/{plane.create(pods_of(pod), body)['metadata']['name']}"
    nominated = {"status": {"nominatedNodeName": node}}
    plane.request("PATCH", f"{path}/status", nominated, content_type=MERGE).body_or_raise()
    plane.request("PATCH", path, {"spec": {"schedulingGates": None}}, content_type=MERGE).body_or_raise()

    def verdict() -> str:
        now = plane.get(path)
        if now["spec"].get("nodeName"):
            return "bound" if now["spec"]["nodeName"] == node else f"bound to {now['spec']['nodeName']}, planned for {node}"
        provision(plane, now)
        for condition in now["status"].get("conditions", ()):
            unready = "waiting for ephemeral volume controller" in condition.get("message", "")
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable" and not unready:
                return f"planned for {node}: {condition.get('message', '')}"
        return ""

    said = soon(verdict)
    if said == "bound":
        return ""
    plane.request("DELETE", path, NOW).body_or_raise()
    own = {f"{pod['metadata']['name']}-{v['name']}" for v in pod["spec"].get("volumes", ()) if "ephemeral" in v}
    soon(lambda: plane.request("GET", path).status == 404 and not own & made_claims(plane))
    return said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.real_judge")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, help="the first seed that is not judged any more")
    parser.add_argument("--late", action="store_true", help="3 %% less memory than planned, DaemonSets last: only counted")
    asked = parser.parse_args()
    placed = refused = 0
    with Plane() as plane:
        for seed in range(asked.first, asked.last):
            outcome = judge(plane, seed, memory=0.97 if asked.late else 1.0, late=asked.late)
            placed += outcome.placed
            refused += len(outcome.refused)
            for pod, said in outcome.refused.items():
                print(f"problem {seed}: {pod}: {said}", flush=True)
    print(f"{asked.last - asked.first} workloads: {placed} pods placed, {refused} of them refused by kube-scheduler")
    return int(bool(refused) and not asked.late)


if __name__ == "__main__":
    sys.exit(main())
