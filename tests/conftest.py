import pytest

pytest_plugins = ["tests.plane.fixtures"]

FOUND = "found"
"""`record_property(FOUND, line)`: a measured line for the end of the run, where it is seen with many workers too."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    lines = [str(text) for r in reports if r.when == "call" for name, text in r.user_properties if name == FOUND]
    if lines:
        terminalreporter.section("found")
        for line in sorted(lines):
            terminalreporter.line(line)
