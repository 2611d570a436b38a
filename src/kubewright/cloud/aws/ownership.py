"""Which machine was bought for which NodeClaim, when nobody wrote it down: after a crash between a launch and its record.

Every fleet's machines carry the names of all NodeClaims it was for, but not which machine is whose: any of them may take any
machine that no other has. So this is decided in one place, one look-up at a time.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, instances, retry, tags
from kubewright.cloud.aws.batching import Batcher
from kubewright.cloud.aws.machines import SHOWS_WITHIN
from kubewright.kube.client import KubeClient

_IDLE = timedelta(milliseconds=50)
_MOST = 10_000
_REMEMBERED = 20_000
"""Machines; by then the older ones are written down."""


class Ownership:
    """`begin` notes which NodeClaims another process may have bought for; `find` looks for their machines."""

    def __init__(self, ec2: api.Ec2Api, kube: KubeClient, clock: Clock, cluster: str) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._cluster = cluster
        self._began: datetime | None = None
        self._inherited: set[str] = set()
        self._given: dict[str, str] = {}
        """Instance → UID of its NodeClaim, by this process."""
        self._beginning = asyncio.Lock()
        self._searches: Batcher[str, api.Ec2Instance | None] = Batcher("find_instances", self._search, idle=_IDLE, most=_MOST)

    async def begin(self) -> None:
        """Call when this process starts to act, before it makes NodeClaims; later calls do nothing."""
        async with self._beginning:
            if self._began is not None:
                return
            claims = (await self._kube.list(NodeClaim)).items
            self._inherited = {c.metadata.uid for c in claims if not c.status.provider_id}
            self._began = self._clock.now()

    def bought(self, uid: str, instance_id: str) -> None:
        """This process bought it."""
        self._inherited.discard(uid)
        while len(self._given) >= _REMEMBERED:
            del self._given[next(iter(self._given))]
        self._given[instance_id] = uid

    async def find(self, claim: NodeClaim) -> api.Ec2Instance | None:
        """The machine that an earlier process bought for the claim, None if there is none.

        EC2 shows new machines late, so until it must have shown what an earlier process bought, it waits.
        """
        await self.begin()
        uid = claim.metadata.uid
        if uid not in self._inherited:
            return None
        found = await self._searches.add(uid)
        assert self._began is not None
        wait_s = (self._began + SHOWS_WITHIN - self._clock.now()).total_seconds()
        if found is None and wait_s > 0:
            await asyncio.sleep(wait_s)
            found = await self._searches.add(uid)
        self._inherited.discard(uid)
        return found

    async def _search(self, uids: Sequence[str]) -> list[api.Ec2Instance | Exception | None]:
        # EC2 first: what was written down meanwhile is then in the second list.
        request = api.DescribeInstances(filters=instances.owned_filters(self._cluster), max_results=1000)
        owned = [i async for page in retry.pages(self._ec2.describe_instances, request) for i in page.instances]
        claims = (await self._kube.list(NodeClaim)).items
        names = {c.metadata.uid: c.name for c in claims}
        taken = {c.status.provider_id.rpartition("/")[2]: c.metadata.uid for c in claims if c.status.provider_id}
        taken = {**self._given, **taken}
        found: dict[str, api.Ec2Instance] = {}
        for uid in sorted(set(uids)):
            for i in sorted(owned, key=lambda i: i.instance_id):
                marks = api.tags_of(i.tags)
                if (
                    i.state.name in ("pending", "running")
                    and tags.short(uid) in tags.launched_for(marks)
                    and taken.get(i.instance_id, uid) == uid
                    and marks.get(tags.NODE_CLAIM, names.get(uid, "")) == names.get(uid, "")
                ):
                    found[uid] = i
                    taken[i.instance_id] = self._given[i.instance_id] = uid
                    break
        return [found.get(uid) for uid in uids]
