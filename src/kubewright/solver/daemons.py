"""DaemonSets, each by one pod that stands for all of its own.

Source: spec/scheduling 3.7.
"""

from datetime import UTC, datetime

from msgspec.structs import replace

from kubewright.api.core import DaemonSet, Pod
from kubewright.scheduling.resources import has_claims, with_limits_as_requests
from kubewright.solver.problem import Problem

_EPOCH = datetime.min.replace(tzinfo=UTC)


def representatives(problem: Problem) -> list[Pod]:
    """One pod for every DaemonSet: its newest pod, else one made from its template. Source: spec/scheduling 3.7."""
    if not problem.surroundings.daemon_sets:
        return []
    newest: dict[str, Pod] = {}
    for place in (*problem.nodes, *problem.leaving):
        for pod in place.pods:
            owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "DaemonSet"), None)
            if owner is None:
                continue
            key = f"{pod.namespace}/{owner.name}"
            before = newest.get(key)
            if before is None or _age(pod) > _age(before):
                newest[key] = pod
    found: list[Pod] = []
    for daemon in problem.surroundings.daemon_sets:
        live = newest.get(daemon.key)
        chosen = _as_template_says(daemon, live) if live is not None else _from_template(daemon)
        if not (has_claims(chosen.spec) and problem.settings.ignore_dra_requests):
            found.append(chosen)
    return found


def _from_template(daemon: DaemonSet) -> Pod:
    template = daemon.spec.template
    meta = replace(daemon.metadata, labels=template.metadata.labels, annotations=template.metadata.annotations)
    return Pod(metadata=meta, spec=with_limits_as_requests(template.spec))


def _as_template_says(daemon: DaemonSet, live: Pod) -> Pod:
    """The live pod, with the template's required node affinity instead of the pin to its node."""
    written = daemon.spec.template.spec.affinity
    required = written.node_affinity.required if written is not None and written.node_affinity is not None else None
    affinity = live.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return live
    node = replace(affinity.node_affinity, required=required)
    return replace(live, spec=replace(live.spec, affinity=replace(affinity, node_affinity=node)))


def _age(pod: Pod) -> tuple[datetime, str]:
    return pod.metadata.creation_timestamp or _EPOCH, pod.name
