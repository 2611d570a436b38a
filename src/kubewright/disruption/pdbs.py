"""PodDisruptionBudgets that can never let anybody go, told from those that are merely exhausted, by arithmetic.

An HPA or an edit can lift a "never" at any time: nothing here is remembered between passes. Source: the disruption controller's
rules (percentages are rounded up, of the pods the budget expects), spec/disruption 1.3 and 1.7.
"""

from kubewright.api.core import PodDisruptionBudget


def never(budget: PodDisruptionBudget) -> str:
    """Why the budget refuses every eviction while it and the number of its pods stay as they are; "" if it does not."""
    spec, status = budget.spec, budget.status
    stale = status.observed_generation < budget.metadata.generation
    expected = 0 if stale else status.expected_pods
    if spec.max_unavailable is not None:
        if spec.max_unavailable in (0, "0", "0%"):
            return f"maxUnavailable is {spec.max_unavailable}"
        return ""
    if spec.min_available is None:
        return ""
    if spec.min_available == "100%":
        return "minAvailable is 100%"
    needed = _of(spec.min_available, expected)
    if expected and needed is not None and needed >= expected:
        return f"minAvailable is {spec.min_available} and there are only {expected} pods"
    return ""


def _of(written: int | str, expected: int) -> int | None:
    """The number that a value stands for, percentages rounded up; None when it cannot be read."""
    if isinstance(written, int):
        return written
    text = written.removesuffix("%")
    if not (text.isascii() and text.isdigit()):
        return None
    return -(-int(text) * expected // 100) if written.endswith("%") else int(text)
