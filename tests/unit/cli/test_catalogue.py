"""`kubewright catalogue`, `version` and the help texts; the cloud that is asked is the fake EC2."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kubewright.cli import catalogue as command
from kubewright.cli.main import cli
from kubewright.clock import Clock
from kubewright.cloud.aws import boto, catalogue
from kubewright.sim.ec2 import FakeEc2, Faults
from tests.unit.cli.shell import NODE_CLASS, POOL, WEB, Shell, written


def test_the_list_shows_shapes_prices_source_and_date(kubewright: Shell) -> None:
    done = kubewright("catalogue", "list", "--family", "m7g,g5", "--region", "us-east-1")
    assert done.code == 0
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.startswith(("m7g.", "g5."))}
    assert rows["m7g.large"][1:5] == ["2", "8", "GiB", "arm64"]
    assert rows["m7g.large"][-1] == "0.0816"
    assert rows["g5.xlarge"][1:6] == ["4", "16", "GiB", "amd64", "1"]
    assert catalogue.embedded().date in done.out
    assert catalogue.embedded().source in done.out


def test_the_list_as_json(kubewright: Shell) -> None:
    found = json.loads(kubewright("catalogue", "list", "--region", "us-east-1", "-o", "json").out)
    assert found["date"] == catalogue.embedded().date
    assert len(found["types"]) > 1000
    (large,) = [t for t in found["types"] if t["type"] == "m5.large"]
    assert (large["vcpus"], large["memoryMiB"], large["arch"], large["usdPerHour"]) == (2, 8192, ["amd64"], 0.096)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--family", "m7"], ["--family", "'m7'", "m7g"]),
        (["list", "--region", "mars-1"], ["'mars-1'", "us-east-1"]),
        (["list", "--catalogue", "/absent"], ["/absent", "No such file"]),
        (["refresh", "--region", "us-west-2", "--output", "/absent/file.gz"], ["--output", "/absent/file.gz"]),
    ],
)
def test_what_is_asked_wrongly(arguments: list[str], words: list[str], kubewright: Shell) -> None:
    done = kubewright("catalogue", *arguments)
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Callable[[Faults], None]:
    def use(faults: Faults) -> None:
        monkeypatch.setattr(boto, "BotoApi", lambda region: FakeEc2(Clock(), region=region, faults=faults))

    use(Faults(call_s=0.0))
    return use


def test_a_refreshed_file_is_what_a_sandbox_then_sells(
    tmp_path: Path, kubewright: Shell, cloud: Callable[[Faults], None]
) -> None:
    path = tmp_path / "new.json.gz"
    done = kubewright("catalogue", "refresh", "--region", "eu-west-1", "--output", path)
    assert done.code == 0, done.err
    assert "eu-west-1" in done.err, "it says what it is asking"
    assert str(path) in done.out
    assert f"--catalogue {path}" in done.out
    assert set(catalogue.from_file(path).regions) == {"eu-west-1"}
    listed = kubewright("catalogue", "list", "--family", "m5", "--catalogue", path)
    assert "eu-west-1" in listed.out
    assert "DescribeInstanceTypes" in listed.out
    manifests = written(tmp_path, NODE_CLASS, POOL, WEB)
    report = json.loads(kubewright("sandbox", "-f", manifests, "--catalogue", path, "-o", "json").out)
    assert report["nodes"][0]["zone"].startswith("eu-west-1")
    assert report["catalogue"]["source"] == catalogue.from_file(path).source


def test_the_file_may_be_named_by_the_environment(
    tmp_path: Path, kubewright: Shell, cloud: Callable[[Faults], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.json.gz"
    kubewright("catalogue", "refresh", "--region", "eu-west-1", "--output", path)
    monkeypatch.setenv("KUBEWRIGHT_CATALOGUE", str(path))
    assert "sold in eu-west-1" in kubewright("catalogue", "list", "--family", "m5").out


def test_a_cloud_that_refuses_leaves_no_file(tmp_path: Path, kubewright: Shell, cloud: Callable[[Faults], None]) -> None:
    class Refusing(FakeEc2):
        def __init__(self, region: str) -> None:
            super().__init__(Clock(), region=region, faults=Faults(call_s=0.0))
            self.fail_next("DescribeInstanceTypes", "UnauthorizedOperation", "You are not authorized")

    path = tmp_path / "new.json.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto, "BotoApi", Refusing)
        done = kubewright("catalogue", "refresh", "--region", "eu-west-1", "--output", path)
    assert done.code == 1
    assert "DescribeInstanceTypes: UnauthorizedOperation: You are not authorized" in done.err
    assert not path.exists()


@pytest.mark.parametrize("name", ["sandbox", "run", "crds", "catalogue", "version"])
def test_every_command_has_help(name: str, kubewright: Shell) -> None:
    done = kubewright(name, "--help")
    assert done.code == 0
    assert "Usage: kubewright " + name in done.out
    assert f"\n  {name}" in kubewright("--help").out
    short = cli.get_command(None, name)  # type: ignore[arg-type]
    assert short is not None
    assert not short.get_short_help_str(60).endswith("...")


def test_versions(kubewright: Shell) -> None:
    assert kubewright("version").out.startswith("kubewright 0.1.0 (Karpenter 1.14")
    assert kubewright("--version").out == "kubewright, version 0.1.0\n"


def test_crds_are_yaml_for_kubectl(kubewright: Shell) -> None:
    found = list(yaml.safe_load_all(kubewright("crds").out))
    assert {"NodePool", "NodeClaim", "EC2NodeClass"} <= {crd["spec"]["names"]["kind"] for crd in found}
    assert {crd["kind"] for crd in found} == {"CustomResourceDefinition"}


def test_the_region_of_the_list_is_the_sandbox_region() -> None:
    assert command.REGION in catalogue.embedded().regions
