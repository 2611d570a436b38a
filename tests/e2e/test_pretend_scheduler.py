"""The pretend kube-scheduler against the real one: the same nodes, the same pods one after the other, the same verdicts.

Where the real one binds, ours must find that node feasible; where it says no, ours must say no in the same words (without the
part about what could be taken from others, which ours never does).
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kubewright.sim.scheduler.pods import facts
from tests.plane.plane import Plane
from tests.plane.waiting import eventually
from tests.unit.sim.builders import Item
from tests.unit.sim.scheduler.passes import a_pass
from tests.unit.sim.scheduler.strategies import asked_pods, nodes

pytestmark = pytest.mark.needs_go

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def bare_plane() -> Iterator[Plane]:
    """A plane on which nobody touches nodes but the test."""
    with Plane(kwok=False) as running:
        eventually(lambda: running.request("GET", "/api/v1/namespaces/default").status == 200)
        running.halt("kube-controller-manager")
        yield running


def make_node(plane: Plane, node: Item) -> Item:
    """Create a node without the taint that admission puts on it, and return it as the server has it."""
    made = plane.create(NODES, node)
    taints = node["spec"].get("taints") or []
    patch = {"spec": {"taints": taints or None}}
    path = f"{NODES}/{node['metadata']['name']}"
    answer = plane.request("PATCH", path, patch, content_type="application/merge-patch+json")
    found: Item = answer.body_or_raise()
    assert made["metadata"]["uid"] == found["metadata"]["uid"]
    return found


def clear(plane: Plane) -> None:
    plane.request("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).body_or_raise()
    plane.delete(NODES)
    eventually(lambda: not plane.get(PODS)["items"] and not plane.get(NODES)["items"])


def verdict(plane: Plane, name: str) -> Item | None:
    """The pod once the scheduler has decided."""
    pod: Item = plane.get(f"{PODS}/{name}")
    told = any(c["type"] == "PodScheduled" for c in pod["status"].get("conditions", ()))
    return pod if told else None


def said(pod: Item) -> str:
    text: str = next(c["message"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    return re.split(r" (?:no new claims to deallocate|preemption:)", text)[0]


@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(there=nodes(), asked=asked_pods())
def test_both_schedulers_say_the_same(bare_plane: Plane, there: list[Item], asked: list[Item]) -> None:
    clear(bare_plane)
    known = [make_node(bare_plane, node) for node in there]
    standing: list[Item] = []
    for wanted in asked:
        made = bare_plane.create(PODS, {**wanted, "metadata": {k: v for k, v in wanted["metadata"].items() if k != "uid"}})
        judge, pod = a_pass(known, standing), facts(made)
        ours: Any = judge.judge(pod)
        name = made["metadata"]["name"]
        real: Item | None = eventually(lambda name=name: verdict(bare_plane, name))  # type: ignore[misc]
        assert real is not None
        if node := real["spec"].get("nodeName"):
            feasible, _ = judge._feasible(judge._kind(pod), pod)
            assert node in {one.name for one in feasible}, f"{name}: real took {node}; ours says {ours.message}"
            standing.append(real)
        else:
            assert ours.node is None, f"{name}: ours took {ours.node.name}; real says {said(real)}"
            assert ours.message == said(real)
