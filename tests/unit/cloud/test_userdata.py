import email
import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api.aws import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec, Kubelet
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


FULL = Kubelet(
    cluster_dns=("10.0.0.10",),
    pods_per_core=4,
    system_reserved={"memory": "100Mi", "cpu": "50m"},
    kube_reserved={"cpu": "80m"},
    eviction_hard={"memory.available": "5%"},
    eviction_soft={"nodefs.available": "15%"},
    eviction_soft_grace_period={"nodefs.available": "1m"},
    eviction_max_pod_grace_period=60,
    image_gc_high_threshold_percent=85,
    image_gc_low_threshold_percent=80,
    cpu_cfs_quota=False,
)


def test_al2_golden():
    found = render("AL2", "#!/bin/bash\necho hi", replace(BOOT, raid0=True), kubelet=FULL)
    assert found == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n#!/bin/bash\necho hi\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n#!/bin/bash -xe\n'
        "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n"
        "/etc/eks/bootstrap.sh 'sandbox' --apiserver-endpoint 'https://eks.example.com' --b64-cluster-ca 'Q0E=' \\\n"
        "--dns-cluster-ip '10.0.0.10' \\\n--use-max-pods false \\\n"
        '--kubelet-extra-args \'--node-labels="karpenter.sh/capacity-type=spot,team=shop" '
        '--register-with-taints="karpenter.sh/unregistered:NoExecute,dedicated=batch:NoSchedule" --max-pods=29 '
        '--pods-per-core=4 --system-reserved="cpu=50m,memory=100Mi" --kube-reserved="cpu=80m" '
        '--eviction-hard="memory.available<5%" --eviction-soft="nodefs.available<15%" '
        '--eviction-soft-grace-period="nodefs.available=1m" --eviction-max-pod-grace-period=60 '
        "--image-gc-high-threshold=85 --image-gc-low-threshold=80 --cpu-cfs-quota=false' \\\n"
        "--local-disks raid0\n--//--\n"
    )


def test_windows_golden():
    assert render("Windows2022", "Write-Host hi") == (
        "<powershell>\nWrite-Host hi\n"
        '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"\n'
        "& $EKSBootstrapScriptFile -EKSClusterName 'sandbox' -APIServerEndpoint 'https://eks.example.com' "
        "-Base64ClusterCA 'Q0E=' -KubeletExtraArgs '--node-labels=\"karpenter.sh/capacity-type=spot,team=shop\" "
        '--register-with-taints="karpenter.sh/unregistered:NoExecute,dedicated=batch:NoSchedule" --max-pods=29\' '
        "-DNSClusterIP '10.100.0.10'\n</powershell>\n"
    )


def test_bottlerocket_golden():
    found = render("Bottlerocket", '[settings.motd]\nx = "y"\n', replace(BOOT, raid0=True), kubelet=FULL)
    assert found == (
        '[settings.motd]\nx = "y"\n[settings.kubernetes]\ncluster-name = "sandbox"\napi-server = "https://eks.example.com"\n'
        'cluster-certificate = "Q0E="\nmax-pods = 29\ncluster-dns-ip = "10.0.0.10"\neviction-max-pod-grace-period = 60\n'
        'image-gc-high-threshold-percent = "85"\nimage-gc-low-threshold-percent = "80"\ncpu-cfs-quota-enforced = false\n'
        '[settings.kubernetes.node-labels]\nteam = "shop"\n"karpenter.sh/capacity-type" = "spot"\n'
        '[settings.kubernetes.node-taints]\n"karpenter.sh/unregistered" = [":NoExecute"]\ndedicated = ["batch:NoSchedule"]\n'
        '[settings.kubernetes.system-reserved]\nmemory = "100Mi"\ncpu = "50m"\n[settings.kubernetes.kube-reserved]\ncpu = "80m"\n'
        '[settings.kubernetes.eviction-hard]\n"memory.available" = "5%"\n'
        '[settings.kubernetes.eviction-soft]\n"nodefs.available" = "15%"\n'
        '[settings.kubernetes.eviction-soft-grace-period]\n"nodefs.available" = "1m"\n'
        '[settings.bootstrap-commands.000-mount-instance-storage]\nessential = true\nmode = "always"\n'
        'commands = [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind", '
        '"--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]]\n'
    )


