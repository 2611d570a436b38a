"""nodeoverlay: says on each NodeOverlay whether it counts. Source: spec/scheduling 9.1.

The judging itself happens with every look at what pools can buy (`state.correcting`), so that corrections are never older than
the types they are about; this only asks for such a look when something may have changed, and writes what came of it.
"""

from datetime import timedelta

from kubewright.api.karpenter import NodeOverlay, NodePool
from kubewright.api.meta import Object
from kubewright.controllers.context import Context
from kubewright.errors import NotFound
from kubewright.kube.controller import Singleton
from kubewright.lifecycle.overlays import judged

AGAIN = timedelta(hours=6)
"""Without any event. Source: spec/scheduling 9.1."""
SOON = timedelta(minutes=1)
"""While some pool cannot say what it buys: overlays may yet turn out to clash there."""


class OverlayStatus:
    """One step judges all."""

    def __init__(self, context: Context) -> None:
        self._on = context
        assert context.mirror.node_overlays is not None, "the gate that makes this controller also makes the mirror watch"
        self._overlays = context.mirror.node_overlays
        self.controller = Singleton("nodeoverlay", self.step)
        self._overlays.subscribe(self._overlay_changed)
        context.mirror.node_pools.subscribe(self._pool_changed)
        context.mirror.on_node_class(self._class_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def step(self) -> timedelta:
        pools = await self._on.mirror.refresh_pools()
        now = self._on.clock.now()
        for name in sorted(self._overlays.objects):
            overlay = self._overlays.objects[name]
            verdict = self._on.mirror.correcting.verdict(overlay)
            if verdict is None:
                continue  # it came during the look; its own event has triggered the next step
            try:
                await self._on.actor.update(overlay, judged(overlay, verdict, now))
            except NotFound:
                continue
        return SOON if any(p.problem for p in pools) else AGAIN

    def _overlay_changed(self, old: NodeOverlay | None, new: NodeOverlay | None) -> None:
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self.controller.trigger()

    def _pool_changed(self, old: NodePool | None, new: NodePool | None) -> None:
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self.controller.trigger()

    def _class_changed(self, old: Object | None, new: Object | None) -> None:
        """Its status too: a NodeClass that has become ready lets its pools be asked."""
        if old != new:
            self.controller.trigger()
