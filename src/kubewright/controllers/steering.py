"""Soft taints on nodes that are next in line to be emptied, so that pods which move are not put where they have to move again.

What the disruption controller says; taken off as soon as it is not said any more. Nothing rests on it: pods may still go there.
"""

from collections.abc import Collection

import structlog

from kubewright.api import labels
from kubewright.controllers.context import Context
from kubewright.errors import Conflict, NotFound
from kubewright.lifecycle import nodes
from kubewright.solver.problem import Snapshot

AT_ONCE = 50
"""Nodes that are changed after one look."""


class Steering:
    """Keeps `kubewright.sh/going-soon` where it is wanted."""

    def __init__(self, context: Context) -> None:
        self._on = context
        self._log = structlog.get_logger("kubewright.steering")

    async def steer(self, soon: Collection[str], snapshot: Snapshot) -> None:
        """`soon` are names of Nodes that should have the taint; all others lose it."""
        changed = 0
        for known in snapshot.nodes:
            node = known.node
            if node is None or known.claim is None or node.metadata.deletion_timestamp is not None:
                continue
            has, wanted = nodes.has_taint(node, labels.SOON_TAINT), node.name in soon
            if has == wanted:
                continue
            if changed == AT_ONCE:
                return
            changed += 1
            kept = tuple(t for t in node.spec.taints if not nodes.same_taint(t, labels.SOON_TAINT))
            try:
                await self._on.actor.update(node, nodes.with_taints(node, (*kept, labels.SOON_TAINT) if wanted else kept))
            except (Conflict, NotFound) as error:
                self._log.debug("a soft taint was not changed yet", node=node.name, error=str(error))
