"""Purchases that nobody uses: a node bought for pods that kube-scheduler then binds elsewhere, or never.

Something that kubewright cannot see keeps the pods away, or something else was quicker. Once may be chance; without a memory it
would be bought again for ever. What was learned stands in an annotation of the NodePool, so that a restart forgets nothing: which
workloads its nodes were bought for in vain, and how often in a row. Both wait longer each time; a node that is used ends it.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from kubewright.api import labels
from kubewright.api.core import Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.api.meta import SelectorRequirement, find_condition
from kubewright.lifecycle import bought, claims, pods
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE, untolerated
from kubewright.solver.problem import Problem

TALLY = "kubewright.sh/unused-purchases"
"""On a NodePool: what was bought in vain of late, as JSON."""
VERDICT = "kubewright.sh/unused"
"""On a NodeClaim that nobody uses: why, one of `Fate`. It was judged once."""

SURE_AFTER = timedelta(seconds=30)
"""A node that kubewright itself would not give the pods to any more is judged this long after it was initialized: kube-scheduler
looks at a new node at once, and waits 10 s at most."""
FIRST_HOLD, LAST_HOLD = timedelta(minutes=10), timedelta(hours=4)
"""How long a workload is not bought for in a NodePool: doubled each time."""
FIRST_PAUSE, LAST_PAUSE = timedelta(minutes=5), timedelta(hours=1)
"""The same for the whole NodePool."""
PAUSE_AT = 4
"""Points in a row from which on a NodePool pauses: two for pods that still wait, one for pods that went elsewhere."""
MOST_HELD = 20
"""Workloads that a NodePool remembers; those whose time is over first are forgotten first."""


class Fate(enum.StrEnum):
    WAITING = "waiting"
    """Too early to say."""
    USED = "used"
    ELSEWHERE = "elsewhere"
    """The pods run on other nodes."""
    NEVER = "never"
    """Some of the pods still wait."""
    GONE = "gone"
    """Nobody wants a node for them any more."""


POINTS: Mapping[Fate, int] = {Fate.NEVER: 2, Fate.ELSEWHERE: 1, Fate.GONE: 0}
"""What a purchase in vain counts against its NodePool; that people changed their mind is nobody's fault."""


class Judged(msgspec.Struct, frozen=True):
    fate: Fate
    again: timedelta | None = None
    """For WAITING: when to ask again even if nothing changes."""
    waiting: tuple[Pod, ...] = ()
    """For NEVER: pods it was bought for that still wait."""
    why: str = ""
    """What is known of the reason, for people."""


class Held(msgspec.Struct, frozen=True):
    """A workload that a NodePool's nodes were bought for in vain."""

    times: int
    at: datetime
    until: datetime


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a NodePool's purchases came to since one was last used."""

    points: int = 0
    at: datetime | None = None
    """When points were last added; what was bought before is of the same round and adds none."""
    until: datetime | None = None
    """The whole pool pauses until then."""
    held: Mapping[str, Held] = {}
    """By workload."""

    def is_paused(self, now: datetime) -> bool:
        return self.until is not None and now < self.until

    def is_held(self, workload: str, now: datetime) -> bool:
        held = self.held.get(workload)
        return held is not None and now < held.until


def workload(pod: Pod) -> str:
    """What pods of one workload have in common: the UID of who made them, or their own."""
    owners = pod.metadata.owner_references
    maker = next((o for o in owners if o.controller), owners[0] if owners else None)
    return maker.uid if maker is not None else pod.metadata.uid


