"""The page of calls as the provider makes them: paced by what AWS lets through, and measured.

AWS answers too many calls with errors. Repeating each of them later by itself keeps the rate where it was; so, as AWS's own
adaptive mode does, every operation has a pace, which an error of that kind lowers for all callers and time raises again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from kubewright.cloud.aws import api, errors
from kubewright.cloud.aws.measures import Measures

LOWERED = 0.7
"""What is left of the pace after an error."""
SLOWEST_PER_S = 0.5
RAISED_PER_S = 0.5
"""How much the pace gains in a second without an error."""
FREE_AFTER_S = 60.0
"""Without an error for so long, an operation has no pace any more."""

_SERVICES = {
    "get_parameter": "SSM",
    "get_products": "Pricing",
    "describe_cluster": "EKS",
    "get_queue_url": "SQS",
    "receive_message": "SQS",
    "delete_message": "SQS",
    "get_managed_resource": "ARC Zonal Shift",
    "get_service_quota": "Service Quotas",
    "get_caller_identity": "STS",
}
_IAM = ("instance_profile", "role")


class Pace:
    """How fast one operation is called. Times are the loop's, in seconds."""

    def __init__(self) -> None:
        self.per_s: float | None = None
        self._next = 0.0
        self._raised = 0.0
        self._refused = 0.0
        self._let_through: deque[float] = deque(maxlen=100)

    def wait_s(self, now: float) -> float:
        """How long the next call has to wait; it has its place from now on."""
        if self.per_s is not None:
            self.per_s += RAISED_PER_S * (now - self._raised)
            self._raised = now
            if now - self._refused >= FREE_AFTER_S:
                self.per_s = None
        if self.per_s is None:
            return 0.0
        self._next = max(self._next + 1 / self.per_s, now)
        return self._next - now

    def passed(self, now: float) -> None:
        self._let_through.append(now)

    def refused(self, now: float) -> None:
        """Fewer from now on. Refusals of calls that were under way together count once."""
        if self.per_s is not None and now - self._refused < 1 / self.per_s:
            return
        measured = float(sum(1 for at in self._let_through if at > now - 1))
        before = measured if self.per_s is None else self.per_s
        self.per_s = max(SLOWEST_PER_S, before * LOWERED)
        self._refused = self._raised = now
        self._next = max(self._next, now)


class Caller:
    """One operation, paced and measured; called like the operation itself."""

    def __init__(self, operation: str, do: Callable[[Any], Awaitable[Any]], measures: Measures) -> None:
        self._do = do
        self._measures = measures
        self.pace = Pace()
        service = _SERVICES.get(operation, "IAM" if operation.endswith(_IAM) or "instance_profile" in operation else "EC2")
        self._named = {"service": service, "action": "".join(part.title() for part in operation.split("_"))}

    async def __call__(self, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        wait_s = self.pace.wait_s(loop.time())
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        began, status = loop.time(), "200"
        try:
            answer = await self._do(request)
        except errors.AwsError as error:
            status = str(error.status)
            if errors.is_throttling(error):
                self.pace.refused(loop.time())
            raise
        else:
            self.pace.passed(loop.time())
            return answer
        finally:
            took_s = loop.time() - began
            self._measures.count("aws_sdk_go_request_attempt_total", status_code=status, **self._named)
            self._measures.observe("aws_sdk_go_request_attempt_duration_seconds", took_s, status_code=status, **self._named)

    def finished(self, status: str, retries: int, took_s: float) -> None:
        """A request has its last answer; `retry` tells."""
        self._measures.count("aws_sdk_go_request_total", status_code=status, **self._named)
        self._measures.observe("aws_sdk_go_request_retry_count", retries, **self._named)
        self._measures.observe("aws_sdk_go_request_duration_seconds", took_s, **self._named)


class _Paced:
    def __init__(self, ec2: api.Ec2Api, measures: Measures) -> None:
        self._ec2 = ec2
        self._measures = measures
        self._callers: dict[str, Caller] = {}

    def __getattr__(self, name: str) -> Any:
        do = getattr(self._ec2, name)
        if name == "close":
            return do
        caller = self._callers.get(name)
        if caller is None:
            caller = self._callers[name] = Caller(name, do, self._measures)
        return caller


def paced(ec2: api.Ec2Api, measures: Measures) -> api.Ec2Api:
    """The same page; every operation of it is a `Caller`."""
    return cast("api.Ec2Api", _Paced(ec2, measures))
