import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api.aws import EC2NodeClass, EC2NodeClassSpec, Kubelet
from kubewright.api.core import Taint
from kubewright.cloud.aws import userdata
from kubewright.cloud.aws.userdata import Boot, UserDataError, mime, toml
from kubewright.sim.ec2 import boot as machine

BOOT = Boot(
    cluster_name="sandbox",
    endpoint="https://eks.example.com",
    ca_bundle="Q0E=",
    service_cidr="10.100.0.0/16",
    cluster_dns=("10.100.0.10",),
    max_pods=29,
    labels={"team": "shop", "karpenter.sh/capacity-type": "spot"},
    taints=(
        Taint(key="karpenter.sh/unregistered", effect="NoExecute"),
        Taint(key="dedicated", value="batch", effect="NoSchedule"),
    ),
)
PLAIN = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=300)


def render(family: str, written: str = "", boot: Boot = BOOT, **spec) -> str:
    return userdata.render(EC2NodeClass(spec=EC2NodeClassSpec(ami_family=family, user_data=written, **spec)), boot)


def test_al2023_golden():
    assert render("AL2023", "#!/bin/bash\necho hi") == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n#!/bin/bash\necho hi\n'
        "--//\nContent-Type: application/node.eks.aws\n\n# Karpenter Generated NodeConfig\n"
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nmetadata: {}\nspec:\n  cluster:\n"
        "    apiServerEndpoint: https://eks.example.com\n    certificateAuthority: Q0E=\n"
        "    cidr: 10.100.0.0/16\n    name: sandbox\n"
        "  containerd: {}\n  instance:\n    localStorage: {}\n  kubelet:\n    config:\n      clusterDNS:\n      - 10.100.0.10\n"
        "      maxPods: 29\n      registerWithTaints:\n      - effect: NoExecute\n        key: karpenter.sh/unregistered\n"
        "      - effect: NoSchedule\n        key: dedicated\n        value: batch\n    flags:\n"
        '    - --node-labels="karpenter.sh/capacity-type=spot,team=shop"\n\n--//--\n'
    )


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022"])
def test_a_machine_that_boots_with_it_registers_as_told(family):
    encoded = userdata.encode(render(family))
    told = machine.told(encoded)
    assert told.labels == dict(BOOT.labels)
    assert set(told.taints) == set(BOOT.taints)
    assert told.max_pods == 29


@given(PLAIN)
def test_al2023_never_loses_the_users_script(written):
    parts = mime.read(render("AL2023", written)) if not mime.is_mime(written) else []
    if written.strip() and parts:
        assert written.rstrip("\n") == parts[0].body.rstrip("\n")
    if parts:
        ours = yaml.safe_load(parts[-1].body)
        assert ours["spec"]["cluster"]["name"] == "sandbox"


@given(st.lists(PLAIN.filter(lambda t: "--" not in t), min_size=1, max_size=4))
def test_al2023_keeps_every_part_of_the_users_mime_in_order(bodies):
    written = mime.write([mime.Part(mime.SHELL, body, (("X-Kept", "yes"),)) for body in bodies])
    parts = mime.read(render("AL2023", written))
    assert [p.body.rstrip("\n") for p in parts[:-1]] == [b.rstrip("\n") for b in bodies]
    assert all(p.headers == (("X-Kept", "yes"),) for p in parts[:-1])


def test_a_users_node_config_comes_before_ours():
    written = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 5\n"
    parts = mime.read(render("AL2023", written))
    assert [p.content_type for p in parts] == ["application/node.eks.aws"] * 2
    assert "maxPods: 5" in parts[0].body
    assert machine.told(userdata.encode(render("AL2023", written))).max_pods == 29


KEYS = st.text('abc-_ ."é', min_size=1, max_size=6)
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(max_size=8).filter(lambda t: "\r" not in t)
    | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_as_toml_reads_back(table):
    assert tomllib.loads(toml.write(table)) == table


@given(
    st.dictionaries(
        st.sampled_from(["motd", "kernel", "host-containers", "x"]),
        st.dictionaries(KEYS, st.text("ab\n\"'", max_size=6)),
        max_size=3,
    )
)
def test_bottlerocket_never_loses_the_users_settings(settings):
    found = tomllib.loads(render("Bottlerocket", toml.write({"settings": settings})))["settings"]
    assert {key: found[key] for key in settings} == settings
    assert found["kubernetes"]["cluster-name"] == "sandbox"


def test_bottlerocket_keeps_kubernetes_settings_it_does_not_know_and_lets_ours_win():
    written = '[settings.kubernetes]\ncluster-name = "mine"\nbrand-new = 7\n'
    written += '[settings.kubernetes.node-labels]\nteam = "other"\nkept = "1"\n'
    found = tomllib.loads(render("Bottlerocket", written, kubelet=Kubelet(image_gc_high_threshold_percent=80)))["settings"][
        "kubernetes"
    ]
    assert found["cluster-name"] == "sandbox"
    assert found["brand-new"] == 7
    assert found["node-labels"] == {**BOOT.labels, "kept": "1"}
    assert found["image-gc-high-threshold-percent"] == "80"


def test_bottlerocket_refuses_what_is_not_toml():
    with pytest.raises(UserDataError, match=r"spec.userData: not TOML"):
        render("Bottlerocket", "set -e")


def test_custom_user_data_is_left_alone():
    assert render("Custom", "anything\r\n at all") == "anything\n at all"


def test_too_long_is_refused_before_ec2_does():
    with pytest.raises(UserDataError, match="16384"):
        render("AL2023", "#" * 20_000)
