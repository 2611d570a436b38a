"""The interruption queue: EventBridge messages in SQS, with visibility time-outs."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from kubewright.clock import Clock
from kubewright.cloud.aws import api
from kubewright.cloud.aws.errors import AwsError
from kubewright.sim.ec2.account import OWNER

RETENTION = timedelta(seconds=300)
DEFAULT_VISIBILITY_S = 30
"""Of a queue that nobody has set up otherwise."""


class _Message:
    def __init__(self, number: int, body: str, sent: datetime) -> None:
        self.number = number
        self.body = body
        self.sent = sent
        self.hidden_until = sent
        self.receipt = ""


class Queue:
    """One queue by name; every other name does not exist."""

    def __init__(self, name: str, region: str, clock: Clock) -> None:
        self.name = name
        self.url = f"https://sqs.{region}.amazonaws.com/{OWNER}/{name}"
        self._region = region
        self._clock = clock
        self._messages: list[_Message] = []
        self._count = 0
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, body: str) -> None:
        """Any text, poison too."""
        self._count += 1
        self._messages.append(_Message(self._count, body, self._clock.now()))
        self._arrived.set()

    def publish(self, detail_type: str, detail: Mapping[str, object], source: str = "aws.ec2") -> None:
        """As EventBridge wraps it."""
        envelope = {
            "version": "0",
            "id": f"{self._count + 1:08d}-0000-4000-8000-000000000000",
            "detail-type": detail_type,
            "source": source,
            "account": OWNER,
            "time": f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
            "region": self._region,
            "resources": [],
            "detail": dict(detail),
        }
        self.put(json.dumps(envelope))

    def get_url(self, request: api.GetQueueUrl) -> api.QueueUrlAnswer:
        if request.queue_name != self.name:
            text = "The specified queue does not exist."
            raise AwsError("GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue", text)
        return api.QueueUrlAnswer(queue_url=self.url)

    async def receive(self, request: api.ReceiveMessage) -> api.MessagesAnswer:
        """Waits as long as it was asked to for a first message."""
        until = self._clock.now() + timedelta(seconds=request.wait_time_seconds)
        while True:
            found = self._visible(request)
            left_s = (until - self._clock.now()).total_seconds()
            if found or left_s <= 0:
                return api.MessagesAnswer(messages=tuple(found))
            hidden = [m.hidden_until for m in self._messages]
            soonest_s = min(((h - self._clock.now()).total_seconds() for h in hidden), default=left_s)
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), max(0.001, min(left_s, soonest_s)))
            except TimeoutError:
                continue

    def _visible(self, request: api.ReceiveMessage) -> list[api.QueueMessage]:
        now = self._clock.now()
        found: list[api.QueueMessage] = []
        self._messages = [m for m in self._messages if m.sent + RETENTION > now]
        for m in self._messages:
            if len(found) < request.max_number_of_messages and m.hidden_until <= now:
                m.hidden_until = now + timedelta(
                    seconds=DEFAULT_VISIBILITY_S if request.visibility_timeout is None else request.visibility_timeout
                )
                m.receipt = f"{m.number}/{m.hidden_until.timestamp()}"
                found.append(api.QueueMessage(message_id=str(m.number), receipt_handle=m.receipt, body=m.body))
        return found

    def delete(self, request: api.DeleteMessage) -> api.Done:
        self._messages = [m for m in self._messages if m.receipt != request.receipt_handle]
        return api.Done()
