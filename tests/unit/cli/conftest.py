import pytest

from tests.unit.cli.shell import Shell


@pytest.fixture
def kubewright(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)
