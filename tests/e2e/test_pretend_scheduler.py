"""The pretend kube-scheduler against the real one: the same nodes, the same pods one after the other, the same verdicts.

Where the real one binds, ours must find that node feasible; where it says no, ours must say no in the same words (without the
part about what could be taken from others, which ours never does).
"""

import re
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings

from kubewright.sim.scheduler import scores
from kubewright.sim.scheduler.judge import Verdict
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
    """A plane on which nobody touches nodes but the test, and admission puts no taint on them."""
    with Plane(kwok=False, flags={"kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition"]}) as running:
        eventually(lambda: running.request("GET", "/api/v1/namespaces/default").status == 200)
        running.halt("kube-controller-manager")
        yield running


def clear(plane: Plane) -> None:
    plane.request("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).body_or_raise()
    plane.delete(NODES)
    eventually(lambda: not plane.get(PODS)["items"] and not plane.get(NODES)["items"])


def verdict(plane: Plane, name: str) -> Item | None:
    """The pod once the scheduler has decided."""
    pod: Item = plane.get(f"{PODS}/{name}")
    told = any(c["type"] == "PodScheduled" for c in pod["status"].get("conditions", ()))
    return pod if told else None


def agreed(plane: Plane, name: str, ours: Verdict, feasible: set[str]) -> Item | None:
    """The pod once the real verdict is ours. It may be another at first: the scheduler hears of nodes and pods separately."""
    pod = verdict(plane, name)
    if pod is None:
        return None
    node = pod["spec"].get("nodeName")
    same = node in feasible if node else ours.node is None and ours.message == said(pod)
    return pod if same else None


def said(pod: Item) -> str:
    text: str = next(c["message"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    return re.split(r" (?:no new claims to deallocate|preemption:)", text)[0]


def test_both_schedulers_say_the_same(bare_plane: Plane) -> None:
    choices: list[bool] = []
    """Whether the node that the real one took is one of those that ours likes best; among equals, the real one draws lots."""

    @settings(max_examples=40, derandomize=True, deadline=None, phases=[Phase.generate])
    @given(there=nodes(), asked=asked_pods())
    def case(there: list[Item], asked: list[Item]) -> None:
        compare(bare_plane, there, asked, choices)

    case()
    assert len(choices) > 20
    # Now and then the real one chose before it had heard of the best node.
    assert sum(choices) >= 0.95 * len(choices)


def compare(bare_plane: Plane, there: list[Item], asked: list[Item], choices: list[bool]) -> None:
    clear(bare_plane)
    known = [bare_plane.create(NODES, node) for node in there]
    standing: list[Item] = []
    for wanted in asked:
        made = bare_plane.create(PODS, {**wanted, "metadata": {k: v for k, v in wanted["metadata"].items() if k != "uid"}})
        judge, pod, name = a_pass(known, standing), facts(made), made["metadata"]["name"]
        ours = judge.judge(pod)
        found = judge._feasible(kind := judge._kind(pod), pod)[0]
        feasible = {node.name for node in found}
        try:
            real = eventually(lambda: agreed(bare_plane, name, ours, feasible), within_s=15)  # noqa: B023 - called at once
        except AssertionError:
            real = verdict(bare_plane, name)
            assert real is not None, f"{name}: the real scheduler said nothing"
            node = real["spec"].get("nodeName")
            assert (ours.node and ours.node.name, ours.message) == (node, "" if node else said(real)), name
        assert real is not None
        if node := real["spec"].get("nodeName"):
            standing.append(real)
            totals = scores.totals(pod, found, judge._nodes, judge._soft(kind, pod), {})
            choices.append(next(total for one, total in zip(found, totals, strict=True) if one.name == node) == max(totals))
        else:
            # or it might be bound later, behind our back
            path = f"{PODS}/{name}"
            now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            bare_plane.request("DELETE", path, now).body_or_raise()
