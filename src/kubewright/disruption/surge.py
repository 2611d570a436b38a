"""Replacing nodes of a pool that is at its limits: outgoing nodes are credited, a few at a time.

A replacement that fits into the limits as they stand is free. One that does not may still be bought while fewer than the surge of
the pool's nodes are on their way out, so that a full pool drifts and never goes further beyond its limits than the surge. The
annotation `kubewright.sh/surge` on a NodePool is a number, or a percentage of its nodes, rounded up; 0 means never.
"""

from collections.abc import Collection, Sequence

from kubewright.api import quantity
from kubewright.api.karpenter import NodePool
from kubewright.disruption.candidates import BLOCKED, Candidate
from kubewright.disruption.stays import Because, Stay
from kubewright.lifecycle import claims, state
from kubewright.solver.nodes import capacity_of
from kubewright.solver.problem import PlannedClaim, Snapshot

SURGE = "kubewright.sh/surge"


class Surge:
    """What each pool may still buy; asked once for every command of a pass."""

    def __init__(self, snapshot: Snapshot, queued: Collection[str], default: int) -> None:
        self._default = default
        self._pools = {p.node_pool.name: p for p in snapshot.pools}
        self._used: dict[str, dict[str, int]] = {}
        self._nodes: dict[str, int] = {}
        self._going: dict[str, int] = {}
        for node in snapshot.nodes:
            if node.claim is None or claims.is_set(node.claim, claims.INSTANCE_TERMINATING):
                continue
            owner = claims.pool_of(node.claim)
            self._nodes[owner] = self._nodes.get(owner, 0) + 1
            self._going[owner] = self._going.get(owner, 0) + (node.marked_for_deletion or state.provider_id(node) in queued)
            total = self._used.setdefault(owner, {})
            for name, amount in capacity_of(node).items():
                total[name] = total.get(name, 0) + amount

    def going(self, pool: str) -> int:
        """Nodes of the pool that are on their way out."""
        return self._going.get(pool, 0)

    def take(self, bought: Sequence[PlannedClaim], one: Candidate) -> Stay | None:
        """Count `bought`, which replace `one`; or why they cannot be bought now."""
        added: dict[str, dict[str, int]] = {}
        for claim in bought:
            total = added.setdefault(claim.node_pool, {"nodes": 0})
            total["nodes"] += int(quantity.ONE)
            for name, amount in self._capacity(claim).items():
                total[name] = total.get(name, 0) + amount
        for name in sorted(added):
            pool = self._pools[name].node_pool
            short = self._short(pool, added[name])
            most = self.surge_of(pool)
            if short and self.going(name) >= most:
                text = f"NodePool {name} is at its limit for {short}, and {self.going(name)} node(s) of it are being replaced"
                return Stay(Because.LIMITS, text, {"nodepool": name, "limit": short, "surge": str(most)}, BLOCKED)
        for name, total in added.items():
            used = self._used.setdefault(name, {})
            for resource, amount in total.items():
                used[resource] = used.get(resource, 0) + amount
        self._going[one.pool.name] = self.going(one.pool.name) + 1
        return None

    def surge_of(self, pool: NodePool) -> int:
        """How many nodes may be replaced at a time beyond the limits. What cannot be read is 0."""
        written = pool.metadata.annotations.get(SURGE)
        if written is None:
            return self._default
        text = written.removesuffix("%")
        if not (text.isascii() and text.isdigit()):
            return 0
        return -(-int(text) * self._nodes.get(pool.name, 0) // 100) if written.endswith("%") else int(text)

    def _short(self, pool: NodePool, added: dict[str, int]) -> str:
        used = self._used.get(pool.name, {})
        limits = quantity.parse_map(pool.spec.limits or {})
        return ",".join(sorted(n for n, most in limits.items() if used.get(n, 0) + added.get(n, 0) > most))

    def _capacity(self, claim: PlannedClaim) -> dict[str, int]:
        """Of the cheapest type, which is what is expected."""
        types = self._pools[claim.node_pool].instance_types
        kind = next((t for t in types if claim.instance_types and t.name == claim.instance_types[0]), None)
        return {} if kind is None else dict(kind.capacity)
