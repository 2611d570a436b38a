"""Disruption on a real control plane: budgets of pods and of NodePools hold, and whatever is begun is finished."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_operator import (
    BUDGETS,
    DEPLOYMENTS,
    NODES,
    deploy,
    evictions,
    items,
    living,
    ready,
    small_pool,
    what_is_left,
)
from tests.plane.kubewright import NODECLAIMS, NODECLASSES, NODEPOOLS, Kubewright, nodeclass
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

ORDER = "kubewright.sh/disruption-order"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with Plane() as running:
        yield running


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ec2.json"


@pytest.fixture
def operator(plane: Plane, state: Path) -> Iterator[Kubewright]:
    """A running operator whose machines take a while to join, so that a replacement can be caught in the middle."""
    with Kubewright(plane, state=state, launch_s=1, join_s=2, flags=("--feature-gates=NodeRepair=true",)) as running:
        plane.create(NODECLASSES, nodeclass("default"))
        yield running
        if not running.process.running:
            running.restart()
        for path in (DEPLOYMENTS, BUDGETS, NODEPOOLS, NODECLASSES):
            plane.delete(path)
        eventually(lambda: what_is_left(plane) == {})


def pool(**template: Any) -> dict[str, Any]:
    """Two machines at a time may be replaced; each takes one pod of 3 cpu."""
    made = small_pool()
    made["spec"]["template"]["spec"].update(template)
    made["spec"]["disruption"]["budgets"] = [{"nodes": "2"}]
    requirements = made["spec"]["template"]["spec"]["requirements"]
    requirements.append({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]})
    return made


def drift(plane: Plane) -> None:
    """A change of the template, as people make it."""
    patch = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
    plane.kubectl("patch", "nodepool/default", "--type=merge", "-p", json.dumps(patch))


def names(plane: Plane, path: str) -> set[str]:
    return {one["metadata"]["name"] for one in items(plane, path)}


def going(plane: Plane) -> set[str]:
    """NodeClaims with an order, or deleted, whose machines have not been told to end."""
    return {
        one["metadata"]["name"]
        for one in items(plane, NODECLAIMS)
        if (ORDER in one["metadata"].get("annotations", {}) or "deletionTimestamp" in one["metadata"])
        and not any(c["type"] == "InstanceTerminating" for c in one.get("status", {}).get("conditions", ()))
    }


def guard(plane: Plane, least: int) -> None:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}
    plane.create(BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    eventually(lambda: plane.get(f"{BUDGETS}/web").get("status", {}).get("desiredHealthy") == least)


def is_new(plane: Plane, old: set[str], state: Path, machines: int) -> bool:
    """Every old machine is replaced by exactly one, and nothing of the exchange is left."""
    claims = items(plane, NODECLAIMS)
    return (
        not old & {c["metadata"]["name"] for c in claims}
        and len(claims) == len(items(plane, NODES)) == living(state) == machines
        and not any(ORDER in c["metadata"].get("annotations", {}) for c in claims)
        and not any(t["key"] == "karpenter.sh/disrupted" for n in items(plane, NODES) for t in n["spec"].get("taints", ()))
        and all(c["metadata"]["labels"].get("team") == "blue" for c in claims)
    )


def bought(state: Path) -> int:
    """Machines ever launched."""
    return len(json.loads(state.read_text(encoding="utf-8"))["machines"])


def test_drift_rolls_every_node_within_its_budget_and_that_of_the_pods(plane: Plane, operator: Kubewright, state: Path) -> None:
    plane.create(NODEPOOLS, pool())
    deploy(plane, replicas=4, cpu="3")
    eventually(lambda: ready(plane) == 4)
    guard(plane, 3)
    old = names(plane, NODECLAIMS)
    assert len(old) == 4
    granted = evictions(plane, "201")
    drift(plane)
    most, least = 0, 4

    def rolled() -> bool:
        nonlocal most, least
        most, least = max(most, len(going(plane))), min(least, ready(plane))
        return is_new(plane, old, state, 4)

    eventually(rolled, within_s=90)
    assert 1 <= most <= 2
    assert least >= 3
    assert evictions(plane, "201") - granted == 4, "every pod was asked"
    assert bought(state) == 8, "one machine for each"
    eventually(lambda: ready(plane) == 4)


def test_an_operator_killed_in_the_middle_of_a_replacement_finishes_it(plane: Plane, operator: Kubewright, state: Path) -> None:
    plane.create(NODEPOOLS, pool())
    deploy(plane, replicas=3, cpu="3")
    eventually(lambda: ready(plane) == 3)
    old = names(plane, NODECLAIMS)
    drift(plane)
    # Once while the replacement is on its way, once while an old node drains.
    eventually(lambda: any("kubewright.sh/replaces" in c["metadata"]["annotations"] for c in items(plane, NODECLAIMS)))
    operator.process.kill()
    assert going(plane), "it was killed too late to prove anything"
    operator.restart()
    eventually(lambda: any("deletionTimestamp" in c["metadata"] for c in items(plane, NODECLAIMS)), within_s=60)
    operator.process.kill()
    assert old & names(plane, NODECLAIMS), "it was killed too late to prove anything"
    operator.restart()
    eventually(lambda: is_new(plane, old, state, 3), within_s=90)
    eventually(lambda: ready(plane) == 3)
    assert bought(state) == 6, "nothing was bought twice"


def test_a_node_that_is_too_old_is_replaced(plane: Plane, operator: Kubewright, state: Path) -> None:
    plane.create(NODEPOOLS, pool(expireAfter="25s"))
    deploy(plane, replicas=1, cpu="3")
    eventually(lambda: ready(plane) == 1)
    old = names(plane, NODECLAIMS)
    eventually(lambda: not old & names(plane, NODECLAIMS), within_s=60)
    eventually(lambda: ready(plane) == 1)
    plane.delete(f"{DEPLOYMENTS}/web")
    eventually(lambda: not items(plane, NODECLAIMS) and living(state) == 0, within_s=60)
