"""Which nodes may be disrupted at all, and what stands in the way of the others.

Source: spec/disruption 1.3.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from kubewright.api import labels
from kubewright.api.core import Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.disruption.reasons import Class
from kubewright.lifecycle import pods, state
from kubewright.lifecycle.pods import PdbIndex
from kubewright.solver.problem import Pool, Snapshot, StateNode


class Candidate(msgspec.Struct, frozen=True):
    """A node that may be disrupted."""

    known: StateNode
    claim: NodeClaim
    pool: NodePool
    reschedulable: tuple[Pod, ...] = ()
    """Its pods that would need another home, by key."""
    usd_per_hour: float = 0.0
    """What it costs; 0 where its type or offering is not known any more."""

    @property
    def name(self) -> str:
        return state.name(self.known)

    @property
    def provider_id(self) -> str:
        return state.provider_id(self.known)

    @property
    def is_empty(self) -> bool:
        """Nothing on it would need another home."""
        return not self.reschedulable


class Blocked(msgspec.Struct, frozen=True):
    """A node that may not be disrupted now, and why; `tell` False where nobody wants an event about it."""

    known: StateNode
    why: str
    tell: bool = True


class Candidates(msgspec.Struct, frozen=True):
    found: tuple[Candidate, ...] = ()
    """By name."""
    blocked: tuple[Blocked, ...] = ()


def candidates(snapshot: Snapshot, how: Class, queued: Collection[str] = ()) -> Candidates:
    """Every node of the snapshot, judged; `queued` are the providerIDs that a command already has in hand."""
    guards = PdbIndex.of(snapshot.surroundings.budgets)
    pools = {pool.node_pool.name: pool for pool in snapshot.pools}
    found: list[Candidate] = []
    blocked: list[Blocked] = []
    for known in snapshot.nodes:
        judged = judge(known, how, pools, guards, queued=queued, now=snapshot.now)
        if isinstance(judged, Candidate):
            found.append(judged)
        else:
            blocked.append(judged)
    return Candidates(tuple(found), tuple(blocked))


def judge(
    known: StateNode,
    how: Class,
    pools: Mapping[str, Pool],
    guards: PdbIndex,
    *,
    queued: Collection[str],
    now: datetime,
) -> Candidate | Blocked:
    """One node; the first thing in the way is the one that is named."""
    claim = known.claim
    if claim is None or state.provider_id(known) in queued:
        return Blocked(known, "it is not managed" if claim is None else "a command is under way", tell=False)
    why = _state_problem(known, now)
    if why:
        return Blocked(known, why)
    pool = pools.get(state.labels_of(known)[labels.NODEPOOL])
    if pool is None or not pool.instance_types:
        return Blocked(known, f"NodePool not found (NodePool={state.labels_of(known)[labels.NODEPOOL]})")
    if not (how is Class.EVENTUAL and claim.spec.termination_grace_period is not None):
        why = _pod_problem(known.pods, guards, now)
        if why:
            return Blocked(known, why)
    moving = tuple(p for p in known.pods if pods.is_reschedulable(p))
    return Candidate(known, claim, pool.node_pool, moving, price_of(known, pool))


def price_of(known: StateNode, pool: Pool) -> float:
    """$/h of the offering the node was bought as, whether or not it can be bought now; 0 if it is not offered any more."""
    carried = state.labels_of(known)
    wanted = carried.get(labels.INSTANCE_TYPE, "")
    kind = next((t for t in pool.instance_types if t.name == wanted), None)
    if kind is None:
        return 0.0
    zone, capacity_type = carried.get(labels.ZONE, ""), carried.get(labels.CAPACITY_TYPE, "")
    return min((o.price for o in kind.offerings if (o.zone, o.capacity_type) == (zone, capacity_type)), default=0.0)


def _state_problem(known: StateNode, now: datetime) -> str:
    if known.node is None:
        return "Node isn't registered"
    if not state.is_initialized(known):
        return "Node isn't initialized"
    if known.marked_for_deletion:
        return "Node is deleting or marked for deletion"
    if known.nominated_until is not None and known.nominated_until > now:
        return "Node is nominated for a pending pod"
    if known.node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return f'Disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
    if not state.labels_of(known).get(labels.NODEPOOL):
        return f"Node doesn't have required label (label={labels.NODEPOOL})"
    return ""


def _pod_problem(bound: Sequence[Pod], guards: PdbIndex, now: datetime) -> str:
    for pod in bound:
        if not pods.is_disruptable(pod, now):
            return f'Pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
    for pod in bound:
        blocking = guards.blocking(pod, now)
        if len(blocking) > 1:
            return f"Eviction does not support multiple PDBs (PDB(s)=[{' '.join(b.key for b in blocking)}])"
        if blocking:
            return f"PDB prevents pod evictions (PDB={blocking[0].key})"
    return ""
