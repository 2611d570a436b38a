"""From Karpenter to kubewright and back, on the same real control plane: nothing drifts, nothing is replaced, work goes on."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.test_operator import LEASE, items, ready, scale
from tests.plane import karpenter
from tests.plane.karpenter import NODECLASSES, Karpenter
from tests.plane.kubewright import NODECLAIMS, NODEPOOLS, PROGRAM, Kubewright
from tests.plane.plane import Plane
from tests.plane.waiting import eventually

pytestmark = pytest.mark.needs_go

NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SMALL = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux"]}
MERGE = "application/merge-patch+json"
ON_A_NODE = 3
"""Pods of 1 cpu on a machine of four, some of which the system keeps."""
LED = {"DISABLE_LEADER_ELECTION": "false", "LEADER_ELECTION_NAMESPACE": "kube-system"}
IN_TURN = ("--disable-leader-election=false", "--leader-election-namespace=kube-system")


@pytest.fixture
def plane() -> Iterator[Plane]:
    """One for each test: what Karpenter leaves behind need not be waited for."""
    with Plane() as running:
        yield running


def pool(*, consolidate_after: str = "0s", policy: str = "WhenEmpty", budget: str = "100%", **labels: str) -> dict[str, Any]:
    made = karpenter.nodepool("default", consolidate_after=consolidate_after)
    made["spec"]["template"]["spec"]["requirements"].append(SMALL)
    made["spec"]["template"]["metadata"] = {"labels": labels}
    made["spec"]["disruption"] |= {"consolidationPolicy": policy, "budgets": [{"nodes": budget}]}
    return made


def deploy(plane: Plane, replicas: int) -> None:
    container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    plane.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})


def uids(plane: Plane, path: str) -> Mapping[str, str]:
    return {one["metadata"]["uid"]: one["metadata"]["name"] for one in items(plane, path)}


def settled(plane: Plane, nodes: int) -> bool:
    """Whether there are so many nodes, all of them usable, and nothing is going or coming."""
    claims = items(plane, NODECLAIMS)
    return (
        len(claims) == len(items(plane, NODES)) == nodes
        and all("deletionTimestamp" not in one["metadata"] for one in claims)
        and all(is_true(one, "Initialized") for one in claims)
    )


def is_true(claim: Any, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in claim.get("status", {}).get("conditions", ()))


def drifted(plane: Plane) -> list[str]:
    return [one["metadata"]["name"] for one in items(plane, NODECLAIMS) if is_true(one, "Drifted")]


def hashes(plane: Plane, path: str) -> Mapping[str, tuple[str, str]]:
    found = {}
    for one in items(plane, path):
        written = one["metadata"].get("annotations", {})
        found[one["metadata"]["name"]] = (
            written["karpenter.sh/nodepool-hash"],
            written["karpenter.sh/nodepool-hash-version"],
        )
    return found


def check(plane: Plane, *flags: str) -> tuple[int, Any]:
    """Exit code and report of `kubewright takeover check`."""
    from tests.plane.kwok_provider import python_path

    argv = [*PROGRAM, "takeover", "check", "--cloud=kwok", "--output=json", f"--kubeconfig={plane.kubeconfig()}", *flags]
    env = {"PYTHONPATH": python_path(plane.directory / "installed")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_fifty_nodes_change_hands_twice_and_none_is_replaced(plane: Plane) -> None:
    with Karpenter(plane, env=LED) as before:
        plane.create(NODEPOOLS, pool(consolidate_after="0s"))
        deploy(plane, 50 * ON_A_NODE)
        eventually(lambda: ready(plane) == 50 * ON_A_NODE, within_s=120)
        eventually(lambda: settled(plane, 50), within_s=60)
        bought, known, marked = uids(plane, NODES), uids(plane, NODECLAIMS), hashes(plane, NODECLAIMS)
        pools = hashes(plane, NODEPOOLS)

        code, report = check(plane)
        assert (code, report["node_pools"], report["node_claims"], report["drifting"]) == (0, 1, 50, 0), report
        assert any("is held by" in one["what"] for one in report["findings"])

        # It waits for the lease as long as Karpenter holds it, and touches nothing meanwhile.
        with Kubewright(plane, cloud="kwok", flags=IN_TURN) as after:
            assert plane.get(LEASE)["spec"]["holderIdentity"]
            before.process.stop()
            eventually(lambda: "the mirror is complete, starting to act" in after.process.tail(200))
            # New pods are served: that it acts at all is known then.
            scale(plane, 55 * ON_A_NODE)
            eventually(lambda: ready(plane) == 55 * ON_A_NODE)
            eventually(lambda: settled(plane, 55))
            assert bought.items() <= uids(plane, NODES).items(), "a node of Karpenter's was replaced"
            assert known.items() <= uids(plane, NODECLAIMS).items()
            assert drifted(plane) == []
            assert hashes(plane, NODEPOOLS) == pools
            assert marked.items() <= hashes(plane, NODECLAIMS).items()

            # What is empty goes, Karpenter's machines like ours.
            scale(plane, 0)
            eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES), within_s=90)
            scale(plane, 5 * ON_A_NODE)
            eventually(lambda: ready(plane) == 5 * ON_A_NODE)
            eventually(lambda: settled(plane, 5), within_s=90)
            ours = uids(plane, NODES)

    # And the way back.
    with Karpenter(plane, env=LED):
        scale(plane, 8 * ON_A_NODE)
        eventually(lambda: ready(plane) == 8 * ON_A_NODE)
        eventually(lambda: settled(plane, 8))
        assert ours.items() <= uids(plane, NODES).items(), "a node of ours was replaced"
        assert drifted(plane) == []
        assert hashes(plane, NODEPOOLS) == pools
        assert set(hashes(plane, NODECLAIMS).values()) == set(marked.values())


def test_a_command_that_karpenter_was_killed_in_is_brought_to_an_end(plane: Plane) -> None:
    with Karpenter(plane) as before:
        plane.create(NODEPOOLS, pool(policy="WhenEmptyOrUnderutilized", consolidate_after="Never", budget="2"))
        deploy(plane, 4 * ON_A_NODE)
        eventually(lambda: ready(plane) == 4 * ON_A_NODE)
        eventually(lambda: settled(plane, 4))
        # Replacements are bought at once and join late: in between there are taints, conditions and machines without a Node.
        plane.request("PATCH", f"{NODECLASSES}/default", {"spec": {"nodeRegistrationDelay": "120s"}}, content_type=MERGE)
        change = {"spec": {"template": {"metadata": {"labels": {"team": "b"}}}}}
        plane.request("PATCH", f"{NODEPOOLS}/default", change, content_type=MERGE).body_or_raise()
        eventually(lambda: len(items(plane, NODECLAIMS)) > 4 and tainted(plane), within_s=90)
        before.process.kill()
    plane.request("PATCH", f"{NODECLASSES}/default", {"spec": {"nodeRegistrationDelay": "0s"}}, content_type=MERGE)
    assert tainted(plane)
    assert [one for one in items(plane, NODECLAIMS) if not is_true(one, "Registered")]

    with Kubewright(plane, cloud="kwok"):
        eventually(lambda: settled(plane, 4) and not drifted(plane) and not tainted(plane), within_s=180)
        eventually(lambda: ready(plane) == 4 * ON_A_NODE)
        claims = items(plane, NODECLAIMS)
        assert {one["metadata"]["labels"].get("team") for one in claims} == {"b"}
        assert not [one["metadata"]["name"] for one in claims if is_true(one, "DisruptionReason")]
        scale(plane, 0)
        plane.delete(DEPLOYMENTS)
        plane.delete(NODEPOOLS)
        # No finalizer holds anything back.
        eventually(lambda: not items(plane, NODECLAIMS) and not items(plane, NODES))


def tainted(plane: Plane) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in items(plane, NODES)
        if any(taint["key"] == "karpenter.sh/disrupted" for taint in node["spec"].get("taints", ()))
    ]


def test_a_shadow_beside_karpenter_keeps_the_score_of_both_and_writes_nothing(plane: Plane) -> None:
    # The shadow has to see the pods before Karpenter has bought for them.
    slow = {**LED, "BATCH_IDLE_DURATION": "5s"}
    with Karpenter(plane, env=slow), Kubewright(plane, cloud="kwok", flags=("--shadow",)) as shadow:
        plane.create(NODEPOOLS, pool())
        deploy(plane, 5 * ON_A_NODE)
        eventually(lambda: ready(plane) == 5 * ON_A_NODE)
        eventually(lambda: settled(plane, 5))
        score = eventually(lambda: (found := json.loads(shadow.page("/shadow")))["kubewright"]["bought"]["nodes"] and found)
        assert score["kubewright"]["bought"] == pytest.approx(score["cluster"]["bought"])
        assert score["cluster"]["bought"]["nodes"] == 5
        scale(plane, 0)
        eventually(lambda: json.loads(shadow.page("/shadow"))["kubewright"]["removed"]["nodes"] == 5)
        eventually(lambda: json.loads(shadow.page("/shadow"))["cluster"]["removed"]["nodes"] == 5, within_s=90)
        assert 'kubewright_shadow_nodes{by="kubewright",what="removed"} 5.0' in shadow.page()
        assert "kubewright (would have)" in shadow.page("/shadow.txt")
        writers = {
            field["manager"]
            for path in (NODES, NODECLAIMS, NODEPOOLS, NODECLASSES, "/api/v1/events", "/api/v1/pods", LEASE.rpartition("/")[0])
            for one in items(plane, path)
            for field in one["metadata"].get("managedFields", ())
        }
        assert "karpenter" in writers
        assert not [name for name in writers if "kubewright" in name]
