"""Notices that a machine will go: read from the queue, understood, acted on. Source: spec/aws 9.1, 9.2."""

import asyncio
import enum
from collections.abc import Mapping
from datetime import datetime

import msgspec
import structlog

from kubewright.api import aws_labels, labels
from kubewright.api.karpenter import NodeClaim
from kubewright.clock import Clock
from kubewright.cloud.aws import api, instances, retry
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.measures import Measures
from kubewright.cloud.aws.reservations import ReservationCounts
from kubewright.cloud.aws.unavailable import UnavailableOfferings
from kubewright.errors import CloudError, Conflict, KubeError, NotFound
from kubewright.kube.client import KubeClient
from kubewright.kube.events import Recorder
from kubewright.lifecycle.disrupted import disrupted as of_claim


class Kind(enum.StrEnum):
    SPOT = "spot_interrupted"
    REBALANCE = "rebalance_recommendation"
    STOPPED = "instance_stopped"
    TERMINATED = "instance_terminated"
    SCHEDULED = "scheduled_change"
    RESERVATION = "capacity_reservation_interrupted"
    INSTANCE_STATUS = "instance_status"
    SYSTEM_STATUS = "system_status"
    EVENT_STATUS = "event_status"
    NONE = "no_op"
    """Nothing that concerns us; deleted and counted."""


class Notice(msgspec.Struct, frozen=True):
    kind: Kind
    instance_ids: tuple[str, ...] = ()
    at: datetime | None = None


class _Entity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: str = ""


class _Detail(msgspec.Struct, frozen=True):
    instance_id: str = msgspec.field(default="", name="instance-id")
    state: str = ""
    service: str = ""
    category: str = msgspec.field(default="", name="eventTypeCategory")
    affected: tuple[_Entity, ...] = msgspec.field(default=(), name="affectedEntities")


class _Envelope(msgspec.Struct, frozen=True):
    version: str = ""
    source: str = ""
    detail_type: str = msgspec.field(default="", name="detail-type")
    time: str = ""
    detail: msgspec.Raw = msgspec.Raw(b"{}")


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_DETAIL = msgspec.json.Decoder(_Detail)
_GOING = {"stopping": Kind.STOPPED, "stopped": Kind.STOPPED, "shutting-down": Kind.TERMINATED, "terminated": Kind.TERMINATED}


def parse(body: str) -> Notice:
    """What an EventBridge message means; what we do not know is `Kind.NONE`.

    Raises:
        ValueError: not a message at all; deleting it is right, since it will not get better.
    """
    if not body:
        return Notice(Kind.NONE)
    try:
        envelope = _ENVELOPE.decode(body)
        known = (envelope.version, envelope.source) in (("0", "aws.ec2"), ("0", "aws.health"))
        detail = _DETAIL.decode(envelope.detail) if known else _Detail()
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an EventBridge message: {error}") from error
    at = _moment(envelope.time)
    one = (detail.instance_id,) if detail.instance_id else ()
    match (envelope.version, envelope.source, envelope.detail_type):
        case ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning"):
            return Notice(Kind.SPOT, one, at)
        case ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation"):
            return Notice(Kind.REBALANCE, one, at)
        case ("0", "aws.ec2", "EC2 Instance State-change Notification"):
            kind = _GOING.get(detail.state.lower(), Kind.NONE)
            return Notice(kind, one if kind is not Kind.NONE else (), at)
        case ("0", "aws.health", "AWS Health Event"):
            if detail.service == "EC2" and detail.category == "scheduledChange":
                return Notice(Kind.SCHEDULED, tuple(e.entity_value for e in detail.affected if e.entity_value), at)
        case ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"):
            return Notice(Kind.RESERVATION, one, at)
    return Notice(Kind.NONE, (), at)


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def disrupted(measures: Measures, claim: NodeClaim, kind: Kind) -> None:
    """Count the end of a NodeClaim that the cloud brought about."""
    counted = of_claim(claim, str(kind))
    measures.count(f"karpenter_{counted.name}", **counted.labels)


_EVENTS: Mapping[Kind, tuple[str, str, str]] = {
    Kind.SPOT: ("Warning", "SpotInterrupted", "Spot interruption warning was triggered"),
    Kind.REBALANCE: ("Normal", "SpotRebalanceRecommendation", "Spot rebalance recommendation was triggered"),
    Kind.STOPPED: ("Warning", "InstanceStopping", "Instance is stopping"),
    Kind.TERMINATED: ("Warning", "InstanceTerminating", "Instance is terminating"),
    Kind.SCHEDULED: ("Warning", "InstanceUnhealthy", "An unhealthy warning was triggered for the instance"),
    Kind.RESERVATION: (
        "Warning",
        "CapacityReservationInstanceInterrupted",
        "The instance's capacity reservation takes it back",
    ),
}


