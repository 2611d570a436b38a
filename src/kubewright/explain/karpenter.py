"""Refusals in Karpenter's words, for the FailedScheduling events that users grep for.

Source: spec/scheduling 1.9, 2.5, 3.5, 3.6, 5.7, 5.8, 6.6.
"""

from collections.abc import Iterable, Mapping

from kubewright.scheduling.refusal import Because, Refusal

_TRIPLE = {
    (False, False, False): (
        "no instance type met the scheduling requirements or had enough resources or had a required offering"
    ),
    (False, False, True): "no instance type met the scheduling requirements or had enough resources",
    (False, True, False): "no instance type met the scheduling requirements or had a required offering",
    (True, False, False): "no instance type had enough resources or had a required offering",
    (False, True, True): "no instance type met all requirements",
    (True, False, True): "no instance type has enough resources",
    (True, True, False): "no instance type has the required offering",
}
_PAIRS = (
    (
        "met-fits",
        "no instance type which met the scheduling requirements and had enough resources, had a required offering",
    ),
    (
        "fits-offered",
        "no instance type which had enough resources and the required offering met the scheduling requirements",
    ),
    (
        "met-offered",
        "no instance type which met the scheduling requirements and the required offering had the required resources",
    ),
)


def failed_scheduling(refusals: Iterable[Refusal]) -> str:
    """The event's message for a pod that nobody took."""
    return f"Failed to schedule pod, {'; '.join(map(karpenter_text, refusals))}"


def karpenter_text(refusal: Refusal) -> str:
    """One refusal as Karpenter would print it."""
    facts = refusal.facts
    match refusal.because:
        case Because.TAINT:
            return "; ".join(f"did not tolerate taint (taint={taint})" for taint in facts.get("taints", "").split("; "))
        case Because.UNKNOWN_LABEL:
            hint = f' (typo of "{facts["hint"]}"?)' if facts.get("hint") else ""
            return f'incompatible requirements, label "{facts.get("keys", "")}" does not have known values{hint}'
        case Because.LABEL:
            return f"incompatible requirements, {facts.get('detail', '')}"
        case Because.LIMITS:
            if facts.get("limit") == "nodes":
                return f"node limits have been exhausted for nodepool (NodePool={refusal.where})"
            return f"all available instance types exceed limits for nodepool (NodePool={refusal.where})"
        case Because.INSTANCE_TYPE | Because.RESOURCES | Because.OFFERING if "met" in facts:
            return _instance_types(facts)
        case Because.SPREAD | Because.AFFINITY | Because.ANTI_AFFINITY if "counts" in facts:
            return (
                f"unsatisfiable topology constraint for {facts['shape']}, key={facts['key']} (counts = {facts['counts']}, "
                f"podDomains = {facts['podDomains']}, nodeDomains = {facts['nodeDomains']}"
            )
        case Because.MIN_VALUES if facts.get("truncated"):
            return (
                "pod didn\u2019t schedule because NodePool couldn\u2019t meet minValues requirements, validating minValues, "
                f"minValues requirement is not met for label(s) (label(s)=[{facts['keys']}]) (NodePool={refusal.where})"
            )
        case Because.MIN_VALUES:
            return f"minValues requirement is not met for label(s) (label(s)=[{facts.get('keys', '')}])"
        case Because.RESERVED:
            return "one or more instance types with compatible reserved offerings are available, but could not be reserved"
        case Because.VOLUME:
            named = ", ".join(f"{key}={value}" for key, value in sorted(facts.items()))
            return f"{refusal.found} ({named})" if named else refusal.found
        case Because.INVALID:
            return facts.get("detail", refusal.found)
    return refusal.found or facts.get("detail", "") or str(refusal.because)


def _instance_types(facts: Mapping[str, str]) -> str:
    def some(name: str) -> bool:
        return facts.get(name, "0") != "0"

    text = _TRIPLE.get((some("met"), some("fits"), some("offered")))
    if text is None:
        text = next((t for name, t in _PAIRS if some(name)), "no instance type met the requirements/resources/offering tuple")
    typo = " (CPU request >= 1 Million, m vs M typo?)" if facts.get("cpu-typo") else ""
    return f"{text}, requirements={facts.get('requirements', '')}, resources={facts.get('resources', '{}')}{typo}"
