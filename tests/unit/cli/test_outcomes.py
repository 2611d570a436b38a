"""How sandbox runs end: exit codes, the closing tables, the same facts as JSON."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.cli.shell import NODE_CLASS, POOL, WEB, Shell, scenario, written

ROOT = Path(__file__).parents[3]


def test_every_pod_found_a_place(tmp_path: Path, kubewright: Shell) -> None:
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB))
    assert done.code == 0
    assert done.err.startswith("It took "), "beside the output, which is the same to the byte for the same seed"
    assert "2 pods run: default/web 2" in done.out
    assert "Nodes at the end" in done.out
    assert "the cluster is quiet" in done.out
    assert "Warnings" not in done.out
    assert "Pods without a node" not in done.out


def test_pods_that_cannot_run_anywhere(tmp_path: Path, kubewright: Shell) -> None:
    huge = WEB.replace("name: web", "name: huge", 1).replace('cpu: "1"', 'cpu: "9000"')
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB, huge))
    assert done.code == 1
    table = done.out.partition("Pods without a node")[2]
    assert "default/huge-" in table
    assert "and 1 more" in table
    assert "cannot be met: request cpu 9000" in table, "kubewright's words"
    assert "Insufficient" in table, "kube-scheduler's words"
    report = json.loads(kubewright("sandbox", "-f", tmp_path / "all.yaml", "-o", "json").out)
    assert len(report["pending"]) == 2
    for waiting in report["pending"]:
        assert waiting["pod"].startswith("default/huge-")
        assert "cannot be met: request cpu 9000. Nearest fix: lower the cpu request by " in waiting["why"]
        assert "Insufficient cpu" in waiting["scheduler"]


def test_the_reason_is_that_of_the_last_pass(tmp_path: Path, kubewright: Shell) -> None:
    """In the first pass the limit is taken by the other service's machine; what stays in the way is the architecture."""
    arm = WEB.replace("web", "arm").replace(
        "      containers:", "      nodeSelector: {kubernetes.io/arch: arm64}\n      containers:"
    )
    limited = POOL.replace("spec:\n", "spec:\n  limits: {cpu: '16'}\n", 1)
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, limited, WEB, arm), "-o", "json")
    assert done.code == 1
    for waiting in json.loads(done.out)["pending"]:
        assert waiting["pod"].startswith("default/arm-")
        assert "kubernetes.io/arch" in waiting["why"]


def test_a_pod_behind_a_gate_waits_for_it(tmp_path: Path, kubewright: Shell) -> None:
    gated = WEB.replace("      containers:", "      schedulingGates: [{name: example.com/later}]\n      containers:")
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, gated), "-o", "json")
    assert done.code == 1
    assert "example.com/later" in json.loads(done.out)["pending"][0]["why"]


def test_a_node_class_that_does_not_exist(tmp_path: Path, kubewright: Shell) -> None:
    path = written(tmp_path, NODE_CLASS, POOL.replace("name: default}", "name: other}"), WEB)
    done = kubewright("sandbox", "-f", path)
    assert done.code == 1
    warning = done.out.partition("Warnings")[2]
    for word in ('NodePool "general"', "spec.template.spec.nodeClassRef.name", "'other'", "(default)"):
        assert word in warning


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([NODE_CLASS, WEB], ["no NodePool"]),
        (
            [
                POOL,
                NODE_CLASS.replace(
                    "subnetSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox", "subnetSelectorTerms: [{tags: {a: b"
                ),
                WEB,
            ],
            ['EC2NodeClass "default" is not ready', "SubnetsReady"],
        ),
    ],
)
def test_what_keeps_nodes_from_being_bought_is_said(
    documents: list[str], words: list[str], tmp_path: Path, kubewright: Shell
) -> None:
    done = kubewright("sandbox", "-f", written(tmp_path, *documents))
    assert done.code == 1
    for word in words:
        assert word in done.out.partition("Warnings")[2]


def test_a_step_that_turns_out_impossible(tmp_path: Path, kubewright: Shell) -> None:
    steps = scenario("{at: 5s, interrupt: {capacityType: reserved}}", "{at: 6s, delete: {kind: NodeClaim, name: absent}}")
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB, steps))
    assert done.code == 1
    assert "that could not be done: no reserved machine runs" in done.out
    failed = done.out.partition("Steps that could not be done")[2]
    assert "steps[0]: no reserved machine" in failed
    assert 'steps[1]: nodeclaims.karpenter.sh "absent" not found' in failed


def test_the_time_is_up_before_the_cluster_is_quiet(tmp_path: Path, kubewright: Shell) -> None:
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB), "--for", "10s")
    assert done.code == 1
    assert "ended before the cluster was quiet" in done.out


def test_json_alone_on_standard_output_with_the_facts_of_the_tables(tmp_path: Path, kubewright: Shell) -> None:
    path = written(tmp_path, NODE_CLASS, POOL, WEB)
    table = kubewright("sandbox", "-f", path)
    done = kubewright("sandbox", "-f", path, "-o", "json")
    report = json.loads(done.out)
    assert "2 pods run: default/web 2" in done.err, "the story is told beside it"
    assert report["quiet"]
    assert report["elapsedSeconds"] > 60
    assert report["usdPerHour"] == pytest.approx(sum(n["usdPerHour"] for n in report["nodes"]))
    assert report["usd"] == pytest.approx(sum(m["usd"] for m in report["machines"]), abs=1e-5)
    assert report["usd"] > 0
    assert report["pending"] == report["warnings"] == report["failedSteps"] == []
    assert sum(n["pods"]["default/web"] for n in report["nodes"]) == 2
    for row in (*report["nodes"], *report["machines"]):
        for key in ("name", "nodePool", "instanceType", "zone", "capacityType"):
            assert row[key] in table.out
    assert f"${report['usd']:.4f} in all, ${report['usdPerHour']:.4f} an hour" in table.out
    assert all("_" not in key for key in keys(report)), "camelCase throughout, as Kubernetes has it"


def keys(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(k for v in value.values() for k in keys(v))]
    return [k for v in value for k in keys(v)] if isinstance(value, list) else []


def test_the_log_is_the_same_under_every_hash_seed() -> None:
    """The bundled example in processes of their own: what they print is the same to the byte."""
    told = []
    for seed in ("0", "1", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")}
        argv = [sys.executable, "-m", "kubewright", "sandbox", "--seed", "5", "-o", "json"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=True)
        told.append((done.stdout, done.stderr))
    assert told[0][1].count("\n") > 50
    assert told[0] == told[1] == told[2]


def test_real_time_without_serving(tmp_path: Path, kubewright: Shell) -> None:
    began = time.monotonic()
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB), "--real-time", "--for", "3s", "-o", "json")
    assert time.monotonic() - began >= 3, "a second is a second"
    assert done.code == 1
    assert not json.loads(done.out)["quiet"]


def test_a_pod_for_which_a_machine_is_on_its_way(tmp_path: Path, kubewright: Shell) -> None:
    done = kubewright("sandbox", "-f", written(tmp_path, NODE_CLASS, POOL, WEB), "--for", "15s", "-o", "json")
    found = json.loads(done.out)["pending"]
    assert len(found) == 2
    for waiting in found:
        assert waiting["why"].startswith("Pod should schedule on: nodeclaim/general-")
