"""The rules about checks that do not run, each on a small test file in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plane.binaries import ROOT

PASSES = "def test_passes(): pass\n"
NEEDS_GO = "import pytest\n@pytest.mark.needs_go\ndef test_needs_go(): assert False, 'it ran'\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('not today')\n"
SKIPS_WHOLE = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
EXPECTED_TO_FAIL = "import pytest\n@pytest.mark.xfail\ndef test_fails(): assert False\n"


def run(folder: Path, *files: str, workers: int = 0, **env: str) -> tuple[int, str]:
    """The exit code and the last lines of pytest on `files`."""
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", "KUBEWRIGHT_WITH_GO", "PYTEST_ADDOPTS"}}
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "tests.plane.fixtures",
                "-p",
                "no:cacheprovider",
                "-o",
                "markers=needs_go: Go",
            ),
            *("-c", os.devnull, f"--rootdir={folder}", "-q", str(folder)),
            *(("-p", "xdist", f"-n{workers}") if workers else ()),
        ],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_checks_that_need_go_are_left_out_and_counted(tmp_path: Path) -> None:
    code, said = run(tmp_path, PASSES, NEEDS_GO, NEEDS_GO)
    assert code == 0
    assert "2 checks need Go and were left out; KUBEWRIGHT_WITH_GO=1 runs them" in said
    assert "1 passed, 2 deselected" in said


def test_they_are_counted_under_xdist_too(tmp_path: Path) -> None:
    code, said = run(tmp_path, PASSES, NEEDS_GO, workers=2)
    assert code == 0
    assert "1 check needs Go and was left out" in said


def test_they_run_where_the_environment_says_so(tmp_path: Path) -> None:
    code, said = run(tmp_path, PASSES, NEEDS_GO, KUBEWRIGHT_WITH_GO="1")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "it ran" in said
    assert "need Go" not in said


@pytest.mark.parametrize(("skipping", "workers"), [(SKIPS, 0), (SKIPS, 1), (SKIPS_WHOLE, 0)], ids=["test", "xdist", "file"])
def test_a_skip_fails_the_run_in_ci_alone(tmp_path: Path, skipping: str, workers: int) -> None:
    assert run(tmp_path, PASSES, skipping, workers=workers)[0] == 0
    code, said = run(tmp_path, PASSES, skipping, workers=workers, CI="true")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "failed: 1 skipped, and in CI (CI=true) nothing may be skipped" in said


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    assert run(tmp_path, EXPECTED_TO_FAIL, CI="true")[0] == 0
