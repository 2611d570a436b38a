"""The installation as plain YAML: what people choose stands where it belongs, and nothing else changes."""

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.cli.main import cli
from kubewright.errors import ConfigError
from kubewright.install import manifests
from kubewright.operator import options

NAMES = st.from_regex(r"\A[a-z]([a-z0-9-]{0,20}[a-z0-9])?\Z")


@settings(deadline=None, max_examples=20)
@given(namespace=NAMES, cluster=NAMES, image=NAMES, cloud=st.sampled_from(["aws", "kwok"]))
def test_no_stand_in_is_left_and_every_choice_arrives(namespace, cluster, image, cloud):
    text = manifests.show(manifests.manifests(namespace=namespace, cluster_name=cluster, image=image, cloud=cloud))
    for stand_in in (manifests.NAMESPACE, manifests.CLUSTER, manifests.IMAGE):
        assert stand_in not in text
    objects = list(yaml.safe_load_all(text))
    deployment = next(o for o in objects if o["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == image
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["CLUSTER_NAME"] == cluster
    assert env["KUBEWRIGHT_CLOUD"] == cloud
    assert {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]} <= {namespace, "kube-system"}
    subjects = [s for o in objects for s in o.get("subjects", ())]
    assert subjects
    assert {s["namespace"] for s in subjects} == {namespace}


def test_variables_are_added_replaced_and_taken_away():
    objects = manifests.manifests(
        namespace="n", cluster_name="c", image="i", environment={"BATCH_IDLE_DURATION": "2s", "LOG_LEVEL": "", "EXTRA": "x"}
    )
    container = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]
    names = [e["name"] for e in container["env"]]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert len(names) == len(set(names))
    assert (env["BATCH_IDLE_DURATION"], env["EXTRA"]) == ("2s", "x")
    assert "LOG_LEVEL" not in env


def test_aws_needs_the_name_of_the_cluster():
    with pytest.raises(ConfigError, match="--cluster-name"):
        manifests.manifests(namespace="n", cluster_name="", image="i")


@pytest.mark.parametrize("cloud", ["aws", "kwok"])
def test_the_operator_takes_what_the_deployment_tells_it_without_a_warning(cloud):
    objects = manifests.manifests(namespace="karpenter", cluster_name="c", image="i", cloud=cloud)
    container = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["run"]
    found = options.parse([], {e["name"]: e["value"] for e in container["env"] if "value" in e})
    assert found.warnings == ()
    # What is handed on are the defaults: an installation without values behaves as the command alone.
    assert found.settings == options.parse([], {"CLUSTER_NAME": "c"}).settings
    assert (found.leader_election_name, found.leader_election_namespace) == ("karpenter-leader-election", "karpenter")
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert (ports["http-metrics"], ports["http"]) == (found.metrics_port, found.health_probe_port)


def test_the_command_prints_definitions_first_and_the_installation_after_them():
    done = CliRunner().invoke(cli, ["manifests", "--cluster-name", "c"])
    assert done.exit_code == 0
    kinds = [o["kind"] for o in yaml.safe_load_all(done.output)]
    assert kinds.index("Deployment") > max(i for i, kind in enumerate(kinds) if kind == "CustomResourceDefinition")
    wrong = CliRunner().invoke(cli, ["manifests", "--cluster-name", "c", "--env", "NOVALUE"])
    assert wrong.exit_code != 0
    assert "NAME=VALUE" in wrong.output
