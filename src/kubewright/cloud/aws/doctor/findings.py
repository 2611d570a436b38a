"""Findings, and the one way to ask AWS something that may be refused."""

import enum
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from kubewright.cloud.aws import retry
from kubewright.cloud.aws.errors import AwsError

R = TypeVar("R")
A = TypeVar("A")

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthFailure"})
POLICY = "attach the policy that `kubewright aws iam-policy` prints to the controller's role"


class Verdict(enum.StrEnum):
    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """It could not be looked at; that need not mean anything for the operator."""


class Finding(msgspec.Struct, frozen=True):
    verdict: Verdict
    about: str
    """The object: a NodeClass, a subnet, a role, a call."""
    text: str
    mend: str = ""


def ok(about: str, text: str) -> Finding:
    return Finding(Verdict.OK, about, text)


def problem(about: str, text: str, mend: str) -> Finding:
    return Finding(Verdict.PROBLEM, about, text, mend)


def unknown(about: str, text: str, mend: str = "") -> Finding:
    return Finding(Verdict.UNKNOWN, about, text, mend)


def is_denied(error: AwsError) -> bool:
    return error.code in DENIED or error.code.startswith("UnauthorizedOperation")


async def look(do: Callable[[R], Awaitable[A]], request: R) -> A | AwsError:
    """The answer, or the error as a value."""
    try:
        return await retry.call(do, request)
    except AwsError as error:
        return error


def not_seen(about: str, error: AwsError, action: str) -> Finding:
    """A look that only the doctor needs was refused, or failed."""
    if is_denied(error):
        return unknown(about, f"not looked at: {action} is not allowed to who asks", f"run it with a role that may {action}")
    return unknown(about, f"not looked at: {error}")
