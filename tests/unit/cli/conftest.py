import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.unit.cli.shell import Shell


@pytest.fixture
def kubewright(capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """The command, and afterwards the logs as they were: it points them at a stream that ends with the test."""
    configured, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Shell(capsys)
    structlog.configure(**configured)
    root.handlers[:] = handlers
    root.setLevel(level)
