"""kubewright's example of a third-party provider: machines that are Nodes, which kwok keeps alive."""

from kubewright_kwok.provider import KwokProvider, make

__all__ = ["KwokProvider", "make"]
