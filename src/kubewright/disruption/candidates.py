"""Which nodes may be disrupted at all, and what stands in the way of the others.

Source: spec/disruption 1.3.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.api import labels
from kubewright.api.core import Pod, PodDisruptionBudget
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.catalogue.types import InstanceType
from kubewright.disruption import cost, pdbs
from kubewright.disruption.freeze import frozen_until
from kubewright.disruption.reasons import Class
from kubewright.disruption.stays import Because, Stay
from kubewright.lifecycle import pods, state
from kubewright.lifecycle.pods import PdbIndex
from kubewright.settings import DisruptionSettings
from kubewright.solver.problem import Pool, Snapshot, StateNode

BLOCKED = "DisruptionBlocked"
SETTLED = DisruptionSettings(settled_after=timedelta())
"""Under which nothing counts as new."""


class Candidate(msgspec.Struct, frozen=True):
    """A node that may be disrupted."""

    known: StateNode
    claim: NodeClaim
    pool: NodePool
    reschedulable: tuple[Pod, ...] = ()
    """Its pods that would need another home, by key."""
    usd_per_hour: float = 0.0
    """What it costs; 0 where its type or offering is not known any more."""
    disturbance: float = 1.0
    """What emptying it costs, see `cost`."""
    movers: tuple[Pod, ...] = ()
    """Of `reschedulable` those that can be asked to leave: a new home is found, and bought, for these only."""
    is_type_known: bool = True
    """Whether the pool's catalogue still has its instance type."""

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

    @property
    def capacity_type(self) -> str:
        return state.labels_of(self.known).get(labels.CAPACITY_TYPE, "")

    @property
    def zone(self) -> str:
        return state.labels_of(self.known).get(labels.ZONE, "")

    @property
    def instance_type(self) -> str:
        return state.labels_of(self.known).get(labels.INSTANCE_TYPE, "")

    @property
    def age_key(self) -> tuple[float, str]:
        """Older first, then by name."""
        created = self.claim.metadata.creation_timestamp
        return (created.timestamp() if created else 0.0, self.name)


class Blocked(msgspec.Struct, frozen=True):
    """A node that may not be disrupted now, and why; `tell` False where nobody wants an event about it."""

    known: StateNode
    why: str
    tell: bool = True
    because: Because = Because.GOING
    facts: Mapping[str, str] = {}

    @property
    def stay(self) -> Stay:
        return Stay(self.because, self.why, self.facts, BLOCKED if self.tell else "")


class Candidates(msgspec.Struct, frozen=True):
    found: tuple[Candidate, ...] = ()
    """By name."""
    blocked: tuple[Blocked, ...] = ()


def candidates(snapshot: Snapshot, how: Class, queued: Collection[str] = (), knobs: DisruptionSettings = SETTLED) -> Candidates:
    """Every node of the snapshot, judged; `queued` are the providerIDs that a command already has in hand.

    `knobs` tell how much dearer it is to move nodes and pods that are new; without them nothing is new.
    """
    guards = PdbIndex.of(snapshot.surroundings.budgets)
    pools = {pool.node_pool.name: pool for pool in snapshot.pools}
    kinds = {name: {t.name: t for t in pool.instance_types} for name, pool in pools.items()}
    found: list[Candidate] = []
    blocked: list[Blocked] = []
    for known in snapshot.nodes:
        judged = judge(known, how, pools, guards, queued=queued, now=snapshot.now, kinds=kinds, knobs=knobs)
        if isinstance(judged, Candidate):
            found.append(judged)
        else:
            blocked.append(judged)
    return Candidates(tuple(found), tuple(blocked))


def eventual(
    snapshot: Snapshot, graceful: Candidates, queued: Collection[str] = (), knobs: DisruptionSettings = SETTLED
) -> tuple[Candidate, ...]:
    """The candidates of an eventual method, by name: what a graceful one may touch, and nodes whose wait is bounded."""
    bounded = tuple(
        b.known for b in graceful.blocked if b.known.claim is not None and b.known.claim.spec.termination_grace_period is not None
    )
    if not bounded:
        return graceful.found
    more = candidates(msgspec.structs.replace(snapshot, nodes=bounded), Class.EVENTUAL, queued, knobs).found
    return tuple(sorted((*graceful.found, *more), key=lambda c: c.name))


def judge(
    known: StateNode,
    how: Class,
    pools: Mapping[str, Pool],
    guards: PdbIndex,
    *,
    queued: Collection[str],
    now: datetime,
    kinds: Mapping[str, Mapping[str, InstanceType]] | None = None,
    knobs: DisruptionSettings = SETTLED,
) -> Candidate | Blocked:
    """One node; the first thing in the way is the one that is named."""
    claim = known.claim
    if claim is None:
        return Blocked(known, "it is not managed", tell=False, because=Because.NOT_MANAGED)
    if state.provider_id(known) in queued:
        return Blocked(known, "a command is under way", tell=False, because=Because.IN_HAND)
    problem = _state_problem(known, now)
    if problem is not None:
        return problem
    owner = state.labels_of(known)[labels.NODEPOOL]
    pool = pools.get(owner)
    if pool is None or not pool.instance_types:
        return Blocked(known, f"NodePool not found (NodePool={owner})", because=Because.NO_POOL, facts={"nodepool": owner})
    frozen = frozen_until(pool.node_pool.metadata.annotations, now)
    if frozen:
        text = f"NodePool is frozen {frozen} (NodePool={owner})"
        return Blocked(known, text, because=Because.FROZEN, facts={"nodepool": owner})
    problem = _pod_problem(known, guards, now, forceful=how is Class.EVENTUAL and claim.spec.termination_grace_period is not None)
    if problem is not None:
        return problem
    reschedulable = tuple(p for p in known.pods if pods.is_reschedulable(p))
    movers = tuple(p for p in reschedulable if can_leave(p, guards, now))
    listed = kinds.get(owner, {}) if kinds is not None else {t.name: t for t in pool.instance_types}
    disturbance = cost.of_pods(reschedulable)
    if disturbance > 1.0:
        disturbance *= cost.restlessness(claim, pool.node_pool, knobs, now)
    is_known = state.labels_of(known).get(labels.INSTANCE_TYPE, "") in listed
    return Candidate(known, claim, pool.node_pool, reschedulable, _price(known, listed), disturbance, movers, is_known)


