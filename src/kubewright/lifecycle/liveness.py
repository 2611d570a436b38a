"""Liveness: a machine that does not come to life in time is given up, and its pods are planned anew.

Source: spec/scheduling 11.5, spec/disruption 6.4.
"""

from datetime import datetime, timedelta

import msgspec

from kubewright.api.karpenter import NodeClaim
from kubewright.lifecycle import claims, launch
from kubewright.lifecycle.effects import NOTHING, Step

LAUNCH_TIMEOUT = timedelta(minutes=5)
REGISTRATION_TIMEOUT = timedelta(minutes=15)


class Verdict(msgspec.Struct, frozen=True):
    """`failed`: the claim was given up, which is a failed registration to its NodePool."""

    step: Step
    failed: bool = False


ALIVE = Verdict(NOTHING)


def check(
    claim: NodeClaim,
    now: datetime,
    *,
    launch_timeout: timedelta = LAUNCH_TIMEOUT,
    registration_timeout: timedelta = REGISTRATION_TIMEOUT,
) -> Verdict:
    """Give up a claim that is not launched or not registered in time; ask again when the nearer deadline is due."""
    if claims.is_set(claim, claims.REGISTERED):
        return ALIVE
    if not claims.is_set(claim, claims.LAUNCHED):
        return _by(claim, now, claims.LAUNCHED, launch_timeout, "launch_timeout")
    return _by(claim, now, claims.REGISTERED, registration_timeout, "registration_timeout")


def _by(claim: NodeClaim, now: datetime, kind: str, timeout: timedelta, reason: str) -> Verdict:
    start = claims.since(claim, kind)
    if start is None:
        return ALIVE
    left = start + timeout - now
    if left > timedelta():
        return Verdict(Step(again=left))
    return Verdict(Step(launch.gone(claim, reason)), failed=True)
