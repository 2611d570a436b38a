"""kubewright: buys and removes the machines of a Kubernetes cluster, in Karpenter's language."""

VERSION = "0.1.0"
