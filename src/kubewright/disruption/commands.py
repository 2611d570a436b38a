"""What a disruption method decides: nodes that go, and machines that must stand ready before they do.

Source: spec/disruption 1.2, 3.11, 8.2.
"""

import hashlib
from datetime import datetime

import msgspec

from kubewright.disruption.candidates import Candidate
from kubewright.disruption.reasons import Decision, Reason
from kubewright.solver.problem import PlannedClaim


class Command(msgspec.Struct, frozen=True):
    """Remove `candidates` once `replacements` are initialized."""

    reason: Reason
    candidates: tuple[Candidate, ...]
    """By name."""
    created: datetime
    method: str
    """The method's type label, for example "empty"."""
    replacements: tuple[PlannedClaim, ...] = ()

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
