"""What people get wrong in manifests, scenarios and flags of the sandbox: exit code 2, file, field and mend, nothing applied."""

from pathlib import Path

import pytest

from kubewright.sim.sandbox import Sandbox
from tests.unit.cli.shell import NODE_CLASS, POOL, WEB, Shell, scenario, written

BROKEN = sorted((Path(__file__).parents[1] / "api" / "broken").glob("*.yaml"))


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Whatever is put into the sandbox's cluster."""
    seen: list[object] = []
    put = Sandbox.put
    monkeypatch.setattr(Sandbox, "put", lambda box, obj: (seen.append(obj), put(box, obj)))
    return seen


def test_there_are_many() -> None:
    assert len(BROKEN) >= 60


@pytest.mark.parametrize("path", BROKEN, ids=lambda p: p.stem)
def test_a_broken_manifest_beside_good_ones(path: Path, tmp_path: Path, kubewright: Shell, applied: list[object]) -> None:
    good = written(tmp_path, NODE_CLASS, WEB)
    done = kubewright("sandbox", "-f", good, "-f", path)
    assert done.code == 2
    assert done.out == "", "nothing was run"
    first = done.err.splitlines()[0]
    assert first.startswith(f"{path}:"), "the file comes first"
    assert len(first.split(": ", 2)) >= 2, "then what is wrong"
    assert applied == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("{at: soon, interrupt: {}}", ["steps[0].at", "'soon'", "1h30m"]),
        ("{at: 1m, scal: {kind: Deployment, name: web, replicas: 1}}", ["steps[0].scal", "scale?"]),
        ("{at: 1m}", ["steps[0]", "exactly one of apply, scale, delete, interrupt"]),
        ("{at: 1m, scale: {kind: Deployment, name: web, replicas: many}}", ["steps[0].scale.replicas", "'many'", "replicas: 10"]),
        ("{at: 1m, scale: {kind: Deployment, name: web}}", ["steps[0].scale", "replicas", "replicas: 10"]),
        ("{at: 1m, scale: {kind: Deployment, name: web, replicas: -1}}", ["steps[0].scale.replicas", "-1", "0 or more"]),
        ("{at: 1m, scale: {kind: Deployment, name: wbe, replicas: 1}}", ["steps[0].scale", "'default/wbe'", "default/web"]),
        ("{at: 1m, scale: {kind: Job, name: web, replicas: 1}}", ["steps[0].scale.kind", "'Job'", "Deployment"]),
        ("{at: 1m, delete: {kind: Deploymnt, name: web}}", ["steps[0].delete.kind", "'Deploymnt'", "Deployment"]),
        ("{at: 1m, delete: {kind: NodePool, name: batch}}", ["steps[0].delete", "'batch'", "general"]),
        ("{at: 1m, interrupt: {nodePool: batch}}", ["steps[0].interrupt.nodePool", "'batch'", "general"]),
        ("{at: 1m, interrupt: {capacityType: sport}}", ["steps[0].interrupt.capacityType", "'sport'", "spot"]),
        ("{at: 1m, interrupt: {count: 0}}", ["steps[0].interrupt.count", "1 or more"]),
        (
            "{at: 1m, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: BAD}}}",
            ["steps[0].apply", "metadata.name", "name: bad"],
        ),
        (
            "{at: 1m, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}}",
            ["steps[0].apply", "metadata.namespace", "'nowhere'", "kind: Namespace"],
        ),
        ("7", ["steps[0]", "found 7", "scale"]),
    ],
)
def test_a_broken_step(step: str, words: list[str], tmp_path: Path, kubewright: Shell, applied: list[object]) -> None:
    path = written(tmp_path, NODE_CLASS, POOL, WEB, scenario(step))
    done = kubewright("sandbox", "-f", path)
    assert done.code == 2
    assert done.err.startswith(f"{path}:")
    for word in words:
        assert word in done.err
    assert done.out == ""
    assert applied == []


def test_steps_may_use_what_earlier_steps_made(tmp_path: Path, kubewright: Shell) -> None:
    steps = (
        "{at: 1s, apply: {apiVersion: v1, kind: Namespace, metadata: {name: late}}}",
        "{at: 2s, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: late}}}",
        "{at: 3s, delete: {kind: ConfigMap, name: a, namespace: late}}",
        "{at: 4s, delete: {kind: Namespace, name: late}}",
    )
    assert kubewright("sandbox", "-f", written(tmp_path, scenario(*steps))).code == 0
    done = kubewright("sandbox", "-f", written(tmp_path, scenario(*steps, steps[2].replace("3s", "5s"))))
    assert done.code == 2, "it is deleted by then"
    assert "steps[4].delete" in done.err


def test_a_namespace_that_is_not_there(tmp_path: Path, kubewright: Shell, applied: list[object]) -> None:
    path = written(tmp_path, NODE_CLASS, WEB.replace("{name: web}", "{name: web, namespace: shop}", 1))
    done = kubewright("sandbox", "-f", path)
    assert done.code == 2
    for word in (str(path), 'Deployment "web"', "metadata.namespace", "'shop'", "kind: Namespace", "name: shop"):
        assert word in done.err
    assert applied == []


def test_a_path_that_is_not_there_and_a_folder_without_manifests(tmp_path: Path, kubewright: Shell) -> None:
    done = kubewright("sandbox", "-f", tmp_path / "absent")
    assert (done.code, done.out) == (2, "")
    assert "absent" in done.err
    assert "no such file" in done.err
    done = kubewright("sandbox", "-f", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path) in done.err
    assert "no .yaml" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--faults", "storm"], ["--faults", "'storm'", "spot-storm"]),
        (["--for", "soon"], ["--for", "'soon'", "30m"]),
        (["--for", "0s"], ["--for", "'0s'", "30m"]),
        (["--seed", "x"], ["--seed", "'x'"]),
        (["--port", "70000"], ["--port", "65535"]),
        (["--catalogue", __file__], [__file__, "kubewright catalogue refresh"]),
        (["--catalogue", "/absent.gz"], ["/absent.gz", "No such file"]),
        (["manifests"], ["manifests"]),
        (["--nope"], ["--nope"]),
    ],
)
def test_a_bad_flag(arguments: list[str], words: list[str], kubewright: Shell) -> None:
    done = kubewright("sandbox", *arguments)
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err


def test_a_kubeconfig_of_somebody_else_is_left_alone(tmp_path: Path, kubewright: Shell) -> None:
    path = tmp_path / "config"
    path.write_text("current-context: production\n", encoding="utf-8")
    done = kubewright("sandbox", "-f", written(tmp_path, WEB), "--serve", "--kubeconfig", path)
    assert done.code == 2
    assert "--kubeconfig" in done.err
    assert path.read_text(encoding="utf-8") == "current-context: production\n"


def test_an_unknown_command_and_none(kubewright: Shell) -> None:
    done = kubewright("sandbx")
    assert done.code == 2
    assert "'sandbx'" in done.err
    assert "sandbox" in done.err
    assert kubewright().code == 2
