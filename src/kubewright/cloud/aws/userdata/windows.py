"""Windows: one PowerShell block, the user's text first. Source: spec/aws 4.6."""

from kubewright.api.aws import EC2NodeClassSpec, Kubelet
from kubewright.cloud.aws.userdata import arguments
from kubewright.cloud.aws.userdata.boot import Boot, UserDataError

OPEN, CLOSE = "<powershell>", "</powershell>"


def render(written: str, spec: EC2NodeClassSpec, boot: Boot) -> str:
    """Raises UserDataError: the user's text would end our block, or begin another."""
    for tag in (OPEN, CLOSE):
        if tag in written.lower():
            raise UserDataError(f"spec.userData: found {tag}; write the commands alone, they are put into such a block")
    kubelet = spec.kubelet or Kubelet()
    dns = kubelet.cluster_dns or boot.cluster_dns
    call = [
        "& $EKSBootstrapScriptFile",
        f"-EKSClusterName '{boot.cluster_name}'",
        f"-APIServerEndpoint '{boot.endpoint}'",
        f"-Base64ClusterCA '{boot.ca_bundle}'",
        f"-KubeletExtraArgs '{' '.join(arguments.of(kubelet, boot))}'",
    ]
    if dns:
        call.append(f"-DNSClusterIP '{dns[0]}'")
    lines = [
        OPEN,
        *([written.rstrip("\n")] if written.strip() else []),
        '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"',
        " ".join(call),
        CLOSE,
    ]
    return "\n".join(lines) + "\n"