def judge(
    claim: NodeClaim,
    node: Node | None,
    here: Iterable[Pod],
    find: Callable[[str], Pod | None],
    pending: Callable[[], Iterable[Pod]],
    now: datetime,
    *,
    patience: timedelta,
    is_expected: bool,
) -> Judged | None:
    """What became of a purchase; None for one that is not judged: made for something else than pods that wait.

    `here` are the pods on its node, `find` looks up a pod by key, `pending` gives all without a node. `is_expected` says whether
    kubewright itself still wants pods to go there; then kube-scheduler is given `patience` from initialization, else only
    `SURE_AFTER`.
    """
    told = bought.of(claim)
    if told is None or not told.pods or told.why != "provisioned":
        return None
    if claim.status.last_pod_event_time is not None or any(pods.is_active(p) and not pods.is_daemon(p) for p in here):
        return Judged(Fate.USED)
    start = claims.since(claim, claims.INITIALIZED) if claims.is_set(claim, claims.INITIALIZED) else None
    if start is None:
        return Judged(Fate.WAITING)
    known = [pod for pod in map(find, told.pods) if pod is not None and pods.is_active(pod)]
    waiting = tuple(p for p in known if not p.spec.node_name) or (() if known else _successors(told.workloads, pending(), now))
    is_going = claim.metadata.deletion_timestamp is not None
    needed = patience if is_expected else min(SURE_AFTER, patience)
    if waiting and now - start < needed:
        # One that goes this soon goes for a reason of its own: nothing is learned of its pods.
        return Judged(Fate.WAITING, None if is_going else start + needed - now)
    if not waiting and not is_going and now - start < patience:
        return Judged(Fate.WAITING, start + patience - now)
    if waiting:
        return Judged(Fate.NEVER, waiting=waiting, why=_why(waiting[0], node))
    if known:
        return Judged(Fate.ELSEWHERE, why=f"{known[0].key} went to node {known[0].spec.node_name}")
    return Judged(Fate.GONE, why=f"{told.pods[0]} is gone")


def _successors(workloads: Collection[str], pending: Iterable[Pod], now: datetime) -> tuple[Pod, ...]:
    """Pods that stand for those that are gone and wait themselves, for long enough to have been tried."""
    old_enough = (
        p for p in pending if p.metadata.creation_timestamp is None or now - p.metadata.creation_timestamp >= SURE_AFTER
    )
    found = (p for p in old_enough if workload(p) in workloads and pods.is_active(p)) if workloads else ()
    return tuple(sorted(found, key=lambda p: p.key)[: bought.MOST_PODS])


def _why(pod: Pod, node: Node | None) -> str:
    """Foreign taints on the node, or kube-scheduler's own words."""
    foreign = untolerated(node.spec.taints, pod.spec.tolerations) if node is not None else ()
    listed = ", ".join(
        sorted(str(t) for t in foreign if t.effect != PREFER_NO_SCHEDULE and not t.key.startswith("karpenter.sh/"))
    )
    if listed:
        return (
            f"the node has taint {listed}, which {pod.key} does not tolerate; if it goes away by itself, add it to "
            "spec.template.spec.startupTaints of the NodePool"
        )
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    said = scheduled.message if scheduled is not None else ""
    return f"kube-scheduler does not put {pod.key} there" + (f" and says: {said}" if said else "")


def tally(pool: NodePool) -> Tally:
    """The pool's; an empty one without the annotation, and for one that cannot be read."""
    text = pool.metadata.annotations.get(TALLY)
    if text is None:
        return Tally()
    try:
        return msgspec.json.decode(text, type=Tally)
    except msgspec.DecodeError:
        return Tally()


