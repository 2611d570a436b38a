"""Better and cheaper plans: `plan` composes first fit, the bound and the improver."""

from kubewright.packing.compose import plan

__all__ = ["plan"]
