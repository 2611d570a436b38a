"""Reserved machines whose reservation changes under them. Source: spec/aws 8.4."""

import asyncio
from datetime import timedelta

import structlog

from kubewright.api import aws_labels, labels
from kubewright.api.aws import EC2NodeClass
from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, instances, retry
from kubewright.cloud.aws.reservations import ReservationCounts, is_expiring
from kubewright.errors import CloudError, Conflict, KubeError, NotFound
from kubewright.kube.client import KubeClient, MergePatch
from kubewright.kube.events import Recorder

EVERY = timedelta(minutes=1)
_LABELS = (
    aws_labels.CAPACITY_RESERVATION_ID,
    aws_labels.CAPACITY_RESERVATION_TYPE,
    aws_labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
)


class ReservationUpkeep:
    """Relabels machines that turned on-demand, and ends those of a capacity block before AWS does."""

    name = "capacityreservation"

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        cluster: str,
        recorder: Recorder,
        counts: ReservationCounts,
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._cluster = cluster
        self._recorder = recorder
        self._counts = counts
        self._holds: dict[str, str] = {}
        """Instance → reservation, while it runs."""
        self._log = structlog.get_logger("kubewright.capacityreservation")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except (CloudError, KubeError) as error:
                self._log.warning("cannot look after reserved instances", error=str(error))
            await asyncio.sleep(EVERY.total_seconds())

    async def look(self) -> None:
        """One round. EC2 is asked only while some NodeClaim is of reserved capacity."""
        claims = [
            c
            for c in (await self._kube.list(NodeClaim)).items
            if c.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED and c.status.provider_id
        ]
        self._count_ended({c.status.provider_id: c for c in claims})
        if not claims:
            return
        ends = {r.id: r for c in (await self._kube.list(EC2NodeClass)).items for r in c.status.capacity_reservations}
        request = api.DescribeInstances(filters=instances.owned_filters(self._cluster), max_results=1000)
        machines = {i.instance_id: i async for page in retry.pages(self._ec2.describe_instances, request) for i in page.instances}
        now = self._clock.now()
        for claim in sorted(claims, key=lambda c: c.name):
            if claim.metadata.deletion_timestamp is not None:
                continue
            machine = machines.get(claim.status.provider_id.rpartition("/")[2])
            held = ends.get(claim.metadata.labels.get(aws_labels.CAPACITY_RESERVATION_ID, ""))
            if machine is not None and instances.capacity_type(machine) == labels.ON_DEMAND:
                await self._demote(claim)
            elif held is not None and is_expiring(held.reservation_type, held.end_time, now):
                await self._expire(claim)

    def _count_ended(self, claims: dict[str, NodeClaim]) -> None:
        """A machine that is gone leaves its place in the reservation to the next."""
        for provider_id in sorted(set(self._holds) - set(claims)):
            self._counts.ended(self._holds.pop(provider_id))
        for provider_id, claim in claims.items():
            self._holds[provider_id] = claim.metadata.labels.get(aws_labels.CAPACITY_RESERVATION_ID, "")

    async def _demote(self, claim: NodeClaim) -> None:
        self._log.info("the instance is not in its reservation any more", nodeclaim=claim.name)
        body = {"metadata": {"labels": {labels.CAPACITY_TYPE: labels.ON_DEMAND, **dict.fromkeys(_LABELS)}}}
        try:
            if claim.status.node_name:
                node = await self._kube.get(Node, claim.status.node_name)
                if node.metadata.deletion_timestamp is None:
                    await self._kube.patch(Node, node.name, MergePatch(body))
            await self._kube.patch(NodeClaim, claim.name, MergePatch(body))
        except NotFound:
            return

    async def _expire(self, claim: NodeClaim) -> None:
        text = "The capacity block ends soon"
        self._recorder.publish(claim, "Warning", "CapacityReservationExpiring", text, (claim.metadata.uid,))
        try:
            await self._kube.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except (NotFound, Conflict):
            return
        self._log.info("ending a machine of a capacity block that ends", nodeclaim=claim.name)
