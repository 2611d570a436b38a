"""Machines of ours that no NodeClaim knows of. Source: spec/aws 8.2."""

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta

import structlog

from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, instances, retry, tags
from kubewright.cloud.aws.templates import LaunchTemplates
from kubewright.errors import CloudError, KubeError, NotFound
from kubewright.kube.client import KubeClient

OLD_ENOUGH = timedelta(seconds=30)
FIRST_EVERY, FIRST_TIMES = timedelta(seconds=10), 20
THEN_EVERY = timedelta(minutes=2)


def orphans(
    owned: Collection[api.Ec2Instance], known: Collection[str], unwritten: Collection[str], now: datetime
) -> list[api.Ec2Instance]:
    """Machines to end: old enough, not going already, and no NodeClaim has their id, or is about to have it.

    `known` are provider ids in NodeClaims' status, `unwritten` the UIDs of NodeClaims that have no provider id yet: such a claim
    finds its machine again by tag, so the machine is not an orphan.
    """
    return [
        i
        for i in sorted(owned, key=lambda i: i.instance_id)
        if i.state.name not in instances.GOING
        and instances.provider_id(i.placement.availability_zone, i.instance_id) not in known
        and api.tags_of(i.tags).get(tags.UID, "") not in unwritten
        and i.launch_time is not None
        and i.launch_time + OLD_ENOUGH <= now
    ]


class OrphanCollection:
    """Looks every ten seconds at first, since a restart is when orphans are found, later every two minutes."""

    name = "instance.garbagecollection"

    def __init__(self, ec2: api.Ec2Api, kube: KubeClient, clock: Clock, cluster: str, templates: LaunchTemplates) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._cluster = cluster
        self._templates = templates
        self._log = structlog.get_logger("kubewright.collection")

    async def run(self) -> None:
        """Until cancelled. Nothing is ended after a look-up that failed."""
        done = 0
        while True:
            try:
                await self.collect()
                await self._templates.collect(self._clock.now())
                done += 1
            except (CloudError, KubeError) as error:
                self._log.warning("cannot look for orphaned instances", error=str(error))
            await asyncio.sleep((FIRST_EVERY if done < FIRST_TIMES else THEN_EVERY).total_seconds())

    async def collect(self) -> list[str]:
        """End the orphans and delete their Nodes; the ids of those ended."""
        # EC2 first: a machine bought between the two lists has its NodeClaim in the second one.
        request = api.DescribeInstances(filters=instances.owned_filters(self._cluster), max_results=1000)
        owned = [i async for page in retry.pages(self._ec2.describe_instances, request) for i in page.instances]
        claims = (await self._kube.list(NodeClaim)).items
        known = {c.status.provider_id for c in claims if c.status.provider_id}
        unwritten = {c.metadata.uid for c in claims if not c.status.provider_id}
        found = orphans(owned, known, unwritten, self._clock.now())
        if not found:
            return []
        nodes = {n.spec.provider_id: n.name for n in (await self._kube.list(Node)).items if n.spec.provider_id}
        for machine in found:
            self._log.info("ending an orphaned instance", instance=machine.instance_id)
            await retry.call(self._ec2.terminate_instances, api.TerminateInstances(instance_ids=(machine.instance_id,)))
            name = nodes.get(instances.provider_id(machine.placement.availability_zone, machine.instance_id))
            if name is not None:
                try:
                    await self._kube.delete(Node, name)
                except NotFound:
                    continue
        return [i.instance_id for i in found]
