"""The command line."""

from kubewright import VERSION as VERSION
