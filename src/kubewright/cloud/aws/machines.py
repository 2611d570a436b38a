"""Asking about machines and ending them, many at a time. Source: spec/aws 7.5, 7.8."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.clock import Clock
from kubewright.cloud.aws import api, errors, instances, retry
from kubewright.cloud.aws.batching import Batcher
from kubewright.cloud.aws.errors import AwsError
from kubewright.cloud.aws.measures import Measures
from kubewright.errors import InstanceNotFound, Throttled

IDLE = timedelta(milliseconds=100)
MOST_ASKED = 200
"""Values of one filter. Source: EC2. (The reference asks for 500 by id, where one that is gone fails all.)"""
MOST_ENDED = 500
SHOWS_WITHIN = timedelta(seconds=30)
"""How long DescribeInstances may hide a machine that a fleet has bought."""
_ID = re.compile(r"i-[0-9a-zA-Z]+")


class Machines:
    """Machines by id."""

    def __init__(self, ec2: api.Ec2Api, clock: Clock, measures: Measures) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._bought: dict[str, datetime] = {}
        """By us, lately."""
        self._asked: Batcher[str, api.Ec2Instance] = Batcher(
            "describe_instances", self._describe, idle=IDLE, most=MOST_ASKED, measures=measures
        )
        self._ended: Batcher[str, None] = Batcher(
            "terminate_instances", self._terminate, idle=IDLE, most=MOST_ENDED, measures=measures
        )

    def bought(self, instance_id: str) -> None:
        """Not to be taken for gone as long as EC2 may hide it."""
        now = self._clock.now()
        self._bought = {i: at for i, at in self._bought.items() if at + SHOWS_WITHIN > now}
        self._bought[instance_id] = now

    async def get(self, provider_id: str) -> api.Ec2Instance:
        """Raises InstanceNotFound, Throttled, AwsError."""
        return await self._asked.add(instances.instance_id(provider_id))

    async def end(self, instance_id: str) -> None:
        """Raises InstanceNotFound, Throttled, AwsError."""
        await self._ended.add(instance_id)

    async def _describe(self, ids: Sequence[str]) -> list[api.Ec2Instance | Exception]:
        # By filter: an id that is gone would fail a whole request by ids.
        request = api.DescribeInstances(filters=(api.Filter(name="instance-id", values=tuple(sorted(set(ids)))),))
        try:
            shown = [i async for page in retry.pages(self._ec2.describe_instances, request) for i in page.instances]
        except AwsError as error:
            return [errors.of_call(error)] * len(ids)
        found = {i.instance_id: i for i in shown if i.state.name != "terminated"}
        known = {i.instance_id for i in shown}
        return [found.get(i) or self._missing(i, is_shown=i in known) for i in ids]

    def _missing(self, instance_id: str, *, is_shown: bool) -> Exception:
        at = self._bought.get(instance_id)
        if not is_shown and at is not None and self._clock.now() < at + SHOWS_WITHIN:
            return Throttled(f"EC2 does not show instance {instance_id} yet, which was bought a moment ago")
        return InstanceNotFound(f"instance {instance_id} is gone")

    async def _terminate(self, ids: Sequence[str]) -> list[Exception | None]:
        left, gone = sorted(set(ids)), dict[str, Exception]()
        while left:
            try:
                await retry.call(self._ec2.terminate_instances, api.TerminateInstances(instance_ids=tuple(left)))
            except AwsError as error:
                unknown = set(_ID.findall(error.message)) & set(left) if errors.is_not_found(error) else set[str]()
                if not unknown and errors.is_not_found(error) and len(left) == 1:
                    unknown = set(left)
                if not unknown:
                    gone.update((i, errors.of_call(error)) for i in left)
                    break
                gone.update((i, self._missing(i, is_shown=False)) for i in unknown)
                left = [i for i in left if i not in unknown]
            else:
                break
        return [gone.get(i) for i in ids]
