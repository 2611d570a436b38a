"""Affinity and anti-affinity towards DaemonSets: on a node to come their pods will run, first of all.

So whoever must be beside them may go there, and whoever must not be is kept off. Differs from the reference on purpose, which
leaves the former pending, and buys nodes for the latter that kube-scheduler then refuses. Only for hostname terms, and only nodes
of which it is sure that the DaemonSet will run there.
"""

from collections.abc import Mapping, Sequence

from kubewright.api.core import Pod
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN
from kubewright.scheduling.requirements import Requirements, compatible
from kubewright.scheduling.taints import TOLERATES_PREFERENCES, untolerated
from kubewright.solver.nodes import ExistingNode, initialized
from kubewright.solver.templates import Template, daemon_alternatives


def daemon_rows(templates: Sequence[Template], daemons: Sequence[Pod], aliases: Mapping[str, str]) -> dict[str, int]:
    """NodePool → rows on every node of which one of these DaemonSets will run; pools without such rows are left out."""
    found: dict[str, int] = {}
    for template in templates:
        rows = 0
        for pod in daemons:
            rows |= _sure_rows(template, pod, aliases)
        if rows:
            found[template.name] = rows
    return found


def both_rows(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Rows of either, by NodePool."""
    return {pool: one.get(pool, 0) | other.get(pool, 0) for pool in sorted({*one, *other})}


def awaits(node: ExistingNode, daemons: Sequence[Pod], aliases: Mapping[str, str], *, surely: bool) -> bool:
    """Whether one of these DaemonSets will run on a node: `surely` only while it is coming up; later they run by now, or do not.

    Whoever must not be beside one stays away from nodes where it merely should run, too.
    """
    if surely and initialized(node.source):
        return False
    return any(
        not untolerated(node.taints, (*pod.spec.tolerations, TOLERATES_PREFERENCES))
        and any(compatible(node.requirements, wanted) is None for wanted in daemon_alternatives(pod, aliases))
        for pod in daemons
    )


def _sure_rows(template: Template, pod: Pod, aliases: Mapping[str, str]) -> int:
    if untolerated(template.taints, (*pod.spec.tolerations, TOLERATES_PREFERENCES)):
        return 0
    rows = 0
    for wanted in daemon_alternatives(pod, aliases):
        rows |= _surely(template, wanted)
    return rows


def _surely(template: Template, wanted: Requirements) -> int:
    """Rows all of whose nodes meet `wanted`, whatever else pods will ask of the claim."""
    columns = template.columns
    rows = columns.every
    for key, one in wanted.items():
        own = template.start.requirements.get(key)
        if own is not None and not own.complement and all(one.has(value) for value in own.values):
            continue
        listed = bad = 0
        for value, having in columns.values(key).items():
            listed |= having
            if not one.has(value) and (own is None or own.has(value)):
                bad |= having
        rows &= ~bad
        if own is not None or one.operator not in (NOT_IN, DOES_NOT_EXIST):
            rows &= listed
    return rows
