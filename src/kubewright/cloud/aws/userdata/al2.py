"""AL2: a shell script that calls the image's bootstrap script, after the user's parts. Source: spec/aws 4.3."""

from kubewright.api.aws import EC2NodeClassSpec, Kubelet
from kubewright.cloud.aws.userdata import arguments, mime
from kubewright.cloud.aws.userdata.boot import Boot


def render(written: str, spec: EC2NodeClassSpec, boot: Boot) -> str:
    return mime.write([*mime.users(written, mime.SHELL), mime.Part(mime.SHELL, _script(spec, boot))])


def _script(spec: EC2NodeClassSpec, boot: Boot) -> str:
    kubelet = spec.kubelet or Kubelet()
    dns = kubelet.cluster_dns or boot.cluster_dns
    options = []
    if dns and ":" in dns[0]:
        options.append("--ip-family ipv6")
    if dns:
        options.append(f"--dns-cluster-ip '{dns[0]}'")
    options.append("--use-max-pods false")
    options.append(f"--kubelet-extra-args '{' '.join(arguments.of(kubelet, boot))}'")
    if boot.raid0:
        options.append("--local-disks raid0")
    server = f"--apiserver-endpoint '{boot.endpoint}' --b64-cluster-ca '{boot.ca_bundle}'"
    call = f"/etc/eks/bootstrap.sh '{boot.cluster_name}' {server}"
    lines = (
        "#!/bin/bash -xe",
        "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1",
        " \\\n".join((call, *options)),
    )
    return "\n".join(lines)
