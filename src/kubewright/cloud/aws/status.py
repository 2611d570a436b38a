"""Machines that EC2 has found impaired, or has plans with. Source: spec/aws 9.3.

Impaired for two minutes: the machine goes at once, without a drain, since pods on it cannot be asked. Scheduled events: it is
drained like an interrupted one.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
import structlog

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, retry
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.interruption import Kind, disrupted
from kubewright.cloud.aws.measures import Measures
from kubewright.errors import Conflict, KubeError, NotFound
from kubewright.kube.client import KubeClient, MergePatch
from kubewright.kube.events import Recorder

EVERY = timedelta(minutes=1)
IMPAIRED_FOR = timedelta(seconds=120)
EVENT_CODES = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
_LOOKS = (
    (api.Filter(name="instance-status.status", values=("impaired",)),),
    (api.Filter(name="system-status.status", values=("impaired",)),),
    (api.Filter(name="event.code", values=EVENT_CODES),),
)
_KINDS = {"instance_status": Kind.INSTANCE_STATUS, "system_status": Kind.SYSTEM_STATUS, "event_status": Kind.EVENT_STATUS}


class Trouble(msgspec.Struct, frozen=True, order=True):
    instance_id: str
    category: str
    """ "instance_status", "system_status" or "event_status"."""
    text: str = ""


def troubles(found: Iterable[api.InstanceStatus], now: datetime) -> list[Trouble]:
    """What counts, each instance and category once, in order. The answer's own filters are not relied on."""
    result: dict[tuple[str, str], Trouble] = {}
    for s in found:
        for category, summary in (("instance_status", s.instance_status), ("system_status", s.system_status)):
            for d in summary.details:
                since = d.impaired_since
                if d.status == "failed" and since is not None and since + IMPAIRED_FOR <= now:
                    result.setdefault((s.instance_id, category), Trouble(s.instance_id, category, d.name))
        for e in s.events:
            if e.code in EVENT_CODES and not e.description.startswith("[Completed]"):
                result.setdefault((s.instance_id, "event_status"), Trouble(s.instance_id, "event_status", e.code))
    return sorted(result.values())


class InstanceStatuses:
    """Looks every minute; needs no queue."""

    name = "interruption.instancestatus"

    def __init__(self, ec2: api.Ec2Api, kube: KubeClient, clock: Clock, recorder: Recorder, measures: Measures) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._recorder = recorder
        self._measures = measures
        self._counted: set[tuple[str, str]] = set()
        self._log = structlog.get_logger("kubewright.instancestatus")

    async def run(self) -> None:
        """Until cancelled, or until the permission turns out to be missing: asking again would change nothing."""
        while True:
            try:
                await self.poll()
            except AwsError as error:
                if error.code == "UnauthorizedOperation":
                    self._log.error(
                        "impaired instances are not looked for: allow ec2:DescribeInstanceStatus and start again",
                        error=str(error),
                    )
                    return
                self._log.warning("cannot ask for instance statuses", error=str(error))
            except KubeError as error:
                self._log.warning("cannot end impaired instances", error=str(error))
            await asyncio.sleep(EVERY.total_seconds())

    async def poll(self) -> list[Trouble]:
        """One look, and what follows from it."""
        listed: list[api.InstanceStatus] = []
        for filters in _LOOKS:
            request = api.DescribeInstanceStatus(filters=filters, max_results=1000)
            async for page in retry.pages(self._ec2.describe_instance_status, request):
                listed += page.instance_statuses
        found = troubles(listed, self._clock.now())
        if not found:
            self._counted.clear()
            return []
        claims = {}
        for c in (await self._kube.list(NodeClaim)).items:
            if c.status.provider_id.startswith("aws:///"):
                claims[c.status.provider_id.rpartition("/")[2]] = c
        ours = [t for t in found if t.instance_id in claims]
        for t in ours:
            if (t.instance_id, t.category) not in self._counted:
                self._measures.count("karpenter_interruption_instance_status_unhealthy_total", category=t.category)
        self._counted = {(t.instance_id, t.category) for t in ours}
        for t in ours:
            await self._act(t, claims[t.instance_id])
        return ours

    async def _act(self, trouble: Trouble, claim: NodeClaim) -> None:
        if claim.metadata.deletion_timestamp is not None:
            return
        text = f"Instance is unhealthy: {trouble.category} {trouble.text}".strip()
        self._recorder.publish(claim, "Warning", "InstanceUnhealthy", text, (claim.metadata.uid, trouble.category))
        is_forceful = trouble.category != "event_status"
        marked = labels.TERMINATION_TIMESTAMP in claim.metadata.annotations
        try:
            if is_forceful and not marked:
                moment = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
                body = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: moment}}}
                await self._kube.patch(NodeClaim, claim.name, MergePatch(body))
            await self._kube.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except (NotFound, Conflict):
            return
        disrupted(self._measures, claim, _KINDS[trouble.category])
        self._log.info("ending an unhealthy instance", nodeclaim=claim.name, trouble=trouble.category, detail=trouble.text)
