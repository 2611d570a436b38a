"""node.termination: a Node that is deleted is closed, drained, its machine ended, and then let go.

The rules are in `lifecycle.node_termination`; pods leave through the eviction queue.
"""

from datetime import timedelta

import structlog

from kubewright.api import labels
from kubewright.api.core import Node, PersistentVolumeClaim, Pod, VolumeAttachment
from kubewright.api.karpenter import NodeClaim
from kubewright.controllers.context import Context
from kubewright.controllers.evictions import EvictionQueue
from kubewright.errors import InstanceNotFound, NotFound
from kubewright.kube.controller import Controller
from kubewright.lifecycle import claims, finalization, node_termination, nodes
from kubewright.lifecycle.effects import Delete
from kubewright.lifecycle.node_termination import Leaving, Stage
from kubewright.scheduling import volumes

WORKERS = 100


class NodeTermination:
    """One reconcile brings one deleted Node as far towards its end as it can come now."""

    def __init__(self, context: Context, evictions: EvictionQueue) -> None:
        self._on = context
        self._evictions = evictions
        self._log = structlog.get_logger("kubewright.node.termination")
        self.controller = Controller(
            "node.termination",
            self.reconcile,
            workers=WORKERS,
            base_delay=timedelta(milliseconds=100),
            max_delay=timedelta(seconds=10),
        )
        self._class_labels = tuple(labels.node_class_label(k.group, k.kind) for k in context.provider.node_class_kinds)
        mirror = context.mirror
        mirror.nodes.subscribe(self._node_changed)
        mirror.node_claims.subscribe(self._claim_changed)
        mirror.pods.subscribe(self._pod_changed)
        mirror.attachments.subscribe(self._attachment_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def reconcile(self, name: str) -> timedelta | None:
        node = self._on.mirror.nodes.get(name)
        if node is None or not self._concerns(node):
            return None
        try:
            return await self._end(node)
        except NotFound:
            return None

    async def _end(self, node: Node) -> timedelta | None:
        mirror, actor = self._on.mirror, self._on.actor
        claim = mirror.claim_of(node)
        if claim is not None and len(mirror.nodes_of(claim)) > 1:
            claim = None  # several Nodes of one machine: nobody can say which of them the claim means
        if claim is not None and claim.metadata.deletion_timestamp is None:
            await actor.act((Delete(claim),))
            return None  # its deletion wakes us, and then its termination time is known
        if not nodes.is_ready(node) and await self._is_machine_gone(node):
            self._log.info("machine is gone, the node is let go without a drain", node=node.name)
            return await self._release(node)
        node = await actor.update(node, node_termination.closed(node))
        progress = node_termination.progress(self._leaving(node, claim), self._on.clock.now())
        await actor.act(progress.step)
        if progress.leave:
            self._evictions.add(progress.leave, claims.termination_time(claim))
        if claim is not None and progress.claim is not None:
            claim = await actor.update(claim, progress.claim)
        match progress.stage:
            case Stage.WAITING:
                return progress.step.again
            case Stage.MACHINE:
                assert claim is not None
                return await self._end_machine(node, claim)
            case Stage.DONE:
                return await self._release(node)

    async def _end_machine(self, node: Node, claim: NodeClaim) -> timedelta | None:
        gone = await self._ask_to_end(node)
        now = self._on.clock.now()
        after, _ = finalization.machine_asked(claim, now, gone=gone)
        claim = await self._on.actor.update(claim, after)
        return await self._release(node) if gone else finalization.poll_after(claim, now)

    async def _ask_to_end(self, node: Node) -> bool:
        try:
            await self._on.provider.delete(node.spec.provider_id)
        except InstanceNotFound:
            return True
        return False

    async def _is_machine_gone(self, node: Node) -> bool:
        try:
            await self._on.provider.get(node.spec.provider_id)
        except InstanceNotFound:
            return True
        return False

    async def _release(self, node: Node) -> timedelta | None:
        free, step = node_termination.released(node)
        await self._on.actor.update(node, free)
        await self._on.actor.act(step)
        labelled = {"nodepool": node.metadata.labels.get(labels.NODEPOOL, "")}
        now = self._on.clock.now()
        for metric, began in (
            ("nodes_termination_duration_seconds", node.metadata.deletion_timestamp),
            ("nodes_lifetime_duration_seconds", node.metadata.creation_timestamp),
        ):
            if began is not None:
                self._on.actor.observe(metric, (now - began).total_seconds(), labelled)
        return None

    def _leaving(self, node: Node, claim: NodeClaim | None) -> Leaving:
        mirror = self._on.mirror
        bound = mirror.pods_on(node.name)
        attached = tuple(a for a in mirror.attachments.objects.values() if a.spec.node_name == node.name)
        used = tuple((pod.key, volume) for pod in bound for volume in self._volumes(pod)) if attached else ()
        return Leaving(node, claim, bound, attached, used)

    def _volumes(self, pod: Pod) -> list[str]:
        """PersistentVolumes the pod uses, by the claims it names."""
        bound = (self._on.mirror.surroundings["claims"].get(key) for key in volumes.claim_keys(pod))
        return [c.spec.volume_name for c in bound if isinstance(c, PersistentVolumeClaim) and c.spec.volume_name]

    # --- what wakes it ---------------------------------------------------------------------------------------------------

    def _concerns(self, node: Node) -> bool:
        return node.metadata.deletion_timestamp is not None and node_termination.is_ours(node, self._class_labels)

    def _node_changed(self, _: Node | None, new: Node | None) -> None:
        if new is not None and self._concerns(new):
            self.controller.enqueue(new.name)

    def _claim_changed(self, _: NodeClaim | None, new: NodeClaim | None) -> None:
        if new is not None and new.metadata.deletion_timestamp is not None:
            for node in self._on.mirror.nodes_of(new):
                self._node_changed(None, node)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        if pod.spec.node_name:
            self._node_changed(None, self._on.mirror.nodes.get(pod.spec.node_name))

    def _attachment_changed(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        attachment = new if new is not None else old
        assert attachment is not None
        self._node_changed(None, self._on.mirror.nodes.get(attachment.spec.node_name))
