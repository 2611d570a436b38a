"""What pytest gets from the plane, and two rules about checks that do not run.

Fixtures: `plane`, one control plane for the whole session; `fresh_plane`, one for a single test that breaks it; `namespace`, a
new namespace on `plane`, deleted afterwards.

Rules: a test marked `needs_go` is left out, and counted aloud at the end, unless KUBEWRIGHT_WITH_GO=1 says that it has to run;
then a missing Go is a failure. And in CI (CI=true) no test may skip itself: a skip fails the run, since nobody reads it there.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.plane.plane import Plane

WITH_GO = "KUBEWRIGHT_WITH_GO"

_left_out = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """A running control plane with kwok, shared by the session: leave nothing cluster-wide behind, or take `fresh_plane`."""
    with Plane() as running:
        yield running


@pytest.fixture
def fresh_plane() -> Iterator[Plane]:
    """A running control plane for this test alone, which may kill what it likes. It takes 3 s to start."""
    with Plane() as running:
        yield running


@pytest.fixture
def namespace(plane: Plane) -> Iterator[str]:
    """The name of a new namespace on `plane`; its deletion, with all in it, is asked for afterwards but not awaited."""
    made = plane.create("/api/v1/namespaces", {"metadata": {"generateName": "test-"}})["metadata"]["name"]
    yield made
    plane.delete(f"/api/v1/namespaces/{made}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get(WITH_GO) == "1":
        return
    left_out = [item for item in items if item.get_closest_marker("needs_go")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("needs_go")]
        config.hook.pytest_deselected(items=left_out)
    config.stash[_left_out] = len(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Under xdist the workers collect, all of them the same, and the controller prints.
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get(WITH_GO, 0)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[WITH_GO] = session.config.stash.get(_left_out, 0)
    if _forbidden_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(_left_out, 0)
    if left_out:
        checks = "1 check needs Go and was" if left_out == 1 else f"{left_out} checks need Go and were"
        terminalreporter.write_line(f"{checks} left out; {WITH_GO}=1 runs them", yellow=True)
    skips = _forbidden_skips(config)
    if skips:
        terminalreporter.write_line(f"failed: {skips} skipped, and in CI (CI=true) nothing may be skipped", red=True)


def _forbidden_skips(config: pytest.Config) -> int:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("CI", "").lower() not in {"true", "1"}:
        return 0
    return len(reporter.stats.get("skipped", ()))
