"""`kubewright run` before it runs: a help text that teaches, and what it says to flags and kubeconfigs it cannot use."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kubewright.cli import flags
from kubewright.cli.main import cli
from kubewright.operator.options import FLAGS
from tests.unit.cli.shell import Shell


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home without a kubeconfig."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBEWRIGHT_CATALOGUE"):
        monkeypatch.delenv(name, raising=False)


def test_the_help_knows_every_flag_with_its_default(kubewright: Shell) -> None:
    done = kubewright("run", "--help")
    assert done.code == 0
    words = " ".join(done.out.split())
    for flag in FLAGS:
        assert f" --{flag.name} " in words
    for told in (
        "--batch-max-duration a batch of pods is closed this long after its first [10s]",
        "only where nobody else runs [false]",
        "--packing-budget time to look for one, for a small batch [500ms]",
        "Ignore what pods merely prefer [Respect]",
        "--record-bytes of them together [256Mi]",
        "--spend-cap dollars an hour that all machines together may cost; 0 for no cap [0]",
    ):
        assert told in words


def test_every_flag_has_its_line_of_help_and_no_line_is_about_nothing() -> None:
    heeded = {f.name for f in FLAGS if not f.why_ignored}
    assert heeded == {*flags.KARPENTERS, *flags.OURS}
    assert not set(flags.KARPENTERS) & set(flags.OURS)


def test_every_command_says_what_its_exit_codes_mean(kubewright: Shell) -> None:
    def below(group: click.Group) -> Iterator[click.Command]:
        for name in group.list_commands(click.Context(group)):
            found = group.get_command(click.Context(group), name)
            assert found is not None
            yield from below(found) if isinstance(found, click.Group) else (found,)

    told = {one.name: one.help or "" for one in below(cli)}
    assert {"sandbox", "run", "pod", "node", "nodeclaim", "replay", "doctor", "check"} <= told.keys()
    assert [name for name, text in told.items() if "Exit code" not in text] == []
    assert "Exit codes of all commands" in kubewright("--help").out


def test_the_help_of_run_begins_with_what_to_type(kubewright: Shell) -> None:
    done = kubewright("run", "--help")
    assert "kubewright run --cluster-name my-cluster" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cloud", "azure"], ["--cloud", "'azure'", "aws", "fake-ec2"]),
        (["--batch-idle-duration", "soon"], ["--batch-idle-duration", "'soon'", "10s"]),
        (["--batch-idle-duration"], ["--batch-idle-duration", "argument"]),
        (["--batch-idle-duration", "20s"], ["batch-idle-duration 20s", "batch-max-duration 10s"]),
        (["--metrics-port", "x"], ["--metrics-port", "'x'", "number"]),
        (["--preference-policy", "Maybe"], ["--preference-policy", "'Maybe'", "Respect"]),
        (["--feature-gates", "NodeRepair"], ["--feature-gates", "NodeRepair=true"]),
        (["--fake-launch-seconds", "x"], ["--fake-launch-seconds", "'x'"]),
        (["--catalogue", "/absent"], ["/absent", "No such file"]),
        (["--kubeconfig", "/absent", "--disable-leader-election"], ["/absent", "No such file", "--kubeconfig"]),
        (["--disable-leader-election"], [".kube/config", "--kubeconfig", "KUBECONFIG"]),
        (["cluster"], ["'cluster'", "--name value"]),
    ],
)
def test_what_it_cannot_be_started_with(arguments: list[str], words: list[str], kubewright: Shell) -> None:
    done = kubewright("run", *([] if "--cloud" in arguments else ["--cloud", "fake-ec2"]), *arguments)
    assert done.code == 2
    for word in words:
        assert word in done.err


def test_a_variable_that_cannot_be_read_is_named(kubewright: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCH_IDLE_DURATION", "soon")
    done = kubewright("run", "--cloud", "fake-ec2")
    assert done.code == 2
    assert "BATCH_IDLE_DURATION" in done.err
    assert "'soon'" in done.err