def after(before: Tally, claim: NodeClaim, judged: Judged, here: Iterable[Pod], now: datetime) -> Tally:
    """The tally with this purchase counted. Counting one twice changes nothing."""
    created = claim.metadata.creation_timestamp
    if created is None or judged.fate in (Fate.WAITING, Fate.GONE):
        return before
    if judged.fate is Fate.USED:
        return _used(before, claim, here, created)
    held = dict(before.held)
    for key in {workload(p) for p in judged.waiting}:
        last = held.get(key)
        if last is None or created > last.at:
            times = last.times + 1 if last is not None else 1
            held[key] = Held(times, now, now + _doubled(FIRST_HOLD, times - 1, LAST_HOLD))
    held = dict(sorted(held.items(), key=lambda pair: (pair[1].until, pair[0]))[-MOST_HELD:])
    if before.at is not None and created <= before.at:
        return replace(before, held=held)
    points = before.points + POINTS[judged.fate]
    until = now + _doubled(FIRST_PAUSE, (points - PAUSE_AT) // 2, LAST_PAUSE) if points >= PAUSE_AT else before.until
    return Tally(points, now, until, held)


def _used(before: Tally, claim: NodeClaim, here: Iterable[Pod], created: datetime) -> Tally:
    """A purchase that is used after all, or a later one: what was counted against the pool is forgotten."""
    arrived = {workload(p) for p in here}
    held = {key: one for key, one in before.held.items() if key not in arrived}
    was_blamed = VERDICT in claim.metadata.annotations
    if before.at is None or not (created > before.at or was_blamed):
        return before if held == before.held else replace(before, held=held)
    return Tally(held=held)


def _doubled(first: timedelta, times: int, last: timedelta) -> timedelta:
    return min(first * (1 << min(times, 20)), last)


def with_tally(pool: NodePool, value: Tally) -> NodePool:
    """The NodePool with its annotation set, or taken off where there is nothing to remember."""
    kept = {key: text for key, text in pool.metadata.annotations.items() if key != TALLY}
    if value != Tally():
        kept[TALLY] = msgspec.json.encode(value, order="sorted").decode()
    return replace(pool, metadata=replace(pool.metadata, annotations=kept))


def with_verdict(claim: NodeClaim, fate: Fate) -> NodeClaim:
    """The NodeClaim with the verdict noted, or taken off once it is used."""
    kept = {key: text for key, text in claim.metadata.annotations.items() if key != VERDICT}
    if fate is not Fate.USED:
        kept[VERDICT] = fate.value
    return replace(claim, metadata=replace(claim.metadata, annotations=kept))


def relieved(problem: Problem) -> tuple[Problem, Mapping[str, str]]:
    """The problem without purchases that would be in vain, and for each pod that this touches, why.

    A pool that pauses offers nothing; a pod whose workload a pool is held for may go to other pools only.
    """
    now = problem.now
    tallies = {p.node_pool.name: found for p in problem.pools if (found := tally(p.node_pool)) != Tally()}
    if not tallies:
        return problem, {}
    pools = tuple(
        replace(p, instance_types=(), problem=_paused(tallies[p.node_pool.name]))
        if p.node_pool.name in tallies and tallies[p.node_pool.name].is_paused(now)
        else p
        for p in problem.pools
    )
    why: dict[str, str] = {}
    wanted: list[Pod] = []
    for pod in problem.pods:
        key = workload(pod)
        held = sorted(name for name, found in tallies.items() if found.is_held(key, now))
        if held:
            until = claims.rfc3339(max(tallies[name].held[key].until for name in held))
            listed = ", ".join(held)
            why[pod.key] = f"nodes of NodePool {listed} bought for it were not used; it is not bought for there until {until}"
        wanted.append(_kept_out_of(pod, held) if held else pod)
    return replace(problem, pools=pools, pods=tuple(wanted)), why


def _paused(value: Tally) -> str:
    assert value.until is not None
    return f"paused until {claims.rfc3339(value.until)}: the nodes it bought last were not used"


def _kept_out_of(pod: Pod, pools: Iterable[str]) -> Pod:
    """The pod with a requirement more, as if it had been written into every term."""
    no = SelectorRequirement(key=labels.NODEPOOL, operator="NotIn", values=tuple(pools))
    affinity = pod.spec.affinity or Affinity()
    node = affinity.node_affinity or NodeAffinity()
    terms = node.required.node_selector_terms if node.required is not None else (NodeSelectorTerm(),)
    required = NodeSelector(node_selector_terms=tuple(replace(t, match_expressions=(*t.match_expressions, no)) for t in terms))
    spec = replace(pod.spec, affinity=replace(affinity, node_affinity=replace(node, required=required)))
    return replace(pod, spec=spec)
