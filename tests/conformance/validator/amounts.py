"""Quantities, and what a pod takes, by Kubernetes' own rules. Plain and slow; imports nothing of kubewright."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

J = Mapping[str, Any]
Amounts = dict[str, Fraction]
ZERO = Fraction(0)
_UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
_UNITS |= {u: Fraction(1000) ** i for i, u in enumerate("kMGTPE", 1)}
_UNITS |= {u + "i": Fraction(1024) ** i for i, u in enumerate("KMGTPE", 1)}


def amount(text: str) -> Fraction:
    """A Kubernetes quantity; Fraction reads an exponent such as 1e3 by itself."""
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _UNITS[text[len(digits) :]]


def amounts(written: Mapping[str, str | int] | None) -> Amounts:
    return {name: amount(str(text)) for name, text in (written or {}).items()}


def plus(into: Amounts, more: Mapping[str, Fraction]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, ZERO) + value


def raise_to(into: Amounts, other: Mapping[str, Fraction]) -> None:
    for name, value in other.items():
        into[name] = max(into.get(name, ZERO), value)


def requests(pod: J) -> Amounts:
    """What kube-scheduler counts for a pod (or a pod template): pods included."""
    spec, status = pod["spec"], pod.get("status", {})
    infeasible = status.get("resize") == "Infeasible" or any(
        c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in status.get("conditions", ())
    )
    total: Amounts = {}
    peak: Amounts = {}
    beside: Amounts = {}
    for container in spec.get("containers", ()):
        plus(total, _container(container, status.get("containerStatuses", ()), infeasible))
    for container in spec.get("initContainers", ()):
        own = _container(container, status.get("initContainerStatuses", ()), infeasible)
        if container.get("restartPolicy") == "Always":
            plus(total, own)
            plus(beside, own)
            own = dict(beside)
        else:
            plus(own, beside)
        raise_to(peak, own)
    raise_to(total, peak)
    for name, value in amounts(spec.get("resources", {}).get("requests")).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = value
    plus(total, amounts(spec.get("overhead")))
    plus(total, {"pods": Fraction(1)})
    return total


def _container(container: J, statuses: Iterable[J], infeasible: bool) -> Amounts:
    wanted = amounts(container.get("resources", {}).get("requests"))
    status = next((s for s in statuses if s["name"] == container.get("name")), None)
    if status is None or status.get("resources") is None:
        return wanted
    held = amounts(status["resources"].get("requests"))
    raise_to(held, amounts(status.get("allocatedResources")))
    if not infeasible:
        raise_to(held, wanted)
    return held


def machine(kind: J) -> Amounts:
    """What a node of an instance type has for pods; huge pages are taken from its memory."""
    left = amounts(kind["capacity"])
    for name, value in amounts(kind.get("overhead")).items():
        if name in left:
            left[name] -= value
    for name, value in amounts(kind["capacity"]).items():
        if name.startswith("hugepages-") and "memory" in left:
            left["memory"] = max(ZERO, left["memory"] - value)
    return left
