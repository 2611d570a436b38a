"""`kubewright run` that was started wrongly: exit code 2, and a sentence that names file, field and mend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plane.binaries import ROOT

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    argv = [sys.executable, "-m", "kubewright", "run", "--cloud=fake-ec2", "--disable-leader-election", *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["absent.yaml", "No such file", "--kubeconfig"]),
        ("clusters: [", ["config.yaml", "YAML"]),
        (KUBECONFIG.replace("current-context: x", "current-context: y"), ["config.yaml", "current-context", "'y'", "x"]),
        (KUBECONFIG.replace("cluster: c,", "cluster: d,"), ["config.yaml", "cluster", "'d'"]),
    ],
    ids=["absent", "not YAML", "no such context", "no such cluster"],
)
def test_a_bad_kubeconfig_is_refused_by_file_and_field(tmp_path: Path, text: str | None, words: list[str]) -> None:
    path = tmp_path / ("absent.yaml" if text is None else "config.yaml")
    if text is not None:
        path.write_text(text, encoding="utf-8")
    done = run(tmp_path, f"--kubeconfig={path}")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cloud=azure"], ["--cloud", "'azure'", "aws", "fake-ec2"]),
        (["--batch-idle-duration=soon"], ["--batch-idle-duration", "'soon'", "10s"]),
        (["--fake-state=/absent/folder/ec2.json"], ["/absent/folder"]),
    ],
)
def test_a_bad_flag_is_refused_by_name(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(KUBECONFIG, encoding="utf-8")
    done = run(tmp_path, f"--kubeconfig={path}", *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
