"""ARC zonal shift: nothing new is bought in a zone that the cluster is shifted away from. Source: spec/aws 8.5.

Different from the reference on purpose: the set of shifted zones is replaced at every look, so that a shift that ended is over.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim, NodePool
from kubewright.clock import Clock
from kubewright.cloud.aws import api, retry
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.errors import Conflict, KubeError, NotFound
from kubewright.kube.client import KubeClient
from kubewright.kube.events import Recorder
from kubewright.scheduling import requirements
from kubewright.scheduling.requirement import Requirement

EVERY = timedelta(seconds=30)
_SPREAD = "; its nodes stay, and kube-scheduler's topology spread still counts it while they do"


def active(answer: api.ManagedResourceAnswer, now: datetime) -> dict[str, str]:
    """Zone id → why nothing is bought there."""
    found = {}
    for s in answer.autoshifts:
        if s.applied_status == "APPLIED":
            found[s.away_from] = f"ARC zonal autoshift away from the zone{_SPREAD}"
    for z in answer.zonal_shifts:
        if z.applied_status == "APPLIED" and (z.expiry_time is None or z.expiry_time > now):
            until = f" until {z.expiry_time:%Y-%m-%d %H:%M} UTC" if z.expiry_time else ""
            found[z.away_from] = f"ARC zonal shift away from the zone{until}{_SPREAD}"
    return found


async def ask(ec2: api.Ec2Api, arn: str, clock: Clock) -> dict[str, str]:
    """`active` for the cluster `arn`, as ARC has it now."""
    answer = await retry.call(ec2.get_managed_resource, api.GetManagedResource(resource_identifier=arn))
    return active(answer, clock.now())


class ZonalShift:
    """Looks, marks, tells on NodePools; moves nodes away only if it was told how many at a time."""

    name = "zonalshift"

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        arn: str,
        unavailable: UnavailableOfferings,
        recorder: Recorder,
        evacuate: int = 0,
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._arn = arn
        self._unavailable = unavailable
        self._recorder = recorder
        self._evacuate = evacuate
        self._known: dict[str, str] = {}
        self._log = structlog.get_logger("kubewright.zonalshift")

    async def run(self) -> None:
        """Until cancelled. While ARC cannot be asked, what it said last holds until it would have ended."""
        while True:
            try:
                await self.poll()
            except (AwsError, KubeError) as error:
                self._log.warning("cannot ask for zonal shifts, the last answer holds", error=str(error))
            await asyncio.sleep(EVERY.total_seconds())

    async def poll(self) -> dict[str, str]:
        """One look."""
        found = await ask(self._ec2, self._arn, self._clock)
        self._unavailable.shift(found)
        before, self._known = self._known, found
        if found != before:
            self._log.info("zonal shift", zones=sorted(found))
            await self._tell(sorted(set(found) - set(before)), sorted(set(before) - set(found)))
        if found and self._evacuate:
            await self.evacuate(sorted(found))
        return found

    async def _tell(self, began: Sequence[str], ended: Sequence[str]) -> None:
        for pool in (await self._kube.list(NodePool)).items:
            wanted = requirements.of_expressions(pool.spec.template.spec.requirements or ())
            asked = wanted.get(labels.ZONE)
            for zone_id in began:
                if asked is None or self._could_use(asked, zone_id):
                    text = f"Zone {zone_id} is shifted away from; nothing is launched there{_SPREAD}"
                    self._recorder.publish(pool, "Warning", "ZonalShiftActive", text, (pool.metadata.uid, zone_id))
            for zone_id in ended:
                if asked is None or self._could_use(asked, zone_id):
                    text = f"Zone {zone_id} is launched into again"
                    self._recorder.publish(pool, "Normal", "ZonalShiftCleared", text, (pool.metadata.uid, zone_id))

    def _could_use(self, asked: Requirement, zone_id: str) -> bool:
        names = self._unavailable.names_of(zone_id)
        return not names or any(asked.has(name) for name in names)

    async def evacuate(self, zone_ids: Sequence[str]) -> list[str]:
        """Delete NodeClaims of shifted zones, so many that no more than the budget are on their way out; their names.

        A NodeClaim with an annotation that forbids disruption stays.
        """
        names = {name for zone_id in zone_ids for name in self._unavailable.names_of(zone_id)}
        there = [c for c in (await self._kube.list(NodeClaim)).items if c.metadata.labels.get(labels.ZONE) in names]
        going = sum(1 for c in there if c.metadata.deletion_timestamp is not None)
        moved = []
        for claim in sorted(there, key=lambda c: c.name):
            if going >= self._evacuate:
                break
            if claim.metadata.deletion_timestamp is not None:
                continue
            if claim.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
                continue
            try:
                await self._kube.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
            except (NotFound, Conflict):
                continue
            text = "The zone is shifted away from, and its nodes are replaced a few at a time"
            self._recorder.publish(claim, "Normal", "ZonalShiftEvacuation", text, (claim.metadata.uid,))
            going += 1
            moved.append(claim.name)
        return moved
