"""Wiring, flags and environment."""

from kubewright.operator.operator import Operator
from kubewright.operator.options import Options, parse
from kubewright.operator.process import run

__all__ = ["Operator", "Options", "parse", "run"]
