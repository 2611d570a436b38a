"""What a disruption method decides: nodes that go, and machines that must stand ready before they do.

Source: spec/disruption 1.2, 3.11, 8.2.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from kubewright.disruption.candidates import Candidate
from kubewright.disruption.reasons import Decision, Reason
from kubewright.solver.problem import PlannedClaim

VALIDATION_DELAY = timedelta(seconds=15)
"""How long emptiness and consolidation are thought over before they are begun: pods that were about to come, come.

Source: spec/disruption 3.10.
"""


class Command(msgspec.Struct, frozen=True):
    """Remove `candidates` once `replacements` are initialized."""

    reason: Reason
    candidates: tuple[Candidate, ...]
    """By name."""
    created: datetime
    method: str
    """The method's type label: "empty", "single", "multi", or "" for drift."""
    replacements: tuple[PlannedClaim, ...] = ()
    """To be bought first; each names the pods it was planned for."""
    destinations: Mapping[str, tuple[str, ...]] = {}
    """Node (or NodeClaim on its way) that is there already → keys of the pods expected on it: to be nominated."""
    disturbance: float = 0.0
    """What moving the pods costs, in average pods, one per node on top. Source: spec/disruption 1.5."""
    delay: timedelta = timedelta()
    """To be validated, and begun, this long after `created`; zero is at once."""
    facts: Mapping[str, str] = {}
    """More for explanations: score, threshold, saves_usd_per_hour, …"""

    @property
    def decision(self) -> Decision:
        if not self.candidates:
            return Decision.NO_OP
        return Decision.REPLACE if self.replacements else Decision.DELETE

    @property
    def id(self) -> str:
        """The same for the same nodes at the same moment, so that a replay names it alike."""
        facts = " ".join((self.reason.value, self.created.isoformat(), *(c.provider_id for c in self.candidates)))
        return hashlib.sha256(facts.encode()).hexdigest()[:12]

    @property
    def due(self) -> datetime:
        return self.created + self.delay

    @property
    def is_consolidation(self) -> bool:
        return self.reason is not Reason.DRIFTED

    @property
    def savings_usd_per_hour(self) -> float:
        return sum(c.usd_per_hour for c in self.candidates) - sum(r.usd_per_hour for r in self.replacements)

    def __str__(self) -> str:
        pools = ", ".join(sorted({c.pool.name for c in self.candidates}))
        names = ", ".join(c.name for c in self.candidates)
        bought = f" -> [{len(self.replacements)} replacement(s)]" if self.replacements else ""
        return (
            f"{self.reason.value}/{self.id}: {self.decision.value}: nodepools=[{pools}]: [{names}]{bought}"
            f" (savings: ${self.savings_usd_per_hour:.2f})"
        )
