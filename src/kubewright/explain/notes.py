"""What a reader should know beyond who removed what: pinned pods, volumes apart, spreads in numbers, selectors that miss."""

from collections.abc import Callable, Iterator
from typing import Any

from kubewright.api import labels as names
from kubewright.api import selectors
from kubewright.api.core import NodeAffinity, Pod, PodAffinity, TopologySpreadConstraint
from kubewright.explain.constraints import amount_text, shut_zones, storage_of, term_text, zones_text
from kubewright.explain.reporting import Recorder
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import IN
from kubewright.scheduling.requirements import of_pod
from kubewright.scheduling.volumes import alternatives, claim_keys, dying_keys
from kubewright.solver.build import Parts
from kubewright.solver.problem import Plan, Problem
from kubewright.solver.solve import solve


def notes_on(problem: Problem, plan: Plan, pod: Pod, where: str) -> tuple[str, ...]:
    """`where` is the place the pod has, "" when it has none."""
    found = [*_selectors(pod), *_given_up(problem, pod), *_dying(problem, pod)]
    if where.startswith("node "):
        found.append("A node that exists is used before new capacity, whatever the weights of the NodePools.")
    if not where:
        found += [*_volumes(problem, pod), *_spreads(problem, pod, plan.unplaced.get(pod.key, ()))]
        if host := pinned(problem, pod):
            found.append(host)
    return tuple(dict.fromkeys(found))


def pinned(problem: Problem, pod: Pod) -> str:
    """For a pod that asks for one host by name: what is the matter with that host; "" for all others."""
    aliases = {**names.ALIASES, **problem.settings.label_aliases}
    try:
        asked = of_pod(pod.spec, preferences=False, aliases=aliases).get(names.HOSTNAME)
    except ValueError:
        return ""
    if asked is None or asked.operator != IN:
        return ""
    host = min(asked.values)
    new = "a new node can never have that name"
    parts = Parts(problem)
    node = next((n for n in parts.table.nodes if n.labels.get(names.HOSTNAME, n.name) == host), None)
    if node is None:
        return f"Pinned to node {host}, which does not exist; {new}."
    wanted = parts.cache.of(pod)
    short = [f"{amount_text(r, n - node.free.get(r, 0))} {r}" for r, n in sorted(wanted.items()) if n > node.free.get(r, 0)]
    if short:
        return f"Pinned to node {host}, which is full (short by {', '.join(short)}); {new}."
    return f"Pinned to node {host}; {new}."


def _volumes(problem: Problem, pod: Pod) -> Iterator[str]:
    """Volumes that no zone holds together, or that the node selector contradicts."""
    storage = storage_of(problem)
    zones: dict[str, frozenset[str]] = {}
    for claim in claim_keys(pod):
        found = alternatives((claim,), storage, dying_keys(pod))
        if isinstance(found, tuple) and found and all(names.ZONE in option for option in found):
            zones[claim.rpartition("/")[2]] = frozenset().union(*(option[names.ZONE].values for option in found))
    if not zones:
        return
    text = ", ".join(f"{claim} is in {' or '.join(sorted(values))}" for claim, values in zones.items())
    hint = "A StorageClass with volumeBindingMode WaitForFirstConsumer puts volumes where their pod is."
    if not frozenset.intersection(*zones.values()):
        yield f"Volume {text}: no zone holds all. {hint}"
        return
    asked = of_pod(pod.spec, preferences=False, aliases=storage.aliases).get(names.ZONE)
    if asked is not None and not any(asked.has(z) for z in frozenset.intersection(*zones.values())):
        who = "nodeSelector" if names.ZONE in pod.spec.node_selector else "nodeAffinity"
        yield f"Volume {text}: {who} wants {' or '.join(sorted(asked.values))}. {hint}"


