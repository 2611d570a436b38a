"""Why, on a real control plane: what the event says, what the command says, and whether a recorded pass comes out again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plane.kubewright import NODECLAIMS, NODECLASSES, NODEPOOLS, Kubewright, nodeclass, nodepool
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

PODS, EVENTS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """A plane for this module alone: operators are told of everything in it."""
    with Plane() as running:
        yield running


def pod(name: str, cpu: str) -> dict[str, object]:
    container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def told(plane: Plane, name: str) -> str:
    """What the operator's FailedScheduling events say of a pod."""
    return " ".join(
        e["message"]
        for e in plane.get(EVENTS)["items"]
        if e["reason"] == "FailedScheduling"
        and e["involvedObject"]["name"] == name
        and e["source"].get("component") == "karpenter"
    )


def ask(plane: Plane, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kubewright", *map(str, arguments)]
    if arguments[0] == "explain":
        command += ["--cloud", "fake-ec2", "--kubeconfig", str(plane.kubeconfig())]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_why_a_pod_waits_why_a_machine_was_bought_and_whether_it_would_be_again(plane: Plane, tmp_path: Path) -> None:
    records = tmp_path / "records"
    with Kubewright(plane, flags=[f"--record={records}"]):
        plane.create(NODECLASSES, nodeclass("default"))
        plane.create(NODEPOOLS, nodepool("default"))
        plane.create(PODS, pod("web", "1"))
        plane.create(PODS, pod("huge", "9000"))
        words = "; kubewright: cannot be met: request cpu 9000. Nearest fix: lower the cpu request by"
        eventually(lambda: words in told(plane, "huge"))
        assert "Failed to schedule pod, no instance type has enough resources, requirements=" in told(plane, "huge")
        eventually(lambda: plane.get(f"{PODS}/web").get("spec", {}).get("nodeName"))
        node = plane.get(f"{PODS}/web")["spec"]["nodeName"]
        (claim,) = plane.get(NODECLAIMS)["items"]

        waits = ask(plane, "explain", "pod", "huge")
        assert waits.returncode == 1, waits.stderr
        assert "request cpu 9000: removes" in waits.stdout
        assert "lower the cpu request by" in waits.stdout
        chosen = ask(plane, "explain", "nodeclaim", claim["metadata"]["name"])
        assert chosen.returncode == 0, chosen.stderr
        assert "Bought for 1 pod, planned at $" in chosen.stdout
        assert "default/web." in chosen.stdout
        assert "This machine is number 1 of" in chosen.stdout
        assert "Why it stays:" in ask(plane, "explain", "node", node).stdout
        plane.delete(PODS)
        plane.delete(NODEPOOLS)
        plane.delete(NODECLASSES)
        eventually(lambda: plane.get(NODES)["items"] == [])
    again = ask(plane, "replay", records)
    assert again.returncode == 0, again.stdout
    assert again.stdout.count(": identical (") == len(list(records.iterdir())) > 0
