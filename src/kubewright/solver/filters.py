"""Whether the nodes that an open claim may become pass a topology group's node filter, so that its pods count there.

Source: spec/scheduling 6.3, 6.5.
"""

from kubewright.scheduling.requirements import conflict
from kubewright.scheduling.taints import untolerated
from kubewright.solver.claims import OpenClaim
from kubewright.solver.templates import State
from kubewright.solver.topology import Group


def count_late(claim: OpenClaim, state: State) -> None:
    """Count pods that were put on the claim before it had one value of the key."""
    if not claim.uncounted:
        return
    still: list[tuple[Group, int]] = []
    for group, pods in claim.uncounted:
        domain = state.single(group.term.key)
        if domain is None or not claim_passes(group, state):
            still.append((group, pods))
        else:
            group.counts[domain] = group.counts.get(domain, 0) + pods
    claim.uncounted = still


def note_doubts(claim: OpenClaim, state: State) -> None:
    """Tell groups of pods that do not count only because the claim's other labels are open: they may once these are settled."""
    if not claim.uncounted and not claim.doubts:
        return
    for group, domain, pods in claim.doubts:
        group.doubted[domain] -= pods
        if not group.doubted[domain]:
            del group.doubted[domain]
    claim.doubts = []
    for group, pods in claim.uncounted:
        where = state.single(group.term.key)
        if where is not None and claim_may_pass(group, state):
            claim.doubts.append((group, where, pods))
            group.doubted[where] = group.doubted.get(where, 0) + pods


def would_count(claim: OpenClaim, state: State) -> dict[int, int]:
    """Pods that were put on the claim before, and that would begin to count in this state: index of the group → how many."""
    found: dict[int, int] = {}
    for group, pods in claim.uncounted:
        if state.single(group.term.key) is not None and claim_passes(group, state):
            found[group.index] = found.get(group.index, 0) + pods
    return found


def claim_passes(group: Group, state: State) -> bool:
    """Whether every node that a claim in this state may become passes the group's node filter."""
    found = group.passes.get(state)
    if found is None:
        found = group.passes[state] = _surely_passes(group, state)
    return found


def claim_may_pass(group: Group, state: State) -> bool:
    """Whether some node that a claim in this state may become passes the group's node filter."""
    nodes = group.term.filter
    if nodes.tolerations is not None and untolerated(state.template.taints, nodes.tolerations):
        return False
    if not nodes.alternatives:
        return True
    return any(conflict(state.requirements, wanted) is None for wanted in nodes.alternatives)


def _surely_passes(group: Group, state: State) -> bool:
    nodes = group.term.filter
    if nodes.tolerations is not None and untolerated(state.template.taints, nodes.tolerations):
        return False
    if not nodes.alternatives:
        return True
    have = state.requirements
    for wanted in nodes.alternatives:
        for key, asked in wanted.items():
            own = have.get(key)
            if own is None:
                if asked.operator not in ("NotIn", "DoesNotExist"):
                    break
            elif own.complement:
                if not asked.complement or not asked.values <= own.values:
                    break
            elif not all(asked.has(value) for value in own.values):
                break
        else:
            return True
    return False
