"""Refusals in plain words, each with what would turn it into a yes."""

from kubewright.scheduling.refusal import Because, Refusal


def sentence(refusal: Refusal) -> str:
    """What was wanted, what was found, and what to try."""
    where = f"NodePool {refusal.where}: " if refusal.where else ""
    return where + _sentence(refusal)


def _sentence(refusal: Refusal) -> str:
    facts = refusal.facts
    match refusal.because:
        case Because.TAINT:
            return f"the pod does not tolerate {refusal.found}. Add that toleration to the pod, or use another pool."
        case Because.UNKNOWN_LABEL:
            key = facts.get("keys", "")
            meant = f" Did you mean {facts['hint']}?" if facts.get("hint") else ""
            return (
                f"the pod wants {refusal.wanted}, but the pool sets neither a template label nor a requirement for {key}."
                f"{meant} Add one of the two to the pool, or drop it from the pod."
            )
        case Because.LABEL:
            return f"the pod wants {refusal.wanted}, the pool allows {refusal.found}. Widen one of the two."
        case Because.LIMITS:
            return f"the limit on {facts.get('limit', 'resources')} is used up. Raise spec.limits or free capacity."
        case Because.RESOURCES:
            return "no instance type that suits the pod is large enough. Lower its requests, or allow larger types."
        case Because.OFFERING:
            return "nothing that suits the pod is for sale now. Allow more zones, capacity types or instance types, or wait."
        case Because.INSTANCE_TYPE:
            return "no instance type meets all that the pod and the pool ask for. Widen the requirements."
        case Because.SPREAD | Because.AFFINITY | Because.ANTI_AFFINITY:
            shape, key, counts = facts.get("shape", "topology"), facts.get("key", ""), facts.get("counts", "")
            return f"no value of {key} satisfies the pod's {shape} (pods there now: {counts or 'none'})."
        case Because.MIN_VALUES:
            return f"too few different values of {facts.get('keys', '')} would be left. Lower minValues or widen the pool."
        case Because.RESERVED:
            return (
                "only reserved capacity suits the pod, and other nodes take all of it. Allow on-demand as well, or reserve more."
            )
        case Because.VOLUME:
            return f"volume {refusal.wanted}: {refusal.found}."
        case Because.UNSUPPORTED:
            return f"{facts.get('field', refusal.wanted)}: {refusal.found}."
        case Because.NO_POOL:
            return refusal.found + "."
    return refusal.found or str(refusal.because)
