"""Why a pod has no node, or why it has this one: one value, as text, as JSON and as a line for an event.

Pure: from a Problem and its Plan. Nothing here runs unless somebody asks.
"""

from collections.abc import Sequence

import msgspec

from kubewright.api.core import Pod
from kubewright.explain import cost as costs
from kubewright.explain import edits
from kubewright.explain.conflict import Patience, Prober, conflict, further
from kubewright.explain.constraints import Piece
from kubewright.explain.fixes import fixes
from kubewright.explain.narrowing import Narrowing, narrowings
from kubewright.explain.notes import notes_on, pinned
from kubewright.explain.sentences import sentence
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.solver.problem import Plan, Problem

_MOST_REASONS = 10
BRIEF_PROBES = 40
"""Solves for the one line of an event."""


class Member(msgspec.Struct, frozen=True):
    who: str
    what: str


class Explanation(msgspec.Struct, frozen=True):
    """Everything there is to say about one pod of a pass."""

    pod: str
    placed: str
    """The node it is assumed on or the claim to buy for it, "" when it waits."""
    narrowings: tuple[Narrowing, ...] = ()
    conflict: tuple[Member, ...] = ()
    """A smallest set of constraints that cannot be met together; empty for placed pods."""
    besides: tuple[tuple[Member, ...], ...] = ()
    """Where no fix was found: what else is in the way, once one of the conflict's members is gone, and so on."""
    fixes: tuple[str, ...] = ()
    """Nearest first; each was solved again and lets the pod in."""
    reasons: tuple[str, ...] = ()
    """What the NodePools said, each once."""
    notes: tuple[str, ...] = ()

    def as_json(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")


def explain(problem: Problem, plan: Plan, key: str) -> Explanation:
    """Why the pod `key` (namespace/name) was placed where it was, or was not.

    Cost: for a placed pod one look at the catalogue; for another some dozens of solves, of the pod alone where that shows it.

    Raises:
        KeyError: the problem does not ask about the pod.
    """
    pod = edits.pod_of(problem, key)
    alone = edits.only(problem, key)
    stories = narrowings(alone, key, plan.claims)
    where = _place(plan, key)
    if where:
        notes = notes_on(problem, plan, pod, where)
        if any(key in claim.pods for claim in plan.claims):
            notes = (*notes, f"This pass buys for {costs.text(costs.cost(plan))}.")
        return Explanation(key, where, _before(stories, where), notes=notes)
    refusals = plan.unplaced.get(key, ())
    told = tuple(dict.fromkeys(sentence(r) for r in refusals))[:_MOST_REASONS]
    if any(r.because in (Because.UNSUPPORTED, Because.INVALID) for r in refusals):
        return Explanation(key, "", (), reasons=told, notes=notes_on(problem, plan, pod, ""))
    prober = Prober(problem, key)
    members = conflict(prober)
    mends = fixes(prober, members)
    return Explanation(
        key,
        "",
        stories,
        _members(members),
        () if mends else tuple(map(_members, further(prober, members))),
        tuple(f.text for f in mends),
        told,
        notes_on(problem, plan, pod, ""),
    )


def _members(pieces: Sequence[Piece]) -> tuple[Member, ...]:
    return tuple(Member(p.who, p.what) for p in pieces)


def brief(problem: Problem, plan: Plan, key: str) -> str:
    """`short` of an unplaced pod's explanation for a fraction of its cost: the conflict and one fix, or none after few tries."""
    pod = edits.pod_of(problem, key)
    if host := pinned(problem, pod):
        return host
    refusals = plan.unplaced.get(key, ())
    if any(r.because in (Because.UNSUPPORTED, Because.INVALID, Because.NO_POOL) for r in refusals):
        return ""
    prober = Prober(problem, key, Patience(BRIEF_PROBES))
    members = conflict(prober)
    mends = fixes(prober, members)
    return short(Explanation(key, "", conflict=_members(members), fixes=tuple(f.text for f in mends[:1])))


def explain_ignored(problem: Problem, pod: Pod, refusal: Refusal) -> Explanation:
    """Why a pending pod was left out of the pass altogether (see `solver.select.select`)."""
    reason = refusal.facts.get("detail", refusal.found)
    host = pinned(problem, pod)
    return Explanation(pod.key, "", reasons=(host or reason,), notes=(reason,) if host else ())


def text(one: Explanation) -> str:
    """For people: the whole story, a line each."""
    lines = [f"Pod {one.pod} goes to {one.placed}." if one.placed else f"Pod {one.pod} has no node."]
    lines += [f"  {note}" for note in one.notes]
    for story in one.narrowings:
        lines += ["", *_story(story)]
    if one.conflict:
        lines += ["", "These cannot be met together:" if len(one.conflict) > 1 else "This cannot be met:"]
        lines += [f"  - {m.who}: {m.what}" for m in one.conflict]
    for members in one.besides:
        lines += ["", "And besides:", *(f"  - {m.who}: {m.what}" for m in members)]
    if one.fixes:
        lines += ["", "Any one of these lets the pod in, the smallest change first:", *(f"  - {f}" for f in one.fixes)]
    if one.reasons and not one.conflict:
        lines += ["", *(f"  {r}" for r in one.reasons)]
    return "\n".join(lines)


def short(one: Explanation) -> str:
    """One line, for an event: what conflicts, and the nearest fix."""
    if one.placed:
        return f"goes to {one.placed}"
    found = " and ".join(m.what for m in one.conflict) or next(iter(one.reasons), "no place takes the pod")
    clash = f"cannot be met: {found}" if len(one.conflict) == 1 else f"cannot be met together: {found}" if one.conflict else found
    return clash + (f". Nearest fix: {one.fixes[0]}" if one.fixes else "")


def _story(story: Narrowing) -> list[str]:
    word = "NodePool" if len(story.pools) == 1 else "NodePools"
    shown = ", ".join(story.pools[:5]) + (f" and {len(story.pools) - 5} others" if len(story.pools) > 5 else "")
    lines = [f"{word} {shown}: {story.types} instance types" + (f", not asked: {story.problem}" if story.problem else "")]
    lines += [f"  {s.who}, {s.what}: removes {s.removed}, leaves {s.left}" for s in story.steps]
    lines += [f"  short by {amount} {resource}" for resource, amount in story.short.items()]
    return lines


def _place(plan: Plan, key: str) -> str:
    for node, pods in plan.existing.items():
        if key in pods:
            return f"node {node}"
    for claim in plan.claims:
        if key in claim.pods:
            return f"new node {claim.name} of NodePool {claim.node_pool} ({claim.instance_types[0]} or dearer)"
    return ""


def _before(stories: tuple[Narrowing, ...], where: str) -> tuple[Narrowing, ...]:
    """The pools asked before the one that took the pod, that one, and those that cannot be asked; for a node only the latter."""
    found: list[Narrowing] = []
    for story in stories:
        if where.startswith("node "):
            break
        found.append(story)
        if any(f" of NodePool {pool} (" in where for pool in story.pools):
            break
    return (*found, *(s for s in stories if s.problem and s not in found))
