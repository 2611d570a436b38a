"""Why a node stays, as a condition of its NodeClaim: `kubewright.sh/Disruptable` is False, with the reason and the sentence.

What passes by itself within a minute (pods that just moved, a nomination, a command under way) is not written: conditions are for
what lasts. On a restart what stands there stays until the next look says otherwise.
"""

from datetime import datetime, timedelta

import structlog

from kubewright.api.karpenter import NodeClaim
from kubewright.api.meta import find_condition
from kubewright.controllers.context import Context
from kubewright.disruption.decisions import Decisions
from kubewright.disruption.stays import Because, Stay
from kubewright.errors import Conflict, NotFound
from kubewright.lifecycle import claims, state
from kubewright.solver.problem import Snapshot

DISRUPTABLE = "kubewright.sh/Disruptable"
AT_ONCE = 50
"""NodeClaims that are written after one look."""
SAME_REASON = timedelta(minutes=5)
"""A new sentence for the same reason is written no more often: figures change all the time."""
PASSING = frozenset(
    {
        Because.NOT_MANAGED,
        Because.IN_HAND,
        Because.NOT_REGISTERED,
        Because.NOT_INITIALIZED,
        Because.GOING,
        Because.NOMINATED,
        Because.NOT_QUIET,
        Because.WAITING,
        Because.UNREACHED,
        Because.NOT_DRIFTED,
    }
)


class StayConditions:
    """Keeps the condition true to what the looks of the disruption controller say."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._written: dict[str, datetime] = {}
        self._log = structlog.get_logger("kubewright.stays")

    async def tell(self, found: Decisions, snapshot: Snapshot) -> None:
        """Write what changed, on so many NodeClaims at most; the next look goes on with the others."""
        changed = 0
        known_names = set()
        for known in snapshot.nodes:
            claim = known.claim
            if claim is None or known.marked_for_deletion or not state.is_initialized(known):
                continue
            known_names.add(claim.name)
            reasons = found.stays.get(state.name(known), ())
            lasting = next((s for s in reasons if s.because not in PASSING), None)
            if (lasting is None and reasons) or not self._is_news(claim, lasting, snapshot.now):
                continue
            if changed == AT_ONCE:
                break
            changed += 1
            try:
                await self._on.actor.update(claim, _told(claim, lasting, snapshot.now))
                self._written[claim.name] = snapshot.now
            except (Conflict, NotFound) as error:
                self._log.debug("a condition was not written yet", nodeclaim=claim.name, error=str(error))
        for name in self._written.keys() - known_names:
            del self._written[name]

    def _is_news(self, claim: NodeClaim, stay: Stay | None, now: datetime) -> bool:
        there = find_condition(claim.status.conditions, DISRUPTABLE)
        if there is None or stay is None:
            return (there is None) != (stay is None)
        if there.reason != _reason(stay):
            return True
        last = self._written.get(claim.name)
        return there.message != stay.text and (last is None or now - last >= SAME_REASON)


def _told(claim: NodeClaim, stay: Stay | None, now: datetime) -> NodeClaim:
    if stay is None:
        return claims.without_condition(claim, DISRUPTABLE)
    return claims.with_condition(claim, DISRUPTABLE, "False", _reason(stay), stay.text, now=now)


def _reason(stay: Stay) -> str:
    return "".join(word.title() for word in stay.because.value.split("-"))
