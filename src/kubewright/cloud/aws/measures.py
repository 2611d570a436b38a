"""Metrics of the AWS provider; silent until somebody who has a registry hands it over. Source: spec/aws 11."""

from collections.abc import Mapping

from kubewright.metrics import Registry


class Measures:
    """What modules count on. `registry` may come later than they do: the operator makes it."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        if self.registry is not None:
            self.registry.inc(name, amount, **labels)

    def set(self, name: str, value: float, /, **labels: str) -> None:
        if self.registry is not None:
            self.registry.set(name, value, **labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        if self.registry is not None:
            self.registry.observe(name, value, **labels)

    def replace(self, name: str, series: Mapping[tuple[str, ...], float]) -> None:
        """Let a gauge have exactly these series."""
        if self.registry is not None:
            self.registry.replace(name, series)
