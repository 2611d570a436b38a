"""AL2023: a NodeConfig document for nodeadm, last, so that it wins over the user's. Source: spec/aws 4.4."""

from typing import Any

import msgspec
import yaml

from kubewright.api.aws import EC2NodeClassSpec, Kubelet
from kubewright.cloud.aws.userdata import mime
from kubewright.cloud.aws.userdata.boot import Boot, pairs, taint_lines

NODE_CONFIG = "application/node.eks.aws"
MARK = "# Karpenter Generated NodeConfig"


def render(written: str, spec: EC2NodeClassSpec, boot: Boot) -> str:
    plain = NODE_CONFIG if _is_map(written) else mime.SHELL
    return mime.write([*mime.users(written, plain), mime.Part(NODE_CONFIG, _document(spec.kubelet or Kubelet(), boot))])


def _is_map(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False


def _document(kubelet: Kubelet, boot: Boot) -> str:
    config: dict[str, Any] = msgspec.to_builtins(kubelet)
    config["maxPods"] = boot.max_pods
    if boot.cluster_dns:
        config.setdefault("clusterDNS", list(boot.cluster_dns))
    if boot.taints:
        config["registerWithTaints"] = taint_lines(boot.taints)
    flags = {"flags": [f'--node-labels="{pairs(boot.labels)}"']} if boot.labels else {}
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": {
                "apiServerEndpoint": boot.endpoint,
                "certificateAuthority": boot.ca_bundle,
                "cidr": boot.service_cidr,
                "name": boot.cluster_name,
            },
            "containerd": {},
            "instance": {"localStorage": {"strategy": "RAID0"} if boot.raid0 else {}},
            "kubelet": {"config": config, **flags},
        },
    }
    return f"{MARK}\n{yaml.safe_dump(document, sort_keys=True, default_flow_style=False, width=1 << 16)}"
