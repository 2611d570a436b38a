"""Kubernetes and Karpenter objects as narrow frozen values, and the small languages they are written in."""
