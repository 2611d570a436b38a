"""Better and cheaper plans: `plan` composes first fit, the bound and the improver."""

from kubewright.packing.first_fit import plan

__all__ = ["plan"]