def can_leave(pod: Pod, guards: PdbIndex, now: datetime) -> bool:
    """Whether the pod could be asked to leave some day: nothing pins it, and no budget refuses for ever."""
    if not pods.is_disruptable(pod, now):
        return False
    if not pods.is_evictable(pod, now):
        return True
    guarding = guards.guarding(pod)
    return len(guarding) < 2 and not any(pdbs.never(b) for b in guarding)


def price_of(known: StateNode, pool: Pool) -> float:
    """$/h of the offering the node was bought as, whether or not it can be bought now; 0 if it is not offered any more."""
    return _price(known, {t.name: t for t in pool.instance_types})


def prices(nodes: Iterable[StateNode], pools: Iterable[Pool]) -> Iterator[tuple[StateNode, float]]:
    """Every node with what it costs in USD per hour, 0 where that is not known."""
    kinds = {pool.node_pool.name: {t.name: t for t in pool.instance_types} for pool in pools}
    for known in nodes:
        yield known, _price(known, kinds.get(state.labels_of(known).get(labels.NODEPOOL, ""), {}))


def _price(known: StateNode, kinds: Mapping[str, InstanceType]) -> float:
    if known.usd_per_hour is not None:
        return known.usd_per_hour
    carried = state.labels_of(known)
    kind = kinds.get(carried.get(labels.INSTANCE_TYPE, ""))
    if kind is None:
        return 0.0
    zone, capacity_type = carried.get(labels.ZONE, ""), carried.get(labels.CAPACITY_TYPE, "")
    return min((o.price for o in kind.offerings if (o.zone, o.capacity_type) == (zone, capacity_type)), default=0.0)


def _state_problem(known: StateNode, now: datetime) -> Blocked | None:
    if known.node is None:
        return Blocked(known, "Node isn't registered", because=Because.NOT_REGISTERED)
    if not state.is_initialized(known):
        return Blocked(known, "Node isn't initialized", because=Because.NOT_INITIALIZED)
    if known.marked_for_deletion:
        return Blocked(known, "Node is deleting or marked for deletion", because=Because.GOING)
    if known.nominated_until is not None and known.nominated_until > now:
        until = known.nominated_until.isoformat()
        return Blocked(known, "Node is nominated for a pending pod", because=Because.NOMINATED, facts={"due": until})
    if known.node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        text = f'Disruption is blocked through the "{labels.DO_NOT_DISRUPT}" annotation'
        return Blocked(known, text, because=Because.DO_NOT_DISRUPT)
    if not state.labels_of(known).get(labels.NODEPOOL):
        return Blocked(known, f"Node doesn't have required label (label={labels.NODEPOOL})", because=Because.NO_POOL)
    return None


def _pod_problem(known: StateNode, guards: PdbIndex, now: datetime, *, forceful: bool) -> Blocked | None:
    """`forceful` where a terminationGracePeriod bounds the wait; the freeze switch holds even then."""
    for pod in known.pods:
        frozen = frozen_until(pod.metadata.annotations, now) if pod.metadata.annotations else ""
        if frozen and pods.is_active(pod):
            return Blocked(known, f"Pod is frozen {frozen} (Pod={pod.key})", because=Because.FROZEN, facts={"pod": pod.key})
    if forceful:
        return None
    for pod in known.pods:
        if not pods.is_disruptable(pod, now):
            text = f'Pod has "{labels.DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
            return Blocked(known, text, because=Because.POD_PINNED, facts={"pod": pod.key, **_pinned_until(pod)})
    for pod in known.pods:
        blocking = guards.blocking(pod, now)
        if len(blocking) > 1:
            keys = " ".join(b.key for b in blocking)
            text = f"Eviction does not support multiple PDBs (PDB(s)=[{keys}])"
            return Blocked(known, text, because=Because.PDBS, facts={"pod": pod.key, "pdb": keys})
        if blocking:
            return _guarded(known, pod, blocking[0])
    return None


def _guarded(known: StateNode, pod: Pod, budget: PodDisruptionBudget) -> Blocked:
    text = f"PDB prevents pod evictions (PDB={budget.key})"
    facts = {"pod": pod.key, "pdb": budget.key}
    why = pdbs.never(budget)
    if why:
        return Blocked(known, text, because=Because.PDB_NEVER, facts={**facts, "never": why})
    return Blocked(known, text, because=Because.PDB, facts={**facts, "healthy": str(budget.status.current_healthy)})


def _pinned_until(pod: Pod) -> dict[str, str]:
    end = pods.pinned_until(pod)
    return {} if end is None else {"due": end.isoformat()}