@pytest.mark.parametrize(
    ("term", "image", "short"),
    [
        ({"alias": "bottlerocket@latest"}, "", True),
        ({"alias": "bottlerocket@1.46.0"}, "", True),
        ({"alias": "bottlerocket@v1.45.9"}, "", False),
        ({"name": "bottlerocket-aws-k8s-1.34-x86_64-v1.50.0-abc"}, "", True),
        ({"id": "ami-1"}, "bottlerocket-aws-k8s-1.34-x86_64-v1.20.1-abc", False),
        ({"id": "ami-1"}, "", False),
    ],
)
def test_old_bottlerocket_is_told_which_directories_to_bind(term, image, short):
    spec = EC2NodeClassSpec(ami_family="Bottlerocket", ami_selector_terms=(AmiSelectorTerm(**term),))
    text = userdata.render(EC2NodeClass(spec=spec), replace(BOOT, raid0=True, image_name=image))
    assert ("--dirs" not in text) == short


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "max_pods": st.integers(1, 500),
        "kube_reserved": st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["100m", "1", "2"])),
        "eviction_hard": st.dictionaries(st.sampled_from(["memory.available"]), st.sampled_from(["5%", "200Mi"])),
        "image_gc_high_threshold_percent": st.integers(50, 90),
        "cpu_cfs_quota": st.booleans(),
    },
)


@given(st.sampled_from(["AL2", "AL2023", "Bottlerocket", "Windows2022"]), PLAIN, ARGUMENTS, st.booleans())
def test_whatever_the_user_writes_what_comes_out_is_whole_and_has_it_and_us(family, written, kubelet, raid0):
    """Valid MIME, TOML, YAML and PowerShell block; the user's text in it; and a machine that reads it is told what we tell."""
    if family == "Bottlerocket":
        written = toml.write({"settings": {"motd": {"text": written}}, "other": [written]})
    boot = replace(BOOT, raid0=raid0)
    try:
        text = render(family, written, boot, kubelet=Kubelet(**kubelet))
    except UserDataError:
        assert family in ("AL2", "AL2023", "Windows2022")
        assert mime.is_mime(written) or "powershell>" in written.lower()
        return
    if family in ("AL2", "AL2023"):
        message = email.message_from_string(text)
        assert message.is_multipart()
        assert not message.defects
        parts = [str(p.get_payload()) for p in message.get_payload()]
        if written.strip() and not mime.is_mime(written):
            assert [p.rstrip("\n") for p in parts[:-1]] == [written.rstrip("\n")]
        if family == "AL2023":
            assert yaml.safe_load(parts[-1])["spec"]["cluster"]["name"] == "sandbox"
    elif family == "Bottlerocket":
        found = tomllib.loads(text)
        mine = tomllib.loads(written)
        assert (found["settings"]["motd"], found["other"]) == (mine["settings"]["motd"], mine["other"])
    else:
        assert text.startswith("<powershell>\n")
        assert text.count("<powershell>") == text.count("</powershell>") == 1
        assert written.rstrip("\n").strip() in text
    told = machine.told(userdata.encode(text))
    assert told.labels == dict(BOOT.labels)
    assert set(told.taints) == set(BOOT.taints)
    assert told.max_pods == 29
    if not raid0 or family == "Windows2022":
        assert not told.uses_local_disks
    else:
        assert told.uses_local_disks


@given(
    st.lists(
        st.tuples(st.sampled_from([mime.SHELL, "text/cloud-config", "application/node.eks.aws"]), PLAIN), min_size=1, max_size=5
    ),
    st.sampled_from(["==B==", "//", "x"]),
)
def test_the_parts_of_any_mime_document_come_back_with_their_types(parts, boundary):
    if any(f"--{boundary}" in body for _, body in parts):
        return
    lines = [f'Content-Type: multipart/mixed; boundary="{boundary}"', "MIME-Version: 1.0", ""]
    for kind, body in parts:
        lines += [f"--{boundary}", f"Content-Type: {kind}", "", body]
    written = "\n".join([*lines, f"--{boundary}--", ""])
    for family in ("AL2", "AL2023"):
        found = mime.read(render(family, written))
        assert [p.content_type for p in found[:-1]] == [kind for kind, _ in parts]
        assert [p.body.rstrip("\n") for p in found[:-1]] == [body.rstrip("\n") for _, body in parts]


def test_powershell_within_powershell_is_refused_with_a_mend():
    with pytest.raises(UserDataError, match="write the commands alone"):
        render("Windows2022", "<powershell>Write-Host hi</powershell>")


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