def _spreads(problem: Problem, pod: Pod, refusals: tuple[Refusal, ...]) -> Iterator[str]:
    """What a spread would come to, domain by domain."""
    for refusal in refusals:
        if refusal.because is not Because.SPREAD or not refusal.facts.get("counts"):
            continue
        key = refusal.facts["key"]
        counts = {d: int(n) for d, _, n in (part.rpartition(": ") for part in refusal.facts["counts"].split(", ")) if n.isdigit()}
        own = next((c for c in pod.spec.topology_spread_constraints if c.topology_key == key), None)
        if own is None or not counts:
            continue
        least = 0 if len(counts) < (own.min_domains or 0) else min(counts.values())
        lying = _where_volumes_lie(problem, pod, key)
        allowed = [d for d in _listed(refusal.facts.get("podDomains", "")) or sorted(counts) if lying is None or d in lying]
        full = [f"{d} would have {counts[d] + 1}" for d in allowed if counts.get(d, 0) + 1 - least > own.max_skew and d in counts]
        word = "zone" if key == names.ZONE else key
        if full:
            who = "the volume" if lying is not None else "the pod"
            only = f"; {who} allows only {word} {' or '.join(allowed)}" if len(allowed) < len(counts) else ""
            emptiest = sorted(d for d, n in counts.items() if n == least)
            shut = key == names.ZONE and emptiest and shut_zones(problem).keys() >= set(emptiest)
            there = f" (in {' and '.join(emptiest)}, where nothing is for sale)" if shut else ""
            yield f"{word} {', '.join(full)}, minimum is {least}{there}, maxSkew {own.max_skew}{only}."


def _where_volumes_lie(problem: Problem, pod: Pod, key: str) -> frozenset[str] | None:
    """The values of `key` at which all volumes can be reached; None when they do not say."""
    found = alternatives(claim_keys(pod), storage_of(problem), dying_keys(pod))
    if not isinstance(found, tuple) or not all(key in option for option in found):
        return None
    return frozenset().union(*(option[key].values for option in found))


def _listed(text: str) -> list[str]:
    _, found, rest = text.partition(" In [")
    return rest.rstrip("]").split() if found else []


def _selectors(pod: Pod) -> Iterator[str]:
    for spread in pod.spec.topology_spread_constraints:
        if not selectors.matches(spread.label_selector, pod.metadata.labels):
            yield _misses(spread)


def _given_up(problem: Problem, pod: Pod) -> Iterator[str]:
    """Preferences that no place met; each is named by what it says."""
    if not _prefers(pod):
        return
    heard = Recorder()
    solve(problem, heard)
    affinity = pod.spec.affinity
    preferred: dict[str, list[str]] = (
        {
            "heaviest preferred node affinity": _heaviest(affinity.node_affinity, lambda t: term_text(t.preference)),
            "heaviest preferred pod affinity": _heaviest(
                affinity.pod_affinity, lambda t: f"over {t.pod_affinity_term.topology_key}"
            ),
            "heaviest preferred pod anti-affinity": _heaviest(
                affinity.pod_anti_affinity, lambda t: f"over {t.pod_affinity_term.topology_key}"
            ),
        }
        if affinity is not None
        else {}
    )
    for what in heard.given_up.get(pod.key, ()):
        terms = preferred.get(what, [])
        detail = f" {terms.pop(0)}" if terms else ""
        yield f"Gave up {what.removeprefix('heaviest ')}{detail}: no place takes the pod with it."


def _prefers(pod: Pod) -> bool:
    """Whether the pod says anything that may be given up."""
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def _heaviest(affinity: NodeAffinity | PodAffinity | None, text: Callable[[Any], str]) -> list[str]:
    """The preferred terms in the order in which they are given up."""
    terms = affinity.preferred if affinity is not None else ()
    return [text(t) for t in sorted(terms, key=lambda t: -t.weight)]


def _dying(problem: Problem, pod: Pod) -> Iterator[str]:
    """Volumes that end with the pod, which people expect to pin it."""
    storage = storage_of(problem)
    for claim in sorted(dying_keys(pod)):
        where = zones_text(claim, storage)
        if where:
            yield f"Volume {claim} ({where}) is ephemeral: it ends with this pod, and its successor may go where it fits."


def _misses(spread: TopologySpreadConstraint) -> str:
    return f"Warning: the selector of the spread over {spread.topology_key} does not match this pod, so it spreads nothing."
