"""Machines of ours that no NodeClaim knows of. Source: spec/aws 8.2.

Ending what serves pods is worse than paying for what does not, so beside the reference's rules there are guards: a machine of
another cluster of the same name is never touched, and machines that have a Node here are ended only while they are few.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import structlog

from kubewright.api.core import Node
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, instances, retry, tags
from kubewright.cloud.aws.machines import Machines
from kubewright.cloud.aws.templates import LaunchTemplates
from kubewright.errors import CloudError, InstanceNotFound, KubeError, NotFound
from kubewright.kube.client import KubeClient

OLD_ENOUGH = timedelta(seconds=30)
FIRST_EVERY, FIRST_TIMES = timedelta(seconds=10), 20
THEN_EVERY = timedelta(minutes=2)
GUARDED_SHARE = 0.2
"""Of all our machines: more than this with a Node and without a NodeClaim at once is a fault of the look, not of the machines."""


class Orphans(msgspec.Struct, frozen=True):
    """What to end, and what is left alone although nobody knows it, with the reason."""

    end: tuple[api.Ec2Instance, ...] = ()
    kept: tuple[api.Ec2Instance, ...] = ()
    why: str = ""
    foreign: tuple[api.Ec2Instance, ...] = ()
    """Without our cluster's UID: another cluster's, or bought before machines carried it."""


def orphans(
    owned: Collection[api.Ec2Instance],
    known: Collection[str],
    unwritten: Collection[str],
    nodes: Collection[str],
    cluster_uid: str,
    now: datetime,
) -> Orphans:
    """Machines to end: old enough, not going already, and no NodeClaim has their id, or is about to have it.

    `known` are provider ids in NodeClaims' status, `unwritten` the UIDs of NodeClaims that have no provider id yet: such a claim
    finds its machine again by tag, so of its fleet's machines one is not an orphan. `nodes` are provider ids of Nodes.
    """
    waiting = {tags.short(uid) for uid in unwritten}
    found: list[api.Ec2Instance] = []
    foreign: list[api.Ec2Instance] = []
    live = [i for i in sorted(owned, key=lambda i: i.instance_id) if i.state.name not in instances.GOING]
    for i in live:
        if instances.provider_id(i.placement.availability_zone, i.instance_id) in known:
            continue
        marks = api.tags_of(i.tags)
        mine = sorted(tags.launched_for(marks) & waiting)
        if mine:
            waiting.discard(mine[0])
        elif i.launch_time is None or i.launch_time + OLD_ENOUGH > now:
            continue
        elif not cluster_uid or marks.get(tags.CLUSTER_UID) != cluster_uid:
            foreign.append(i)
        else:
            found.append(i)
    joined = [i for i in found if instances.provider_id(i.placement.availability_zone, i.instance_id) in nodes]
    why = ""
    if joined and not known and not unwritten:
        why = "there is no NodeClaim at all, but Nodes of these machines"
    elif len(joined) > max(1, int(len(live) * GUARDED_SHARE)):
        why = f"{len(joined)} of {len(live)} machines have a Node and no NodeClaim"
    kept = tuple(joined) if why else ()
    return Orphans(tuple(i for i in found if i not in kept), kept, why, tuple(foreign))


class OrphanCollection:
    """Looks every ten seconds at first, since a restart is when orphans are found, later every two minutes."""

    name = "instance.garbagecollection"

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        cluster: str,
        templates: LaunchTemplates,
        machines: Machines,
        cluster_uid: str,
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._cluster = cluster
        self._templates = templates
        self._machines = machines
        self._cluster_uid = cluster_uid
        self._told: set[str] = set()
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
        if not owned:
            return []
        claims = (await self._kube.list(NodeClaim)).items
        known = {c.status.provider_id for c in claims if c.status.provider_id}
        unwritten = {c.metadata.uid for c in claims if not c.status.provider_id}
        unknown = [i for i in owned if instances.provider_id(i.placement.availability_zone, i.instance_id) not in known]
        if not unknown:
            return []
        nodes = {n.spec.provider_id: n.name for n in (await self._kube.list(Node)).items if n.spec.provider_id}
        found = orphans(owned, known, unwritten, nodes, self._cluster_uid, self._clock.now())
        self._tell("are left alone, somebody has to look: " + found.why, found.kept)
        text = f"have our tags, no NodeClaim, and not our cluster's UID in {tags.CLUSTER_UID}; end them by hand if they are yours"
        self._tell(text, found.foreign)
        results = await asyncio.gather(*(self._end(i, nodes) for i in found.end), return_exceptions=True)
        failed = [r for r in results if isinstance(r, BaseException)]
        if failed:
            raise failed[0]
        return [i.instance_id for i in found.end]

    def _tell(self, text: str, machines: Collection[api.Ec2Instance]) -> None:
        new = sorted({i.instance_id for i in machines} - self._told)
        if new:
            self._told |= set(new)
            self._log.error(f"instances {text}", instances=new)

    async def _end(self, machine: api.Ec2Instance, nodes: Mapping[str, str]) -> None:
        self._log.info("ending an orphaned instance", instance=machine.instance_id)
        with suppress(InstanceNotFound):
            await self._machines.end(machine.instance_id)
        name = nodes.get(instances.provider_id(machine.placement.availability_zone, machine.instance_id))
        if name is not None:
            try:
                await self._kube.delete(Node, name)
            except NotFound:
                return