class Interruptions:
    """Empties the queue as long as it runs. A message is deleted only after it was acted on, so a crash repeats it."""

    name = "interruption"
    at_once = 10
    visibility_s = 20
    wait_s = 20
    """Source: spec/aws 9.1."""

    def __init__(
        self,
        ec2: api.Ec2Api,
        kube: KubeClient,
        clock: Clock,
        queue: str,
        unavailable: UnavailableOfferings,
        reservations: ReservationCounts,
        recorder: Recorder,
        measures: Measures,
        *,
        rebalance: bool = False,
    ) -> None:
        self._ec2 = ec2
        self._kube = kube
        self._clock = clock
        self._queue = queue
        self._unavailable = unavailable
        self._reservations = reservations
        self._recorder = recorder
        self._measures = measures
        self._rebalance = rebalance
        self._log = structlog.get_logger("kubewright.interruption")
        self.received: dict[Kind, int] = {}
        self.deleted = 0

    async def run(self) -> None:
        """Until cancelled; a queue that cannot be read is asked again every few seconds."""
        url = ""
        while True:
            try:
                url = url or (await self._ec2.get_queue_url(api.GetQueueUrl(queue_name=self._queue))).queue_url
                await self.poll(url)
            except AwsError as error:
                self._log.warning("cannot read the interruption queue", queue=self._queue, error=str(error))
                await asyncio.sleep(5)

    async def poll(self, url: str) -> None:
        """One receive, and everything that came with it."""
        request = api.ReceiveMessage(
            queue_url=url,
            max_number_of_messages=self.at_once,
            visibility_timeout=self.visibility_s,
            wait_time_seconds=self.wait_s,
        )
        messages = (await self._ec2.receive_message(request)).messages
        if not messages:
            return
        claims: dict[str, NodeClaim] = {}
        for claim in (await self._kube.list(NodeClaim)).items:
            if claim.status.provider_id.startswith("aws:///"):
                claims[claim.status.provider_id.rpartition("/")[2]] = claim
        outcomes = await asyncio.gather(*(self._deal(url, m, claims) for m in messages), return_exceptions=True)
        failed = [o for o in outcomes if isinstance(o, BaseException)]
        if failed:
            raise failed[0]

    async def _deal(self, url: str, message: api.QueueMessage, claims: Mapping[str, NodeClaim]) -> None:
        try:
            await self.handle(message.body, claims)
        except (KubeError, CloudError) as error:
            self._log.warning("notice was not handled, it will come again", error=str(error))
            return
        await retry.call(self._ec2.delete_message, api.DeleteMessage(queue_url=url, receipt_handle=message.receipt_handle))
        self.deleted += 1
        self._measures.count("karpenter_interruption_deleted_messages_total")

    async def handle(self, body: str, claims: Mapping[str, NodeClaim]) -> None:
        """Mark, tell, and delete the NodeClaims concerned: termination drains them, and pods get a new home at once.

        `claims` are by instance id.
        """
        try:
            notice = parse(body)
        except ValueError as error:
            self._log.warning("dropped a message", error=str(error))
            notice = Notice(Kind.NONE)
        self.received[notice.kind] = self.received.get(notice.kind, 0) + 1
        self._measures.count("karpenter_interruption_received_messages_total", message_type=str(notice.kind))
        if notice.at is not None:
            age_s = max(0.0, (self._clock.now() - notice.at).total_seconds())
            self._measures.observe("karpenter_interruption_message_queue_duration_seconds", age_s)
        for instance_id in sorted(set(notice.instance_ids)):
            claim = claims.get(instance_id)
            if claim is not None:
                await self._act(notice.kind, claim)

    async def _act(self, kind: Kind, claim: NodeClaim) -> None:
        machine = instances.instance_id(claim.status.provider_id)
        found, now = claim.metadata.labels, self._clock.now()
        if kind is Kind.SPOT:
            zone = found.get(labels.ZONE, "")
            self._unavailable.mark(labels.SPOT, found.get(labels.INSTANCE_TYPE, ""), zone, "interrupted", now)
        elif kind is Kind.RESERVATION and aws_labels.CAPACITY_RESERVATION_ID in found:
            self._reservations.used_up(found[aws_labels.CAPACITY_RESERVATION_ID], now)
        level, reason, text = _EVENTS[kind]
        self._recorder.publish(claim, level, reason, text, (claim.metadata.uid, machine))
        if claim.metadata.deletion_timestamp is not None or (kind is Kind.REBALANCE and not self._rebalance):
            return
        text = "Interruption triggered termination for the NodeClaim"
        self._recorder.publish(claim, "Warning", "TerminatingOnInterruption", text, (claim.metadata.uid,))
        try:
            await self._kube.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except (NotFound, Conflict):
            return
        disrupted(self._measures, claim, kind)
        self._log.info("interrupted", nodeclaim=claim.name, instance=machine, kind=str(kind))
