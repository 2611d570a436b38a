"""Metrics and probes with the reference's names, so that dashboards and alerts need no change.

`table` declares every metric once, `registry` counts and writes them, `server` answers /metrics, /healthz and /readyz.
"""

from kubewright.metrics.registry import Registry
from kubewright.metrics.table import TABLE, Kind, Metric

__all__ = ["TABLE", "Kind", "Metric", "Registry"]
