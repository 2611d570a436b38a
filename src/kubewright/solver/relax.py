"""What a pod gives up when no place takes it as it is: one thing at a time, in a fixed order.

Source: spec/scheduling 5.6.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from kubewright.api.core import Affinity, PodSpec
from kubewright.scheduling.taints import TOLERATES_PREFERENCES

SCHEDULE_ANYWAY = "ScheduleAnyway"


class _Weighted(Protocol):
    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=_Weighted)


def relaxations(spec: PodSpec, *, preferences: bool, prefer_taints: bool) -> Iterator[tuple[str, PodSpec]]:
    """Each next, weaker form of `spec` with what was given up, until nothing more may be.

    `preferences` is False under the Ignore policy, where preferences bind nobody and giving them up changes nothing;
    `prefer_taints` says whether some NodePool has a PreferNoSchedule taint.
    """
    while True:
        step = _required_term(spec) or (_preference(spec) if preferences else None) or (_taint(spec) if prefer_taints else None)
        if step is None:
            return
        yield step
        spec = step[1]


def _required_term(spec: PodSpec) -> tuple[str, PodSpec] | None:
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    node = affinity.node_affinity
    assert node.required is not None
    terms = node.required.node_selector_terms
    if len(terms) < 2:
        return None
    fewer = replace(node, required=replace(node.required, node_selector_terms=terms[1:]))
    return "first required node affinity term", replace(spec, affinity=replace(affinity, node_affinity=fewer))


def _preference(spec: PodSpec) -> tuple[str, PodSpec] | None:
    return (_affinity_preference(spec.affinity, spec) if spec.affinity is not None else None) or _spread(spec)


def _affinity_preference(affinity: Affinity, spec: PodSpec) -> tuple[str, PodSpec] | None:
    pod, anti, node = affinity.pod_affinity, affinity.pod_anti_affinity, affinity.node_affinity
    if pod is not None and pod.preferred:
        weaker = replace(affinity, pod_affinity=replace(pod, preferred=_without_heaviest(pod.preferred)))
        return "heaviest preferred pod affinity", replace(spec, affinity=weaker)
    if anti is not None and anti.preferred:
        weaker = replace(affinity, pod_anti_affinity=replace(anti, preferred=_without_heaviest(anti.preferred)))
        return "heaviest preferred pod anti-affinity", replace(spec, affinity=weaker)
    if node is not None and node.preferred:
        weaker = replace(affinity, node_affinity=replace(node, preferred=_without_heaviest(node.preferred)))
        return "heaviest preferred node affinity", replace(spec, affinity=weaker)
    return None


def _without_heaviest(terms: Sequence[W]) -> tuple[W, ...]:
    heaviest = max(range(len(terms)), key=lambda i: (terms[i].weight, -i))
    return (*terms[:heaviest], *terms[heaviest + 1 :])


def _spread(spec: PodSpec) -> tuple[str, PodSpec] | None:
    written = spec.topology_spread_constraints
    first = next((i for i, c in enumerate(written) if c.when_unsatisfiable == SCHEDULE_ANYWAY), None)
    if first is None:
        return None
    kept = list(written)
    kept[first] = kept[-1]
    kept.pop()
    return "a ScheduleAnyway spread", replace(spec, topology_spread_constraints=tuple(kept))


def _taint(spec: PodSpec) -> tuple[str, PodSpec] | None:
    if TOLERATES_PREFERENCES in spec.tolerations:
        return None
    return "PreferNoSchedule taints", replace(spec, tolerations=(*spec.tolerations, TOLERATES_PREFERENCES))
